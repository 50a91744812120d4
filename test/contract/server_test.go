// Package contract holds the promises of keypostd against the program itself: what it answers to any request
// (testdata/http, readable by anyone who operates one), and that whatever happens to its directory, its certificates or
// its configuration, a served document stays served and the reason is told.
package contract

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/process"
)

// keypostd is the program under test, built once with the race detector.
var keypostd string

func TestMain(m *testing.M) {
	os.Exit(process.Main(m, func(dir string) error {
		keypostd = filepath.Join(dir, "keypostd")
		return process.Build("../..", dir, race, "./cmd/keypostd")
	}))
}

// settings is a configuration in the shape of production, but for the ports.
type settings struct {
	dir, config string // where the key sets and everything else are
	extra       string // more lines of configuration, each in place of the one with its key
	drain       string // drainDelay; default 0s
	uid         uint32 // runs as this user when not 0
}

// newSettings makes a directory for key sets, one for the rest, and a certificate.
func newSettings(t *testing.T) settings {
	t.Helper()
	root := t.TempDir()
	for _, d := range []string{filepath.Dir(root), root, filepath.Join(root, "keysets")} { // see uid
		must(t, os.MkdirAll(d, 0o755))
		must(t, os.Chmod(d, 0o755))
	}
	s := settings{dir: filepath.Join(root, "keysets"), config: filepath.Join(root, "keypostd.yaml")}
	authority.New(t).Issue(t, s.beside(""), "oidc.example.com", "*.oidc.example.com", "d111.example.net", "shared.example.com", "origin.example.net")
	return s
}

func (s settings) beside(name string) string { return filepath.Join(filepath.Dir(s.config), name) }

const configuration = `dir: %s
issuerURLs:
- https://oidc.example.com/{name}
- https://{name}.oidc.example.com
- prod-b=https://d111.example.net/b
- prod-a=https://shared.example.com
- prod-b=https://shared.example.com
- prod-c=https://shared.example.com
listen:
  address: "127.0.0.1:0"
  drainDelay: %s
  tls: {mode: files, files: [{cert: %s, key: %s}]}
admin: {address: "127.0.0.1:0"}
hostAliases: {origin.example.net: oidc.example.com}
poll: 1s
`

func (s settings) write(t *testing.T) {
	t.Helper()
	text := fmt.Sprintf(configuration, s.dir, cmp.Or(s.drain, "0s"), s.beside("tls.crt"), s.beside("tls.key"))
	for line := range strings.Lines(s.extra) {
		key, _, _ := strings.Cut(line, ":")
		for old := range strings.Lines(text) {
			if strings.HasPrefix(old, key+":") {
				text, line = strings.Replace(text, old, line, 1), ""
			}
		}
		text += line
	}
	must(t, os.WriteFile(s.config, []byte(text), 0o644))
}

// server is a keypostd that runs.
type server struct {
	*process.Process
	settings
	public, admin string // addresses
}

// start runs keypostd until the end of the test and returns once both listeners are up.
func start(t *testing.T, s settings) *server {
	t.Helper()
	s.write(t)
	return startWith(t, s, "--config", s.config)
}

func startWith(t *testing.T, s settings, args ...string) *server {
	t.Helper()
	cmd := exec.Command(keypostd, args...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // it sleeps a second otherwise
	if s.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.uid, Gid: s.uid}}
	}
	v := &server{Process: process.Start(t, cmd), settings: s}
	t.Cleanup(func() {
		v.stop(t)
		if text := v.Output.String(); strings.Contains(text, "DATA RACE") {
			t.Errorf("a data race in keypostd:\n%s", text)
		}
	})
	v.public, v.admin = v.Listens(t)
	return v
}

// ready starts keypostd and waits until it says that it is ready.
func ready(t *testing.T, s settings) *server {
	t.Helper()
	v := start(t, s)
	v.Await(t, "ready", v.isReady)
	return v
}

// isReady is for Await.
func (v *server) isReady() error {
	return process.Answers(http.DefaultClient, "http://"+v.admin+"/readyz", "")
}

// stop asks keypostd to end and returns its exit code.
func (v *server) stop(t *testing.T) int {
	t.Helper()
	code, inTime := v.Stop(process.Patience)
	if !inTime {
		t.Error("keypostd did not end after SIGTERM")
	}
	return code
}

// ended waits for the end and returns the exit code, which is -1 after a signal.
func (v *server) ended(t *testing.T) int {
	t.Helper()
	code, inTime := v.Wait(process.Patience)
	if !inTime {
		t.Error("keypostd did not end")
	}
	return code
}

// ask asks the admin listener.
func (v *server) ask(t *testing.T, path string) (status int, body string) {
	t.Helper()
	return get(t, http.DefaultClient, "http://"+v.admin+path)
}

// client returns a client that finds every host at the public listener.
func (v *server) client(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: v.roots(t)},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", v.public)
		},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: process.Patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (v *server) roots(t *testing.T) *x509.CertPool {
	t.Helper()
	data, err := os.ReadFile(v.beside("ca.pem"))
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data)
	return pool
}

// get returns what a URL is answered with.
func get(t *testing.T, c *http.Client, url string) (status int, body string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(data)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
