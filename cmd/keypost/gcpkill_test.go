package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakegcp"
)

// command is create-all with more arguments, as a process of its own.
func (f *gcpCluster) command(ctx context.Context, more ...string) *exec.Cmd {
	args := []string{"gcp", "create-all", "--name", "prod-a", "--project", "my-project", "--issuer-url", "https://oidc.example.com/prod-a",
		"--output-dir", f.out(), "--credentials-requests-dir", f.requests,
		"--dev", "--max-age", "1s", "--connect", f.address, "--ca-file", filepath.Join(f.dir, "ca.pem")}
	cmd := exec.CommandContext(ctx, "keypost", append(args, more...)...)
	cmd.Env = f.env
	return cmd
}

func (f *gcpCluster) createAll(t *testing.T, more ...string) string {
	t.Helper()
	out, err := f.command(t.Context(), more...).CombinedOutput()
	if err != nil {
		t.Fatalf("create-all: %v\n%s", err, out)
	}
	return string(out)
}

// killAt runs create-all and kills it after call n took effect, before its reply is sent. It reports whether there was
// such a call.
func (f *gcpCluster) killAt(t *testing.T, n int) bool {
	t.Helper()
	cmd := f.command(t.Context())
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var killed atomic.Bool
	started := make(chan struct{})
	f.gcp.OnCall(func(i int, _ fakegcp.Call) {
		<-started
		if i >= n && killed.CompareAndSwap(false, true) {
			_ = cmd.Process.Kill()
		}
	})
	defer f.gcp.OnCall(nil)
	checked{t}.Check(cmd.Start())
	close(started)
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); killed.Load() && ok && !exit.Exited() {
		return true
	}
	if err != nil {
		t.Fatalf("create-all, to be killed at call %d: %v\n%s", n, err, &out)
	}
	return killed.Load()
}

// Wherever create-all is killed, the next run completes it: nothing is left over, nothing is there twice.
func TestGCPCreateAllSurvivesAKillAfterEveryCall(t *testing.T) {
	whole := newGCPCluster(t, fakegcp.Options{})
	whole.createAll(t)
	want := describeProject(whole.gcp.State())
	total := len(whole.gcp.Calls())
	if total < 12 {
		t.Fatalf("create-all makes only %d calls", total)
	}
	for n := 1; n <= total; n++ {
		t.Run(fmt.Sprintf("call %d of %d", n, total), func(t *testing.T) {
			t.Parallel()
			f := newGCPCluster(t, fakegcp.Options{})
			if !f.killAt(t, n) {
				t.Skip("create-all had made fewer calls") // reads run side by side, and their number depends on their order
			}
			f.createAll(t)
			if got := describeProject(f.gcp.State()); got != want {
				t.Errorf("the project holds\n%s\nand not\n%s", got, want)
			}
			compareFiles(t, filesBelow(t, f.out()), filesBelow(t, whole.out()))
			f.gcp.ResetCalls()
			f.createAll(t)
			for _, c := range f.gcp.Calls() {
				if c.Write {
					t.Errorf("a third run calls %s", c.Action)
				}
			}
		})
	}
}

// A reply that is lost after the call took effect, a refusal for being too fast, a server that is down for a moment:
// one run gets past all of them.
func TestGCPCreateAllGetsPastFaults(t *testing.T) {
	for name, fault := range map[string]func() fakegcp.Fault{
		"throttled": func() fakegcp.Fault { return fakegcp.Throttle(100 * time.Millisecond) }, "unavailable": fakegcp.Unavailable, "reply lost": fakegcp.LoseReply,
		"policy changed meanwhile": func() fakegcp.Fault {
			return fakegcp.Fail(http.StatusConflict, "ABORTED", "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff.")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newGCPCluster(t, fakegcp.Options{OperationDelay: 300 * time.Millisecond, AccountDelay: 300 * time.Millisecond, ConsistencyDelay: 300 * time.Millisecond})
			var seen atomic.Int64
			f.gcp.Fault(func(c fakegcp.Call) fakegcp.Fault {
				if conflict := name == "policy changed meanwhile"; conflict && c.Action != "SetProjectIamPolicy" || c.Service == "oauth2" {
					return fakegcp.Fault{}
				} else if n := seen.Add(1); conflict && n == 1 || !conflict && n%4 == 2 {
					return fault()
				}
				return fakegcp.Fault{}
			})
			f.createAll(t)
			s := f.gcp.State()
			if len(s.Pools) != 1 || len(s.Providers) != 1 || len(s.Accounts) != 2 || len(s.Roles) != 2 {
				t.Errorf("the project holds\n%s", describeProject(s))
			}
		})
	}
}
