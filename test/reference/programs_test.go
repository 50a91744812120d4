package reference

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/process"
)

// TestProgramsAgree runs the programs side by side: what they export and log is what the source was read to say.
func TestProgramsAgree(t *testing.T) {
	bin, dev, store := t.TempDir(), filepath.Join(t.TempDir(), "dev"), "file://"+t.TempDir()
	if err := process.Build(root, bin, "-buildvcs=false", "./cmd/keypost", "./cmd/keypostd"); err != nil {
		t.Fatal(err)
	}
	start := func(program string, args ...string) *process.Process {
		return process.Start(t, exec.CommandContext(t.Context(), filepath.Join(bin, program), args...))
	}
	address, admins := process.FreeAddress(t), []string{process.FreeAddress(t), process.FreeAddress(t), process.FreeAddress(t)}
	issuer := "https://localhost" + address[strings.LastIndex(address, ":"):] + "/demo"
	keypost := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "keypost"), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("keypost %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, args := range [][]string{
		{"key", "generate", "--out", filepath.Join(bin, "signer")},
		{"--store", store, "issuer", "add", "demo", "--dev", "--url", issuer, "--public-key-file", filepath.Join(bin, "signer/sa.pub")},
		{"key", "generate", "--out", filepath.Join(bin, "next")},
		{"--store", store, "key", "add", "demo", "--public-key-file", filepath.Join(bin, "next/sa.pub")},
	} {
		keypost(args...)
	}
	next := regexp.MustCompile(`"kid": "([^"]+)",[^}]*"state": "next"`).FindStringSubmatch(keypost("--store", store, "key", "list", "demo", "-o", "json"))
	keypost("--store", store, "key", "promote", "demo", next[1], "--force", "--why", "a forced promotion has a metric")
	server := start("keypostd", "--dev", dev, "--address", address, "--admin-address", admins[0])
	ca := filepath.Join(dev, "ca.pem")
	server.Await(t, "a CA", func() error { _, err := os.Stat(ca); return err })
	mirror := start("keypost", "mirror", "--dev", "--store", store, "--admin-address", admins[1], filepath.Join(dev, "keysets"))
	metrics := func(at string) string {
		var page string
		process.Await(t, "metrics at "+at, func() error {
			answer, err := http.Get("http://" + at + "/metrics") //nolint:noctx // a local server
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			page = string(text)
			return err
		})
		return page
	}
	server.Await(t, "a served issuer", func() error {
		if !strings.Contains(metrics(admins[0]), "\nkeypost_issuers 1\n") {
			return fmt.Errorf("keypost_issuers is not 1")
		}
		return nil
	})
	if err := os.WriteFile(filepath.Join(dev, "keysets/broken.yaml"), []byte("junk"), 0o600); err != nil { // a rejected one is named
		t.Fatal(err)
	}
	watch := start("keypost", "watch", "--store", store, "--ca-file", ca, "--listen", admins[2], "--every", "5s")
	watch.Await(t, "a look", func() error {
		if !regexp.MustCompile(`keypost_watch_certificate_not_after_timestamp_seconds\{`).MatchString(metrics(admins[2])) {
			return fmt.Errorf("there was none")
		}
		return nil
	})
	file := filepath.Join(t.TempDir(), "keypost.prom")
	verify := start("keypost", "verify", "demo", "--dev", "--store", store, "--ca-file", ca, "--metrics-file", file)
	verify.Wait(process.Patience)
	left, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, page := range []string{metrics(admins[0]), metrics(admins[1]), metrics(admins[2]), string(left)} {
		checkMetrics(t, page, metricsOf(t, exporters[i].dirs))
	}
	checkComplete(t, metrics(admins[0])+metrics(startShielded(t, start, filepath.Join(dev, "keysets"), metrics)), metricsOf(t, exporters[0].dirs))
	for i, p := range []*process.Process{server, mirror, watch} {
		p.Stop(process.Patience)
		checkLog(t, p.Output.Lines(), messagesOf(t, loggers[i].dirs))
	}
}

