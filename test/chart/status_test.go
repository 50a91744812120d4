//go:build chart

package chart

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestStatus: with the chart's own roles on a real API server, keypost watch writes into the status of a KeySet whether it is
// published, kubectl waits for it, and the account that writes it can change no key set.
func TestStatus(t *testing.T) {
	api := startAPIServer(t)
	api.prepare(t)
	set := []string{"watch.enabled=true", "watch.status=true"}
	for _, o := range preset("kubernetes").objects(t, set...) {
		switch o.str("kind") {
		case "CustomResourceDefinition", "Role", "RoleBinding", "ServiceAccount":
			api.apply(t, o)
		}
	}
	account := "system:serviceaccount:" + namespace + ":" + release + "-keypost-watch"
	dir := t.TempDir()
	admin, watcher := api.kubeconfig(t, dir, ""), api.kubeconfig(t, dir, account)
	keypost := func(args ...string) string { return output(t, nil, tool(t, "bin")+"/keypost", args...) }
	store := "kubernetes://" + namespace + "?kubeconfig="
	ports := freePorts(t, 3)
	issuer := fmt.Sprintf("https://localhost:%d/demo", ports[0])

	// keypostd serves what a mirror copies, and the watch looks.
	start(t, dir, tool(t, "bin")+"/keypostd", "--dev", dir+"/dev", "--address", fmt.Sprintf("127.0.0.1:%d", ports[0]), "--admin-address", fmt.Sprintf("127.0.0.1:%d", ports[1]))
	ca := dir + "/dev/ca.pem"
	awaitReady(t, func() error { _, err := os.Stat(ca); return err })
	keypost("key", "generate", "--out", dir+"/signer")
	keypost("--store", store+admin, "issuer", "add", "demo", "--dev", "--url", issuer, "--public-key-file", dir+"/signer/sa.pub", "--reach", "private")
	start(t, dir, tool(t, "bin")+"/keypost", "watch", "--store", store+watcher, "--status", "--ca-file", ca, "--every", "5s", "--listen", fmt.Sprintf("127.0.0.1:%d", ports[2]))

	wait := func(condition string) {
		t.Helper()
		api.kubectl(t, "", "-n", namespace, "wait", "--for=condition="+condition, "keyset/demo", "--timeout=90s")
	}
	wait("Published=Unknown") // nothing serves it
	copyStore := func() { keypost("mirror", "--once", "--dev", "--store", store+admin, dir+"/dev/keysets") }
	copyStore()
	wait("Published")
	wait("Ready")

	// kubectl wait goes by observedGeneration: the condition of the version before is not taken for that of the next.
	keypost("key", "generate", "--out", dir+"/next")
	keypost("--store", store+admin, "key", "add", "demo", "--public-key-file", dir+"/next/sa.pub")
	if err := api.try("", "-n", namespace, "wait", "--for=condition=Published", "keyset/demo", "--timeout=5s"); err == nil {
		t.Error("a key set that nobody has copied counts as published")
	}
	wait("Published=False")
	copyStore()
	wait("Published")
	if got := api.get(t, "keyset/demo", "{.status.generation} {.status.observedGeneration} {.metadata.generation} {.spec.generation}"); got != "2 2 2 2" {
		t.Errorf("generations %s", got)
	}
	// No change of the key set, no write: each is a new revision, which mirrors read.
	before := api.get(t, "keyset/demo", "{.metadata.resourceVersion}")
	awaitLooks(t, ports[2], 2)
	if after := api.get(t, "keyset/demo", "{.metadata.resourceVersion}"); after != before {
		t.Errorf("revision %s became %s though nothing changed", before, after)
	}

	as := func(args ...string) error {
		return api.try("", append([]string{"-n", namespace, "--as", account}, args...)...)
	}
	for _, args := range [][]string{
		{"patch", "keyset/demo", "--type=merge", "-p", `{"spec":{"withdrawnAt":"2026-01-01T00:00:00Z","generation":3}}`},
		{"annotate", "keyset/demo", "a=b"}, {"delete", "keyset/demo"}, {"create", "-f", writeKeySet(t, api, dir)},
	} {
		if err := as(args...); err == nil || !strings.Contains(err.Error(), "Forbidden") && !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("%v with the account of the watch: %v", args, err)
		}
	}
	// Who may write the status cannot fill the object, which the keys have to go into.
	status := func(patch string) error {
		return api.try("", "-n", namespace, "patch", "keyset/demo", "--subresource=status", "--type=merge", "-p", patch)
	}
	must(t, status(`{"status":{"filling":"`+strings.Repeat("x", 1000)+`"}}`))
	if got := api.get(t, "keyset/demo", "{.status.filling}"); got != "" {
		t.Error("the status takes any member")
	}
	forged := `{"status":{"conditions":[{"type":"Published","status":"False","reason":"Forged","lastTransitionTime":"2026-01-01T00:00:00Z","message":"%s"}]}}`
	if err := status(fmt.Sprintf(forged, strings.Repeat("x", 2000))); err == nil || !strings.Contains(err.Error(), "Too long") {
		t.Errorf("a long message: %v", err)
	}
	// What somebody else has written does not stay, and an object that was made anew does not stay without.
	must(t, status(fmt.Sprintf(forged, "x")))
	wait("Published")
	again := strings.Replace(api.out(t, "-n", namespace, "get", "keyset/demo", "-o", "json"), `"resourceVersion"`, `"annotations": {}, "was"`, 1)
	api.kubectl(t, "", "-n", namespace, "delete", "keyset/demo")
	api.kubectl(t, again, "-n", namespace, "create", "--validate=false", "-f", "-")
	if got := api.get(t, "keyset/demo", "{.status}"); got != "" {
		t.Fatalf("an object that was made anew has the status %s", got)
	}
	wait("Published")
	if got := api.get(t, "keyset/demo", "{.status.generation} {.status.observedGeneration} {.metadata.generation} {.spec.generation}"); got != "2 1 1 2" {
		t.Errorf("generations of an object that was made anew: %s", got)
	}

	// What the subresource is given beside the status does not get through it.
	api.kubectl(t, "", "-n", namespace, "patch", "keyset/demo", "--subresource=status", "--type=merge", "-p", `{"spec":{"withdrawnAt":"2026-01-01T00:00:00Z","generation":3}}`)
	if got := api.get(t, "keyset/demo", "{.spec.generation}{.spec.withdrawnAt}"); got != "2" {
		t.Errorf("through the status the key set became %s", got)
	}
}

