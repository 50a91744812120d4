// Package contract holds the promises of keypostd against the program itself: what it answers to any request
// (testdata/http, readable by whoever operates one), and that whatever happens to its directory, its certificates or
// its configuration, a served document stays served and the reason is told.
package contract

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// keypostd is the program under test, built once with the race detector.
var keypostd string

func TestMain(m *testing.M) {
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		code = 1
	}
	os.Exit(code)
}

func build(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "contract")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()     // a temporary directory
	if err := os.Chmod(dir, 0o755); err != nil { // one test runs the program as another user
		return 0, err
	}
	keypostd = filepath.Join(dir, "keypostd")
	out, err := exec.Command("go", "build", "-race", "-o", keypostd, "github.com/keypost/keypost/cmd/keypostd").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("build keypostd: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// patience is how long anything may take on a busy machine before a test calls it broken.
const patience = 60 * time.Second

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
	newAuthority(t).issue(t, s, "oidc.example.com", "*.oidc.example.com", "d111.example.net", "shared.example.com", "origin.example.net")
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
	settings
	cmd           *exec.Cmd
	public, admin string // addresses
	log           *logBuffer
	done          chan struct{} // closed when it has ended
}

// start runs keypostd until the end of the test and returns once both listeners are up.
func start(t *testing.T, s settings) *server {
	t.Helper()
	s.write(t)
	return startWith(t, s, "--config", s.config)
}

func startWith(t *testing.T, s settings, args ...string) *server {
	t.Helper()
	v := &server{settings: s, cmd: exec.Command(keypostd, args...), log: &logBuffer{}, done: make(chan struct{})}
	v.cmd.Stdout, v.cmd.Stderr = v.log, v.log
	v.cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // it sleeps a second otherwise
	if s.uid != 0 {
		v.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.uid, Gid: s.uid}}
	}
	must(t, v.cmd.Start())
	go func() {
		_ = v.cmd.Wait() // the exit code says it
		close(v.done)
	}()
	t.Cleanup(func() {
		v.stop(t)
		if text := v.log.String(); t.Failed() {
			t.Logf("keypostd said:\n%s", text)
		} else if strings.Contains(text, "DATA RACE") {
			t.Errorf("a data race in keypostd:\n%s", text)
		}
	})
	v.await(t, "both listeners", func() error {
		v.public, v.admin = v.address("serving"), v.address("admin listener is up")
		if v.public == "" || v.admin == "" {
			return fmt.Errorf("not yet: %s", v.log)
		}
		return nil
	})
	return v
}

// ready starts keypostd and waits until it says that it is ready.
func ready(t *testing.T, s settings) *server {
	t.Helper()
	v := start(t, s)
	v.await(t, "ready", func() error {
		if status, body := v.ask(t, "/readyz"); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	return v
}

// stop asks keypostd to end and returns its exit code.
func (v *server) stop(t *testing.T) int {
	t.Helper()
	_ = v.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	return v.ended(t)
}

// ended waits for the end and returns the exit code, which is -1 after a signal.
func (v *server) ended(t *testing.T) int {
	t.Helper()
	select {
	case <-v.done:
	case <-time.After(patience):
		t.Error("keypostd did not end")
		_ = v.cmd.Process.Kill()
		<-v.done
	}
	return v.cmd.ProcessState.ExitCode()
}

// await polls until check is content.
func (v *server) await(t *testing.T, what string, check func() error) {
	t.Helper()
	await(t, what, func() error {
		select {
		case <-v.done:
			t.Fatalf("%s: keypostd has ended:\n%s", what, v.log)
		default:
		}
		return check()
	})
}

func await(t *testing.T, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func (v *server) address(message string) string {
	for _, l := range v.log.lines() {
		if l["msg"] == message {
			return fmt.Sprint(l["address"])
		}
	}
	return ""
}

// ask asks the admin listener.
func (v *server) ask(t *testing.T, path string) (status int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + v.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(data)
}

// client returns a client that finds every host at the public listener.
func (v *server) client(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: v.roots(t)},
		ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", v.public)
		},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
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

// logBuffer is what a program says, while it says it.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// lines returns the JSON lines. Lines for people (--dev) end in a JSON object with the fields.
func (b *logBuffer) lines() []map[string]any {
	var all []map[string]any
	for line := range strings.Lines(b.String()) {
		l := map[string]any{}
		if cells := strings.Split(line, "\t"); len(cells) > 3 {
			l["msg"], line = cells[len(cells)-2], cells[len(cells)-1]
		}
		if json.Unmarshal([]byte(line), &l) == nil {
			all = append(all, l)
		}
	}
	return all
}

// authority is a CA that the clients of one test trust.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "contract test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return authority{cert, key}
}

// issue writes tls.crt and tls.key for hosts beside the configuration, and ca.pem for clients.
func (a authority) issue(t *testing.T, s settings, hosts ...string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: hosts, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	block := func(name, label string, der []byte) {
		must(t, os.WriteFile(s.beside(name), pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}), 0o644))
	}
	block("tls.crt", "CERTIFICATE", der)
	block("tls.key", "PRIVATE KEY", keyDER)
	block("ca.pem", "CERTIFICATE", a.cert.Raw)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
