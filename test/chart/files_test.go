//go:build chart

package chart

import (
	"crypto/x509"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/authority"
)

// selfSigned writes a certificate for hosts and its key.
func selfSigned(t *testing.T, dir string, hosts []string) (cert, key string) {
	t.Helper()
	own := authority.Certify(t, nil, &x509.Certificate{DNSNames: hosts})
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	must(t, os.WriteFile(cert, authority.ChainPEM(own), 0o600))
	must(t, os.WriteFile(key, own.KeyPEM(t), 0o600))
	return cert, key
}

// kubeconform knows Kubernetes' own kinds from the OpenAPI document in Kubernetes' source; the API server (presets on a
// real one) knows the others.
func TestKubeconform(t *testing.T) {
	schemas := writeSchemas(t)
	each(t, func(t *testing.T, p preset) {
		output(t, strings.NewReader(p.text(t, everything...)), tool(t, "kubeconform"), "-strict", "-summary",
			"-schema-location", schemas+"/{{.ResourceKind}}{{.KindSuffix}}.json",
			"-skip", "CustomResourceDefinition,ServiceMonitor,PrometheusRule,Certificate,TLSRoute,HTTPRoute,Route")
	})
}

// writeSchemas turns the OpenAPI document into JSON schemas, one per kind, that allow no unknown member.
func writeSchemas(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(tool(t, "openapi"))
	must(t, err)
	text = []byte(strings.ReplaceAll(string(text), `"#/definitions/`, `"_definitions.json#/definitions/`))
	var doc struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	must(t, json.Unmarshal(text, &doc))
	dir := t.TempDir()
	for name, d := range doc.Definitions {
		if _, open := d["additionalProperties"]; d["properties"] != nil && !open {
			d["additionalProperties"] = false
		}
		switch {
		case strings.HasSuffix(name, "util.intstr.IntOrString"):
			doc.Definitions[name] = map[string]any{"type": []string{"string", "integer"}}
		case strings.HasSuffix(name, "api.resource.Quantity"):
			doc.Definitions[name] = map[string]any{"type": []string{"string", "number"}}
		}
		kinds, _ := d["x-kubernetes-group-version-kind"].([]any)
		for _, k := range kinds {
			gvk := k.(map[string]any)
			parts := []string{gvk["kind"].(string)}
			if group, _, _ := strings.Cut(gvk["group"].(string), "."); group != "" {
				parts = append(parts, group)
			}
			file := strings.ToLower(strings.Join(append(parts, gvk["version"].(string)), "-")) + ".json"
			writeJSON(t, filepath.Join(dir, file), map[string]string{"$ref": "_definitions.json#/definitions/" + name})
		}
	}
	writeJSON(t, filepath.Join(dir, "_definitions.json"), map[string]any{"definitions": doc.Definitions})
	return dir
}

func writeJSON(t *testing.T, file string, v any) {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
}

func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	must(t, err)
	output(t, nil, tool(t, "actionlint"), files...)
}

// Units are held to a score of systemd's own, 0 (best) to 100.
func TestUnits(t *testing.T) {
	for unit, program := range map[string]string{"keypostd/systemd/keypostd.service": "keypostd", "keypost/systemd/keypost-mirror.service": "keypost", "keypost/systemd/keypost-watch.service": "keypost"} {
		t.Run(filepath.Base(unit), func(t *testing.T) {
			text, err := os.ReadFile("../../cmd/" + unit)
			must(t, err)
			file := filepath.Join(t.TempDir(), filepath.Base(unit))
			must(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/", tool(t, "bin")+"/")), 0o600))
			if out, errs, err := try(nil, tool(t, "systemd"), "verify", "--recursive-errors=no", file); err != nil || errs != "" {
				t.Errorf("%s: %v: %s%s", program, err, errs, out)
			}
			output(t, nil, tool(t, "systemd"), "security", "--offline=true", "--threshold=20", file)
		})
	}
}

// Two builds of one commit in different directories are equal, byte for byte. Nothing is published or signed.
func TestReleaseIsReproducible(t *testing.T) {
	release := func(from string) (dir, sums string) {
		dir = filepath.Join(t.TempDir(), "source")
		output(t, nil, "git", "clone", "-q", from, dir)
		output(t, nil, "sh", "-c", `cd "$1" && exec "$2" release --snapshot --clean --skip=publish,sign,sbom`, "sh", dir, tool(t, "goreleaser"))
		text, err := os.ReadFile(filepath.Join(dir, "dist/checksums.txt"))
		must(t, err)
		return dir, string(text)
	}
	dir, first := release("../..")
	if strings.Count(first, "\n") != 6 {
		t.Errorf("archives:\n%s", first)
	}
	for archive, want := range map[string][]string{
		"keypost_*_linux_amd64.tar.gz": {"keypost", "LICENSE", "systemd/keypost-mirror.service", "man/man1/keypost.1"}, "keypostd_*_linux_amd64.tar.gz": {"keypostd", "systemd/keypostd.service", "man/man8/keypostd.8"},
	} {
		has := strings.Split(output(t, nil, "sh", "-c", "tar -tzf "+dir+"/dist/"+archive), "\n")
		for _, file := range want {
			if !slices.Contains(has, file) {
				t.Errorf("%s lacks %s: %q", archive, file, has)
			}
		}
	}
	if _, second := release(dir); first != second {
		t.Errorf("first\n%ssecond\n%s", first, second)
	}
}
