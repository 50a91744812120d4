package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/signingkey"
	"github.com/keypost/keypost/test/fakeaws"
)

// checked makes a test what fixtures take.
type checked struct{ testing.TB }

func (c checked) Check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// cluster is all that create-all needs: an account, a store that is served, a key pair, CredentialsRequests.
type clusterFixture struct {
	aws      *fakeaws.Server
	dir      string
	env      []string
	address  string
	requests string
}

func newCluster(t *testing.T, o fakeaws.Options) *clusterFixture {
	t.Helper()
	dir := t.TempDir()
	c := checked{t}
	server, admin, ca := startIssuer(c, filepath.Join(dir, "store"))
	t.Cleanup(server.Close)
	t.Cleanup(admin.Close)
	c.Check(os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600))
	requests, err := filepath.Abs("testdata/ccoctl/requests")
	c.Check(err)
	f := &clusterFixture{aws: fakeaws.Start(t, o), dir: dir, address: address(server), requests: requests}
	f.env = append(os.Environ(), f.aws.Env()...)
	f.env = append(f.env, "KEYPOST_STORE=file://"+filepath.Join(dir, "store"), "GORACE=atexit_sleep_ms=0")
	f.writeKeys(c)
	return f
}

func address(s *httptest.Server) string { return net.JoinHostPort("127.0.0.1", portOf(s)) }

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
	args := []string{"aws", "create-all", "--name", "prod-a", "--region", "us-east-1", "--issuer-url", "https://oidc.example.com/prod-a",
		"--output-dir", f.out(), "--credentials-requests-dir", f.requests,
		"--dev", "--max-age", "1s", "--connect", f.address, "--ca-file", filepath.Join(f.dir, "ca.pem")}
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

// killAt runs create-all and kills it after call n took effect, before its reply is sent. It reports whether there was
// such a call.
func (f *clusterFixture) killAt(t *testing.T, n int) bool {
	t.Helper()
	cmd := f.command(t.Context())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var killed atomic.Bool
	started := make(chan struct{})
	f.aws.OnCall(func(i int, _ fakeaws.Call) {
		<-started
		if i >= n && killed.CompareAndSwap(false, true) {
			_ = cmd.Process.Kill()
		}
	})
	defer f.aws.OnCall(nil)
	checked{t}.Check(cmd.Start())
	close(started)
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); killed.Load() && ok && !exit.Exited() {
		return true
	}
	if err != nil {
		t.Fatalf("create-all, to be killed at call %d: %v\n%s", n, err, &out)
	}
	return killed.Load() // it was the last one, and the program had ended all the same
}

// Wherever create-all is killed, the next run completes it: nothing is left over, nothing is there twice.
func TestCreateAllSurvivesAKillAfterEveryCall(t *testing.T) {
	whole := newCluster(t, fakeaws.Options{})
	whole.createAll(t)
	want := describe(whole.aws.State())
	total := len(whole.aws.Calls())
	if total < 6 {
		t.Fatalf("create-all makes only %d calls", total)
	}
	for n := 1; n <= total; n++ {
		t.Run(fmt.Sprintf("call %d of %d", n, total), func(t *testing.T) {
			t.Parallel()
			f := newCluster(t, fakeaws.Options{})
			if !f.killAt(t, n) {
				t.Fatal("create-all was not killed")
			}
			f.createAll(t)
			if got := describe(f.aws.State()); got != want {
				t.Errorf("the account holds\n%s\nand not\n%s", got, want)
			}
			compareFiles(t, filesBelow(t, f.out()), filesBelow(t, whole.out()))
			f.aws.ResetCalls()
			f.createAll(t)
			for _, c := range f.aws.Calls() {
				if c.Write {
					t.Errorf("a third run calls %s", c.Action)
				}
			}
		})
	}
}

// compareFiles leaves out the key pairs, which differ.
func compareFiles(t *testing.T, got, want map[string][]byte) {
	t.Helper()
	if strings.Join(keysOf(got), " ") != strings.Join(keysOf(want), " ") {
		t.Errorf("the files are %q, not %q", keysOf(got), keysOf(want))
	}
	for name := range want {
		if strings.HasPrefix(name, "manifests/") && string(got[name]) != string(want[name]) {
			t.Errorf("%s is\n%s\nand not\n%s", name, got[name], want[name])
		}
	}
}

// A reply that is lost after the call took effect, a refusal for being too fast, a server that is down for a moment:
// one run gets past all of them.
func TestCreateAllGetsPastFaults(t *testing.T) {
	for name, fault := range map[string]func() fakeaws.Fault{
		"throttled": fakeaws.Throttle, "unavailable": fakeaws.Unavailable, "reply lost": fakeaws.LoseReply,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newCluster(t, fakeaws.Options{ConsistencyDelay: 300 * time.Millisecond})
			var seen atomic.Int64
			f.aws.Fault(func(fakeaws.Call) fakeaws.Fault {
				if seen.Add(1)%4 == 2 {
					return fault()
				}
				return fakeaws.Fault{}
			})
			out := f.createAll(t)
			if !strings.Contains(out, "Identity Provider created with ARN: arn:aws:iam::") { // openshift/release gives up without it
				t.Errorf("it does not say that the provider was created:\n%s", out)
			}
			if s := f.aws.State(); len(s.Providers) != 1 || len(s.Roles) != 2 {
				t.Errorf("the account holds\n%s", describe(s))
			}
		})
	}
}

// A caller that may do what the README's policy allows, and nothing else, gets through all of it.
func TestLeastPermissionsSuffice(t *testing.T) {
	t.Parallel()
	f := newCluster(t, fakeaws.Options{Policy: provisionReadme(t, "json")[0]})
	f.createAll(t)
	f.createAll(t, "--client-id", "vault", "--tighten", "--user-tags", "team=a", "--prune",
		"--permissions-boundary-arn", "arn:aws:iam::123456789012:policy/b")
	for _, args := range [][]string{{"--dry-run"}, {}} {
		args = append([]string{"aws", "delete", "--name", "prod-a", "--region", "us-east-1"}, args...)
		cmd := exec.CommandContext(t.Context(), "keypost", args...)
		cmd.Env = f.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if left := describe(f.aws.State()); left != "" {
		t.Errorf("left over:\n%s", left)
	}
	for _, c := range f.aws.Calls() {
		if c.Code == "AccessDenied" {
			t.Errorf("%s was denied", c.Action)
		}
	}
}
