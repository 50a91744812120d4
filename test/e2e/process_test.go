//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	programs "github.com/keypost/keypost/test/process"
)

// full adds what is long and rarely fails: make e2e-full.
var full = os.Getenv("KEYPOST_E2E_FULL") == "1"

// patience is how long anything may take on a busy machine before the test calls it broken.
const patience = 90 * time.Second

// process is a server under test. Its output goes to a file; a failed test prints its end.
type process struct {
	*programs.Process
	name, log string
}

// start starts a server and stops it at the end of the test, servers started last first: a kube-apiserver whose etcd
// is gone lingers.
func start(t *testing.T, name, program string, args ...string) *process {
	t.Helper()
	log := filepath.Join(t.ArtifactDir(), name+".log")
	out, err := os.Create(log)
	must(t, err)
	defer out.Close() // the server has it open itself
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	p := &process{programs.Start(t, cmd), name, log}
	t.Cleanup(func() {
		p.stop(t, 5*time.Second)
		if t.Failed() {
			t.Logf("the end of %s:\n%s", log, tail(log, 4096))
		}
	})
	return p
}

// stop asks the process to end, kills it when it has not ended after grace, and returns its exit code (-1: killed).
func (p *process) stop(t *testing.T, grace time.Duration) int {
	t.Helper()
	code, inTime := p.Stop(grace)
	if !inTime {
		t.Logf("%s did not end within %s of SIGTERM", p.name, grace)
	}
	return code
}

// await polls until check says nil, and gives up when the process has ended or patience has.
func (p *process) await(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	await(t, p.name+": "+what, func(ctx context.Context) error {
		if p.Ended() {
			code, _ := p.Wait(0)
			t.Fatalf("%s ended with exit code %d before it was %s", p.name, code, what)
		}
		return check(ctx)
	})
}

// await polls until check says nil, and fails the test with check's last error when patience is over.
func await(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		case <-ticker.C:
		}
	}
}

// result is what a command line program left behind.
type result struct {
	stdout, stderr string
	code           int // -1: killed
}

func (r result) err() error {
	if r.code == 0 {
		return nil
	}
	return fmt.Errorf("exit code %d: %s", r.code, r.stderr)
}

// command runs a program to its end, with env added to the environment.
func command(t *testing.T, env []string, stdin, program string, args ...string) result {
	t.Helper()
	return commandWithin(t, patience, env, stdin, program, args...)
}

// commandWithin is command that may take another time than patience.
func commandWithin(t *testing.T, limit time.Duration, env []string, stdin, program string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewBufferString(stdin), &stdout, &stderr
	cmd.Env = append(os.Environ(), env...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %s: %v", program, err)
	}
	return result{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
}

// ok fails the test unless the program ended with 0, and returns its standard output.
func (r result) ok(t *testing.T) string {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("exit code %d\nstdout: %s\nstderr: %s", r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// keypost runs the command line, which is killed after a time that is not zero. It may be called by several goroutines.
func keypost(env []string, killAfter time.Duration, args ...string) result {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(binary("keypost"), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &stdout, &stderr
	if err := cmd.Start(); err != nil {
		return result{code: 1, stderr: err.Error()}
	}
	if killAfter > 0 {
		killer := time.AfterFunc(killAfter, func() { _ = cmd.Process.Kill() })
		defer killer.Stop()
	}
	_ = cmd.Wait() // the exit code tells
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func tail(file string, n int64) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > n {
		_, _ = f.Seek(-n, io.SeekEnd)
	}
	data, _ := io.ReadAll(f)
	return string(data)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return data
}
