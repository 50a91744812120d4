package contract

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keypost/keypost/test/authority"
)

// fillCache puts the certificate of the estate into its certificate cache, for some hosts, and returns where it is.
func (s settings) fillCache(t *testing.T, hosts ...string) string {
	t.Helper()
	dir := filepath.Join(s.beside("cache"), url.PathEscape("127.0.0.1:1/dir"))
	must(t, os.MkdirAll(dir, 0o700))
	key, err := os.ReadFile(s.beside("tls.key"))
	must(t, err)
	chain, err := os.ReadFile(s.beside("tls.crt"))
	must(t, err)
	for _, host := range hosts {
		must(t, os.WriteFile(filepath.Join(dir, host), append(key, chain...), 0o600))
	}
	return dir
}

// readOnly mounts a directory over itself so that nobody can write to it, for this goroutine and the processes that it starts.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	if err := ownMounts(); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
}

// A certificate cache that cannot be written takes no certificate away that can be read: it is served. Without one there is nothing to
// start for.
func TestCertificateCacheCannotBeWritten(t *testing.T) {
	t.Parallel()
	for name, close := range map[string]func(t *testing.T, s *settings, dir string){
		"mounted read-only": func(t *testing.T, s *settings, _ string) { readOnly(t, s.beside("cache")) },
		"another user's mode": func(t *testing.T, s *settings, dir string) {
			if os.Getuid() == 0 { // who may do everything
				s.uid = 65534
				must(t, filepath.WalkDir(s.beside("cache"), func(p string, _ os.DirEntry, err error) error {
					must(t, err)
					return os.Chown(p, int(s.uid), int(s.uid))
				}))
			}
			must(t, os.Chmod(dir, 0o500))
			t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEstate(t)
			e.withACME(t, "")
			dir := e.fillCache(t, "oidc.example.com", "shared.example.com")
			close(t, &e.settings, dir)
			v := startWith(t, e.settings, "--config", e.config)
			v.Await(t, "ready", v.isReady)
			if status, body := get(t, v.client(t), urlA+"/keys.json"); status != 200 {
				t.Errorf("%d %s", status, body)
			}
			if code := v.stop(t); code != 0 {
				t.Errorf("exit %d after SIGTERM", code)
			}
		})
	}
	t.Run("without a certificate", func(t *testing.T) {
		t.Parallel()
		e := newEstate(t)
		e.withACME(t, "")
		e.fillCache(t)
		readOnly(t, e.beside("cache"))
		code, _, stderr := run(t, "--config", e.config)
		if code != 1 || !strings.Contains(stderr, "holds no certificate to serve meanwhile: let the user that runs keypostd write it") ||
			!strings.Contains(stderr, "read-only file system") || strings.Count(stderr, "keypostd: ") != 1 {
			t.Errorf("exit %d\n%s", code, stderr)
		}
	})
}

// A replica is ready before it has a certificate: the CA's challenges come through the balancer that asks for readiness. What tells of the
// certificate is its metric.
func TestReadyBeforeTheFirstCertificate(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	e.withACME(t, "")
	v := startWith(t, e.settings, "--config", e.config)
	v.Await(t, "ready", v.isReady)
	v.awaitMetric(t, `keypost_tls_certificate_not_after_timestamp_seconds{certificate="oidc.example.com"}`, "0")
}

// A shield's secret that every user of the machine may read is told of in the log and by --check; serving goes on.
func TestExposedSecretOfTheShield(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	secret := e.beside("secret")
	must(t, os.WriteFile(secret, []byte("0123456789abcdef"), 0o644))
	must(t, os.Chmod(secret, 0o644))
	e.withTLS(t, fmt.Sprintf("  tls: {files: [{cert: %q, key: %q}]}\n  shield: {header: X-Origin-Secret, secretFiles: [%q]}\n  http2: true", e.beside("tls.crt"), e.beside("tls.key"), secret))
	v := startWith(t, e.settings, "--config", e.config)
	if n := v.logged("a file is not as it should be", secret, "holds a secret of listen.shield"); n != 1 {
		t.Errorf("%d lines about it:\n%s", n, v.Output)
	}
	told := fmt.Sprintf("# warning: %q holds a secret of listen.shield, and every user of this machine may read it", secret)
	if code, stdout, stderr := run(t, "--config", e.config, "--check"); code != 0 || !strings.Contains(stdout, told) || !strings.Contains(stdout, "# warning: listen.http2 has no effect") {
		t.Errorf("--check: exit %d\n%s%s", code, stdout, stderr)
	}
	must(t, os.Chmod(secret, 0o640))
	if _, stdout, _ := run(t, "--config", e.config, "--check"); strings.Contains(stdout, "every user") {
		t.Errorf("--check of one that is not:\n%s", stdout)
	}
}

