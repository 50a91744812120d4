//go:build chart

package chart

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

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

// The CronJob of provision/gcp belongs to Kubernetes, runs a command that keypost has, and names the chart's watch.
func (s *apiServer) takesCronJob(t *testing.T) {
	text := read(t, "../../provision/gcp/README.md")
	block := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindSubmatch(text)
	if block == nil {
		t.Fatal("no manifest was found")
	}
	s.kubectl(t, string(block[1]), "-n", namespace, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	var job object
	must(t, yaml.UnmarshalStrict(block[1], &job))
	pod := []string{"spec", "jobTemplate", "spec", "template", "spec"}
	var args []string
	for _, c := range job.objects(append(pod, "containers")...) {
		args = append(args, c.strs("args")...)
	}
	if said := output(t, nil, filepath.Join(tool(t, "bin"), "keypost"), append(args, "--help")...); !strings.Contains(said, "keypost sync-keys") {
		t.Errorf("%q is %s", args, said)
	}
	chart := read(t, chartDir+"/README.md")
	if watch := job.str(append(pod, "serviceAccountName")...); !strings.Contains(string(chart), " deployment/"+watch+" ") {
		t.Errorf("the chart has no %s", watch)
	}
}

func TestWorkflows(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	must(t, err)
	output(t, nil, tool(t, "actionlint"), files...)
	output(t, nil, tool(t, "goreleaser"), "check", "../../.goreleaser.yaml") // what it makes: release_test.go, in make e2e-full
}

// Units are held to a score of systemd's own, 0 (best) to 100, also with the lines that they offer in comments. A timer is held with
// the unit that it runs.
func TestUnits(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../cmd/*/systemd/*.service")
	must(t, err)
	if len(files) != 6 {
		t.Errorf("units %q", files)
	}
	offered := regexp.MustCompile(`(?m)^#([A-Z]\w+=)`)
	for _, unit := range files {
		text := read(t, unit)
		variants := map[string]string{"": string(text)}
		if offered.Match(text) {
			variants[" with what it offers"] = offered.ReplaceAllString(string(text), "$1")
		}
		for which, text := range variants {
			t.Run(filepath.Base(unit)+which, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), filepath.Base(unit))
				must(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "/usr/local/bin/", tool(t, "bin")+"/")), 0o600))
				unitsAreRight(t, file)
				if timer, err := os.ReadFile(strings.TrimSuffix(unit, ".service") + ".timer"); err == nil {
					beside := strings.TrimSuffix(file, ".service") + ".timer"
					must(t, os.WriteFile(beside, timer, 0o600))
					unitsAreRight(t, beside)
				}
				output(t, nil, tool(t, "systemd"), "security", "--offline=true", "--threshold=20", file)
			})
		}
	}
	timers, err := filepath.Glob("../../cmd/*/systemd/*.timer")
	must(t, err)
	for _, timer := range timers {
		if unit := strings.TrimSuffix(timer, ".timer") + ".service"; !slices.Contains(files, unit) {
			t.Errorf("%s runs nothing", timer)
		}
	}
}

func unitsAreRight(t *testing.T, file string) {
	t.Helper()
	if out, errs, err := try(nil, tool(t, "systemd"), "verify", "--recursive-errors=no", file); err != nil || errs != "" {
		t.Errorf("%s: %v: %s%s", filepath.Base(file), err, errs, out)
	}
}
