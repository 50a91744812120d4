package parties

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/party"
)

// program is a server of somebody else's, as a process that ends with the test.
type program struct {
	t    *testing.T
	mu   sync.Mutex
	logs bytes.Buffer
	stop func()
}

func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs.Write(b)
}

func (p *program) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs.String()
}

// startProgram returns once it is ready.
func startProgram(t *testing.T, ready func() bool, name string, args ...string) *program {
	t.Helper()
	p := &program{t: t}
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "HOME="+t.TempDir())
	c.Stdout, c.Stderr = p, p
	check(t, c.Start())
	p.stop = sync.OnceFunc(func() { _ = c.Process.Kill(); _ = c.Wait() })
	t.Cleanup(p.stop)
	for range 600 {
		if ready() {
			return p
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%s does not start: %s", name, p.said())
	return nil
}

// answers reports whether a server answers 200 at a URL.
func answers(client *http.Client, url string) func() bool {
	return func() bool {
		res, err := client.Get(url)
		return err == nil && res.Body.Close() == nil && res.StatusCode == http.StatusOK
	}
}

// freePorts returns ports of 127.0.0.1 that nobody listens on.
func freePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports
}

// named returns the program that a variable names.
func named(t *testing.T, variable string) string {
	t.Helper()
	name := os.Getenv(variable)
	if name == "" {
		t.Skip(variable + " names no program: test/parties/run")
	}
	return name
}

// refusedWith fails the test unless a refusal has the text that keystore/party has for it.
func refusedWith(t *testing.T, said, text string) string {
	t.Helper()
	if !strings.Contains(said, text) {
		t.Errorf("%q, and keystore/party has %q", said, text)
	}
	return said
}

// refusalOf returns the text that keystore/party has for a refusal.
func refusalOf(t *testing.T, name, what string) string {
	t.Helper()
	for _, p := range party.All() {
		for _, f := range p.Refusals {
			if p.Name == name && f.Says == what {
				return f.Quote
			}
		}
	}
	t.Fatalf("keystore/party has no refusal %q of %s", what, name)
	return ""
}