// What a certificate cache holds and a start would only find out later, --check tells: certificates that have expired.
func TestCheckOfTheCertificateCache(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	e.withACME(t, "")
	dir := e.fillCache(t, "oidc.example.com", "shared.example.com")
	check := func(want ...string) {
		t.Helper()
		code, stdout, stderr := run(t, "--config", e.config, "--check")
		if code != 0 || strings.Count(stdout, "# warning: ") != len(want) {
			t.Errorf("exit %d, want 0 and %d warnings\n%s%s", code, len(want), stdout, stderr)
		}
		for _, w := range want {
			if !strings.Contains(stdout, "# warning: "+w) {
				t.Errorf("no warning %q:\n%s", w, stdout)
			}
		}
	}
	check()
	until := time.Now().Add(-time.Hour)
	leaf := authority.Certify(t, nil, &x509.Certificate{DNSNames: []string{"shared.example.com"}, NotBefore: until.Add(-time.Hour), NotAfter: until})
	must(t, os.WriteFile(filepath.Join(dir, "shared.example.com"), append(leaf.KeyPEM(t), authority.ChainPEM(leaf)...), 0o600))
	expired := "the certificate in " + filepath.Join(dir, "shared.example.com") + " has expired (at " + until.UTC().Format(time.RFC3339) + ")"
	check(expired)
}

// rootUntil is a CA's own certificate, in PEM.
func rootUntil(t *testing.T, name string, until time.Time) []byte {
	t.Helper()
	ca := authority.CA(name)
	ca.NotBefore, ca.NotAfter = until.Add(-time.Hour), until
	return authority.ChainPEM(authority.Certify(t, nil, ca))
}

// A CA of the CDN's certificates that has expired keeps the CDN out, and only the CDN is told: the log and --check tell of it.
func TestExpiredCAOfTheShield(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	old, next := rootUntil(t, "old", time.Now().Add(-time.Hour)), rootUntil(t, "next", time.Now().Add(time.Hour))
	file := e.beside("cas.pem")
	must(t, os.WriteFile(file, old, 0o644))
	e.withTLS(t, fmt.Sprintf("  tls: {files: [{cert: %q, key: %q}]}\n  shield: {clientCAFile: %q}", e.beside("tls.crt"), e.beside("tls.key"), file))
	if code, _, stderr := run(t, "--config", e.config, "--check"); code != 1 || !strings.Contains(stderr, "every CA in "+file+" (listen.shield.clientCAFile) has expired") || !strings.Contains(stderr, "CN=old") {
		t.Errorf("--check: exit %d\n%s", code, stderr)
	}
	v := startWith(t, e.settings, "--config", e.config)
	if n := v.logged("a file is not as it should be", "every CA in "+file, "nobody gets in"); n != 1 {
		t.Errorf("%d lines about it:\n%s", n, v.Output)
	}
	must(t, os.WriteFile(file, append(old, next...), 0o644))
	if code, stdout, stderr := run(t, "--config", e.config, "--check"); code != 0 || !strings.Contains(stdout, "# warning: a CA in "+file+" (listen.shield.clientCAFile) has expired: ") || strings.Contains(stdout, "CN=next") {
		t.Errorf("--check with another one: exit %d\n%s%s", code, stdout, stderr)
	}
	must(t, os.WriteFile(file, next, 0o644))
	if code, stdout, stderr := run(t, "--config", e.config, "--check"); code != 0 || strings.Contains(stdout, "expired") {
		t.Errorf("--check without it: exit %d\n%s%s", code, stdout, stderr)
	}
}