// startShielded starts keypostd with what the development mode has not: certificates by ACME, of a CA that does not answer, and a
// shield. It returns the address of its metrics.
func startShielded(t *testing.T, start func(program string, args ...string) *process.Process, keySets string, metrics func(at string) string) (admin string) {
	t.Helper()
	dir := t.TempDir()
	admin, secret, config := process.FreeAddress(t), filepath.Join(dir, "secret"), filepath.Join(dir, "keypostd.yaml")
	for file, text := range map[string]string{secret: strings.Repeat("0", 32), config: fmt.Sprintf(`dir: %q
issuerURLs: ["https://oidc.example.com/{name}"]
listen:
  address: "127.0.0.1:0"
  drainDelay: 0s
  tls: {mode: acme, acme: {acceptTerms: true, directory: "https://127.0.0.1:1/dir", cache: %q}}
  shield: {header: X-Origin-Secret, secretFiles: [%q], clientCAFile: %q}
admin: {address: %q}
`, keySets, filepath.Join(dir, "cache"), secret, filepath.Join(filepath.Dir(keySets), "ca.pem"), admin)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := start("keypostd", "--config", config)
	p.Await(t, "an order that fails", func() error {
		if !strings.Contains(metrics(admin), "\nkeypost_tls_order_failing{certificate=\"oidc.example.com\"} 1\n") {
			return fmt.Errorf("there was none: %s", p.Output)
		}
		return nil
	})
	checkMetrics(t, metrics(admin), metricsOf(t, exporters[0].dirs))
	return admin
}

// checkComplete fails the test when something documented is on none of the pages.
func checkComplete(t *testing.T, pages string, documented []metric) {
	t.Helper()
	for _, m := range documented {
		if !regexp.MustCompile(`(?m)^` + m.name + `[{ ]`).MatchString(pages) {
			t.Errorf("%s is documented, and not exported", m.name)
		}
	}
}

var sample = regexp.MustCompile(`(?m)^(keypost_\w+)(?:\{(.*)\})? `)

// checkMetrics compares a page of metrics with what the source was read to say.
func checkMetrics(t *testing.T, page string, documented []metric) {
	t.Helper()
	seen := map[string]bool{}
	for _, m := range sample.FindAllStringSubmatch(page, -1) {
		i := slices.IndexFunc(documented, func(d metric) bool { return d.name == m[1] })
		if seen[m[1]] = true; i < 0 {
			t.Errorf("%s is exported, and not documented", m[1])
			continue
		}
		d := documented[i]
		var labels []string
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			labels = append(labels, l[1])
		}
		if want := slices.Sorted(slices.Values(d.labels)); !slices.Equal(labels, want) {
			t.Errorf("%s has the labels %q, and %q are documented", d.name, labels, want)
		}
		for _, line := range []string{"# TYPE " + d.name + " " + d.kind + "\n", "# HELP " + d.name + " " + d.help + "\n"} {
			if !strings.Contains(page, line) {
				t.Errorf("the metrics have no line %q", line)
			}
		}
	}
	if len(seen) < 3 {
		t.Errorf("only %d metrics are exported:\n%s", len(seen), page)
	}
}

// checkLog compares lines of a log with what the source was read to say.
func checkLog(t *testing.T, lines []map[string]any, documented []message) {
	t.Helper()
	if len(lines) < 3 {
		t.Errorf("only %d lines were logged", len(lines))
	}
	for _, l := range lines {
		i := slices.IndexFunc(documented, func(m message) bool {
			begin, more := strings.CutSuffix(m.text, "…")
			return l["msg"] == m.text || more && strings.HasPrefix(fmt.Sprint(l["msg"]), begin)
		})
		if i < 0 {
			t.Errorf("%q is logged, and not documented", l["msg"])
			continue
		}
		for field := range l {
			if !slices.Contains([]string{"level", "ts", "msg", "logger"}, field) && !slices.Contains(documented[i].fields, field) {
				t.Errorf("%q is logged with the field %q, which is not documented", l["msg"], field)
			}
		}
	}
}
