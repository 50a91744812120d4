package contract

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/process"
)

// run runs keypostd to its end, which must come by itself.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, keypostd, args...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		t.Fatalf("keypostd %q: %v\n%s", args, err, &errs)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// Every mistake ends the start with exit 1 and sentences that say what to do, and nothing else is written.
func TestStartRefuses(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { busy.Close() }) // after the parallel subtests
	for name, tc := range map[string]struct {
		spoil func(*testing.T, *settings)
		want  string
	}{
		"no such directory":    {func(t *testing.T, s *settings) { must(t, os.Remove(s.dir)) }, "the directory does not exist; make it, or mount what holds it"},
		"a file for directory": {func(_ *testing.T, s *settings) { s.extra = "dir: " + s.config + "\n" }, "it is not a directory"},
		"unknown key":          {func(_ *testing.T, s *settings) { s.extra = "directory: x\n" }, `unknown field "directory"`},
		"bad pattern":          {func(_ *testing.T, s *settings) { s.extra = "policy: {maxAge: 1s}\n" }, "maxAge is 1s"},
		"no certificate":       {func(t *testing.T, s *settings) { must(t, os.Remove(s.beside("tls.crt"))) }, "no such file"},
		"not a certificate":    {func(t *testing.T, s *settings) { must(t, os.WriteFile(s.beside("tls.crt"), []byte("x"), 0o600)) }, "give the PEM chain, leaf first"},
		"another key": {func(t *testing.T, s *settings) {
			was, err := os.ReadFile(s.beside("tls.crt"))
			must(t, err)
			authority.New(t).Issue(t, s.beside(""), "oidc.example.com")
			must(t, os.WriteFile(s.beside("tls.crt"), was, 0o600))
		}, "private key does not match public key"},
		"a host that the certificate does not have":   {func(t *testing.T, s *settings) { authority.New(t).Issue(t, s.beside(""), "oidc.example.com") }, "add one to listen.tls.files"},
		"an alias that the certificate does not have": {func(_ *testing.T, s *settings) { s.extra = "hostAliases: {cdn.example.org: oidc.example.com}\n" }, `no certificate covers host "cdn.example.org"`},
		"the admin address is taken":                  {func(_ *testing.T, s *settings) { s.extra = fmt.Sprintf("admin: {address: %q}\n", busy.Addr()) }, "address already in use"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSettings(t)
			tc.spoil(t, &s)
			s.write(t)
			code, stdout, stderr := run(t, "--config", s.config)
			if code != 1 || !strings.Contains(stderr, "keypostd: ") || !strings.Contains(stderr, tc.want) || stdout != "" {
				t.Errorf("exit %d, want 1 and %q:\n%s%s", code, tc.want, stdout, stderr)
			}
			if strings.Contains(stderr, `"serving"`) || strings.Contains(stderr, "goroutine") {
				t.Errorf("it began to serve, or fell:\n%s", stderr)
			}
			lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(stderr), "\n"), func(l string) bool { return strings.Contains(l, `"level":"info"`) })
			if len(lines) > 2 {
				t.Errorf("%d lines for one mistake:\n%s", len(lines), stderr)
			}
		})
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "give either --config FILE or --dev DIR"},
		{[]string{"--config", "a", "--dev", "b"}, 2, "give either"},
		{[]string{"--config", "a", "b"}, 2, `unexpected argument "b"`},
		{[]string{"--config", "a", "--address", "127.0.0.1:1"}, 2, "go with --dev"},
		{[]string{"--no-such"}, 2, "flag provided but not defined: -no-such"},
		{[]string{"--config", "/nonexistent/keypostd.yaml"}, 1, "read configuration"},
		{[]string{"--dev", t.TempDir(), "--address", "0.0.0.0:8443"}, 1, "--dev serves loopback only"},
		{[]string{"--help"}, 0, ""},
		{[]string{"--version"}, 0, ""},
	} {
		code, stdout, stderr := run(t, tc.args...)
		if code != tc.code || !strings.Contains(stderr, tc.want) || strings.Count(stderr, "\n") > 1 || (code == 0) != (stdout != "") {
			t.Errorf("keypostd %q: exit %d, want %d:\n%s%s", tc.args, code, tc.code, stdout, stderr)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	e.settings.write(t)
	code, stdout, stderr := run(t, "--config", e.config, "--check")
	for _, line := range []string{"dir: " + e.dir, "staleIfError: 24h", "drainTimeout: 20s", "maxConnections: ", "origin.example.net: oidc.example.com",
		"# 3 issuer URLs would be served, of 2 of 2 key sets in " + e.dir} {
		if code != 0 || stderr != "" || !strings.Contains(stdout, line) {
			t.Errorf("exit %d, no line %q:\n%s%s", code, line, stdout, stderr)
		}
	}
	if want := fmt.Sprintf("# warning: %q holds only the server's certificate", e.beside("tls.crt")); !strings.Contains(stdout, want) {
		t.Errorf("no line %q:\n%s", want, stdout)
	}
	must(t, os.WriteFile(e.config, []byte(stdout), 0o600))
	if code, again, stderr := run(t, "--config", e.config, "--check"); code != 0 || again != stdout {
		t.Errorf("what is printed is not a configuration: exit %d\n%s%s", code, again, stderr)
	}
	authority.New(t).Issue(t, e.beside(""), "elsewhere.example.com")
	if code, stdout, stderr := run(t, "--config", e.config, "--check"); code != 1 || stdout != "" || !strings.Contains(stderr, "load TLS certificates") {
		t.Errorf("a certificate for other hosts: exit %d\n%s%s", code, stdout, stderr)
	}
}

// What a fresh keypostd would not serve, --check names, one line each and nothing else.
func TestCheckReadsTheDirectory(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(*estate)
		want    []string // lines on stderr
		served  string
	}{
		"broken":     {func(e *estate) { e.write("prod-a", []byte("junk")) }, []string{`key set "prod-a" would not be served (broken): `}, "1 issuer URL would be served, of 1 of 2"},
		"half":       {func(e *estate) { must(e.t, os.Truncate(e.path("prod-a"), 100)) }, []string{`"prod-a" would not be served (broken)`}, "1 issuer URL "},
		"a FIFO":     {func(e *estate) { must(e.t, syscall.Mkfifo(e.path("prod-x"), 0o644)) }, []string{`"prod-x" would not be served (broken): `}, "3 issuer URLs would be served, of 2 of 3"},
		"the kernel": {func(e *estate) { must(e.t, os.Symlink("/proc/uptime", e.path("prod-x"))) }, []string{`"prod-x" would not be served (broken): `}, "3 issuer URLs"},
		"named .yml": {func(e *estate) { must(e.t, os.Rename(e.path("prod-b"), e.beside("keysets/prod-b.yml"))) }, []string{`"prod-b.yml" would not be served (broken): `}, "2 issuer URLs"},
		"other URL":  {func(e *estate) { e.create("prod-d", []string{urlA}) }, []string{`"prod-d" would not be served (url_not_permitted): its issuer URL ` + urlA}, "3 issuer URLs would be served, of 2 of 3"},
		"held as copies": {func(e *estate) {
			s, err := keystore.New(keystore.Change{At: storetest.Time(0), By: "ops"}, keystore.Spec{Name: "prod-d", Issuers: storetest.URLs(e.t, "https://oidc.internal/prod-d"), Keys: []keystore.VerificationKey{storetest.Key(e.t)},
				Policy: keystore.Policy{Reach: keystore.ReachCopies, RelyingParties: []string{"gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"}}})
			must(e.t, err)
			must(e.t, keystore.Create(e.t.Context(), keystore.NewStore(e.store()), s))
		}, nil, "# 1 key set would not be, as nobody is to read the documents"},
		"development": {func(e *estate) { e.edit(func(spec map[string]any) { spec["dev"] = true }) }, []string{`"prod-a" would not be served (dev): `}, "1 issuer URL "},
		"conflict": {func(e *estate) { e.create("prod-c", []string{urlShared}) }, []string{
			`"prod-a" would not be served (url_conflict): `, `"prod-c" would not be served (url_conflict): `}, "1 issuer URL would be served, of 1 of 3"},
		"empty": {func(e *estate) { must(e.t, os.Remove(e.path("prod-a"))); must(e.t, os.Remove(e.path("prod-b"))) },
			[]string{"holds no key set, so that keypostd would not be ready"}, "0 issuer URLs would be served, of 0 of 0"},
		"empty as it may be": {func(e *estate) {
			must(e.t, os.Remove(e.path("prod-a")))
			must(e.t, os.Remove(e.path("prod-b")))
			e.extra = "allowEmpty: true\n"
		}, nil, "0 issuer URLs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEstate(t)
			tc.happens(e)
			e.settings.write(t)
			code, stdout, stderr := run(t, "--config", e.config, "--check")
			lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
			if stderr == "" {
				lines = nil
			}
			if wantCode := min(len(tc.want), 1); code != wantCode || len(lines) != len(tc.want) || !strings.Contains(stdout, tc.served) {
				t.Fatalf("exit %d, want %d, %d lines on stderr and %q:\n%s%s", code, wantCode, len(tc.want), tc.served, stdout, stderr)
			}
			for i, want := range tc.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("no %q in:\n%s", want, stderr)
				}
			}
		})
	}
}

