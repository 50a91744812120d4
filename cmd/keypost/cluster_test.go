package main

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/internal/signingkey"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/test/fakecloud"
)

// checked makes a test what fixtures take.
type checked struct{ testing.TB }

func (c checked) Check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// playedCloud is a cloud that this process plays.
type playedCloud interface {
	recorder
	OnCall(f func(n int, c fakecloud.Call))
}

// clusterFixture is all that create-all needs: a cloud, a store that is served, a key pair, CredentialsRequests.
type clusterFixture struct {
	cloud   playedCloud
	holds   func() string // what the cloud holds; what differs in every run is left out
	creates []string      // CLOUD create-all, and the flags that only this cloud has

	dir, address, requests string
	env                    []string
}

// newClusterFixture makes one whose cloud is still to be filled in: cloud, holds, creates, and what env needs for it.
func newClusterFixture(t *testing.T, requests string) *clusterFixture {
	t.Helper()
	dir, c := t.TempDir(), checked{t}
	server, admin, ca := startIssuer(t, c, filepath.Join(dir, "store"))
	t.Cleanup(server.Close)
	t.Cleanup(admin.Close)
	c.Check(os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600))
	requests, err := filepath.Abs(requests)
	c.Check(err)
	f := &clusterFixture{dir: dir, address: address(server), requests: requests}
	f.env = append(os.Environ(), "KEYPOST_STORE=file://"+filepath.Join(dir, "store"), "GORACE=atexit_sleep_ms=0",
		lookedForAt+"="+f.address, "SSL_CERT_FILE="+filepath.Join(dir, "ca.pem"))
	f.writeKeys(c)
	return f
}

func address(s *httptest.Server) string { return net.JoinHostPort("127.0.0.1", portOf(s)) }

// reach adds what commands need to reach a cloud, and trusts its CA beside that of the issuer.
func (f *clusterFixture) reach(t *testing.T, env []string) {
	t.Helper()
	f.env = append(f.env, env...)
	for _, kv := range env {
		if ca, is := strings.CutPrefix(kv, "SSL_CERT_FILE="); is {
			f.env = append(f.env, "SSL_CERT_FILE="+trustAll(checked{t}, f.dir, filepath.Join(f.dir, "ca.pem"), ca))
		}
	}
}

// writeKeys makes a key pair that is quicker to make than create-all's own.
func (f *clusterFixture) writeKeys(c checked) {
	k, err := signingkey.Generate(signingkey.RSA2048)
	c.Check(err)
	c.Check(os.Mkdir(f.out(), 0o700))
	c.Check(k.Write(signingkey.Paths{Private: filepath.Join(f.out(), ccoctl.PrivateKeyName), Public: filepath.Join(f.out(), ccoctl.PublicKeyName)}))
}

func (f *clusterFixture) out() string { return filepath.Join(f.dir, "out") }

// command is create-all with more arguments, as a process of its own.
func (f *clusterFixture) command(ctx context.Context, more ...string) *exec.Cmd {
	args := append(f.creates[:len(f.creates):len(f.creates)], "--issuer-url", "https://oidc.example.com/prod-a",
		"--output-dir", f.out(), "--credentials-requests-dir", f.requests,
		"--dev")
	cmd := exec.CommandContext(ctx, "keypost", append(args, more...)...)
	cmd.Env = f.env
	return cmd
}

func (f *clusterFixture) createAll(t *testing.T, more ...string) string {
	t.Helper()
	out, err := f.command(t.Context(), more...).CombinedOutput()
	if err != nil {
		t.Fatalf("create-all: %v\n%s", err, out)
	}
	return string(out)
}