// Without the option the chart gives nobody the right, and the watch no account of its own.
func TestStatusIsOptIn(t *testing.T) {
	for _, set := range [][]string{nil, {"watch.enabled=true"}, {"watch.enabled=true", "watch.observations=kubernetes"}} {
		if text := preset("kubernetes").text(t, set...); strings.Contains(text, "keysets/status") || strings.Contains(text, "- --status\n") {
			t.Errorf("with %v somebody may write the status", set)
		}
	}
	for _, o := range find(preset("kubernetes").objects(t, "watch.enabled=true", "watch.status=true"), "Role") {
		if rules := fmt.Sprint(o.at("rules")); strings.Contains(rules, "keysets/status") != strings.HasSuffix(o.str("metadata", "name"), "-watch") {
			t.Errorf("role %s: %s", o.str("metadata", "name"), rules)
		}
	}
}

func writeKeySet(t *testing.T, api *apiServer, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "other.json")
	must(t, os.WriteFile(file, []byte(strings.ReplaceAll(api.out(t, "-n", namespace, "get", "keyset/demo", "-o", "json"), `"name": "demo"`, `"name": "other"`)), 0o600))
	return file
}

// apply creates or changes one object in the release's namespace.
func (s *apiServer) apply(t *testing.T, o object) {
	t.Helper()
	text, err := yaml.Marshal(o)
	must(t, err)
	s.kubectl(t, string(text), "-n", namespace, "apply", "--server-side", "-f", "-")
}

// out is what kubectl prints.
func (s *apiServer) out(t *testing.T, args ...string) string {
	t.Helper()
	return output(t, nil, s.bin+"/kubectl", append([]string{"--server", s.url, "--token", "chart", "--certificate-authority", s.ca, "--kubeconfig=/dev/null"}, args...)...)
}

// get is what a path leads to in an object of the release's namespace.
func (s *apiServer) get(t *testing.T, name, path string) string {
	t.Helper()
	return s.out(t, "-n", namespace, "get", name, "-o", "jsonpath="+path)
}

// kubeconfig is a file of the administrator, or of whom he stands for.
func (s *apiServer) kubeconfig(t *testing.T, dir, as string) string {
	t.Helper()
	file := filepath.Join(dir, "kubeconfig"+strings.ReplaceAll(as, ":", "-"))
	must(t, os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}], users: [{name: u, user: {token: chart, as: %q}}]}`, s.url, s.ca, as), 0o600))
	return file
}

// awaitLooks waits until the watch has looked at its issuers so many times more.
func awaitLooks(t *testing.T, port, times int) {
	t.Helper()
	latest := func() string {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port)) //nolint:noctx // a local server
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		must(t, err)
		return regexp.MustCompile(`keypost_watch_last_look_timestamp_seconds\{.*`).FindString(string(page))
	}
	for range times {
		was := latest()
		awaitReady(t, func() error {
			if now := latest(); now == "" || now == was {
				return errors.New("no further look")
			}
			return nil
		})
	}
}