// An empty directory is not a reason to end, and no place to send clients to, until the configuration says that it is.
func TestEmptyDirectory(t *testing.T) {
	t.Parallel()
	for _, allowed := range []bool{false, true} {
		s := newSettings(t)
		s.extra = fmt.Sprintf("allowEmpty: %v\n", allowed)
		v := start(t, s)
		v.Await(t, "a complete listing", func() error {
			if n := v.metric(t, "keypost_key_sets_last_complete_read_timestamp_seconds"); n == "0" {
				return errors.New("none yet")
			}
			return nil
		})
		status, body := v.ask(t, "/readyz")
		if ready := status == http.StatusOK; ready != allowed || !allowed && !strings.Contains(body, "allowEmpty") {
			t.Errorf("allowed: %v; /readyz answers %d %s", allowed, status, body)
		}
		if status, _ := get(t, v.client(t), urlA+"/keys.json"); status != http.StatusServiceUnavailable {
			t.Errorf("status %d for an issuer that may be missing", status)
		}
		e := &estate{settings: v.settings, t: t}
		e.create("prod-a", []string{urlA})
		v.Await(t, "ready", v.isReady)
	}
}

// A new pair that is bad keeps the old one in use, for every new connection; a good one takes its place.
func TestCertificatesAreReplacedWhileServing(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	v := ready(t, e.settings)
	p := v.rely(t, urlA, []keystore.VerificationKey{e.stays}, nil)
	const failing = "keypost_tls_reload_failing"
	must(t, os.WriteFile(v.beside("tls.crt"), []byte("-----BEGIN CERTIFICATE-----\n"), 0o600))
	v.awaitMetric(t, failing, "1")
	p.more(30)
	p.end()
	if n := v.logged("TLS certificate not taken"); n != 1 {
		t.Errorf("%d lines tell it, want one", n)
	}

	authority.New(t).Issue(t, v.beside(""), "oidc.example.com", "*.oidc.example.com", "d111.example.net", "shared.example.com", "origin.example.net")
	v.Await(t, "the new certificate", func() error {
		conn, err := tls.Dial("tcp", v.public, &tls.Config{RootCAs: v.roots(t), ServerName: "oidc.example.com"})
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if n := v.metric(t, failing); n != "0" {
		t.Errorf("%s is %s", failing, n)
	}
}

// SIGTERM: unready at once, serving for drainDelay, and exit 0.
func TestDrain(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	e.drain = "2s"
	v := ready(t, e.settings)
	c := v.client(t)
	began := time.Now()
	v.Signal(t, syscall.SIGTERM)
	v.Await(t, "unready", func() error {
		if status, body := v.ask(t, "/readyz"); status != http.StatusServiceUnavailable || body != "draining\n" {
			return fmt.Errorf("%d %q", status, body)
		}
		return nil
	})
	if status, _ := v.ask(t, "/livez"); status != http.StatusOK {
		t.Errorf("livez answers %d during the drain", status)
	}
	if status, _ := get(t, c, urlA+"/keys.json"); status != http.StatusOK && time.Since(began) < 2*time.Second {
		t.Errorf("status %d during the drain", status)
	}
	if code := v.ended(t); code != 0 {
		t.Errorf("exit %d after SIGTERM", code)
	}
}

// Anyone who asks a second time wants no drain, whatever it is that hangs.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(s) { // as below nohup, which children inherit
			continue
		}
		e := newEstate(t)
		e.drain = "10m"
		v := ready(t, e.settings)
		v.Signal(t, s)
		v.Await(t, "the drain", func() error {
			if v.logged("draining") == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		v.Signal(t, s)
		if code := v.ended(t); code == 0 {
			t.Errorf("exit 0 after a second %v: that is not a clean end", s)
		}
	}
}

func (v *server) awaitMetric(t *testing.T, name, want string) {
	t.Helper()
	v.Await(t, name, func() error {
		if n := v.metric(t, name); n != want {
			return fmt.Errorf("%s is %s, not %s", name, n, want)
		}
		return nil
	})
}

// The probe listener has the two probes and nothing else.
func TestProbeListener(t *testing.T) {
	t.Parallel()
	s := newSettings(t)
	s.extra = "admin: {address: \"127.0.0.1:0\", probes: \"127.0.0.1:0\"}\n"
	v := start(t, s)
	v.Await(t, "the probe listener", func() error {
		if v.Output.Address("probe listener is up") == "" {
			return errors.New("not yet")
		}
		return nil
	})
	both := map[string]string{"admin": v.admin, "probes": v.Output.Address("probe listener is up")}
	for _, path := range []string{"/livez", "/metrics", "/issuers"} {
		for name, address := range both {
			resp, err := http.Get("http://" + address + path)
			must(t, err)
			must(t, resp.Body.Close())
			if ok := name == "admin" || path == "/livez"; ok != (resp.StatusCode == http.StatusOK) {
				t.Errorf("%s%s: status %d", name, path, resp.StatusCode)
			}
		}
	}
}
