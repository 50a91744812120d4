// Package process runs the programs that tests look at from outside: it builds them once, keeps what they print, waits
// for what they print or serve, and ends each by its own process ID.
package process

import (
	"context"
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
	"time"
)

// Patience is how long anything may take on a busy machine before a test calls it broken.
const Patience = 2 * time.Minute

// Main runs the tests of a package after setUp, which gets a directory for programs that every user may read, and
// returns the exit code. The directory is removed in the end.
func Main(m *testing.M, setUp func(dir string) error) int {
	code, err := run(m, setUp)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m *testing.M, setUp func(dir string) error) (int, error) {
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()     // a temporary directory
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // programs, which a container of another user may run
		return 0, err
	}
	if err := setUp(dir); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// Build runs go build in the directory source with more arguments: flags, then packages. The programs go into the
// directory into, which must be an absolute path.
func Build(source, into string, more ...string) error {
	args := append([]string{"build", "-C", source, "-o", into + "/"}, more...)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil { //nolint:gosec // our own build
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Process is a program that was started. Its methods are safe for concurrent use.
type Process struct {
	Output *Output // empty where the command has writers of its own
	cmd    *exec.Cmd
	done   chan struct{} // closed when it has ended
}

// Start starts cmd. What it prints on standard output and standard error is kept, where cmd names no other writer. At
// the end of the test it is killed, unless it has ended, and a failed test logs the end of what it printed.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Output: &Output{}, cmd: cmd, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.Output
	}
	if cmd.Stderr == nil {
		cmd.Stderr = p.Output
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // the exit code is kept in cmd
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if text := p.Output.String(); t.Failed() && text != "" {
			t.Logf("the end of what %s printed:\n%s", p.name(), text[max(0, len(text)-16<<10):])
		}
	})
	return p
}

func (p *Process) name() string { return filepath.Base(p.cmd.Path) }

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended reports whether the program has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Signal sends a signal to a program that must be running.
func (p *Process) Signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%s: %v", p.name(), err)
	}
}

// Wait waits for the end and returns the exit code, which is -1 after a signal. A program that has not ended within d is
// killed, and inTime is false.
func (p *Process) Wait(d time.Duration) (code int, inTime bool) {
	select {
	case <-p.done:
		inTime = true
	case <-time.After(d):
		p.Kill()
	}
	return p.cmd.ProcessState.ExitCode(), inTime
}

// Stop sends SIGTERM to a program that may have ended, and is Wait otherwise.
func (p *Process) Stop(d time.Duration) (code int, inTime bool) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	return p.Wait(d)
}

// Kill kills a program that may have ended, and returns once it has.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Await is [Await], and fails the test at once when the program ends.
func (p *Process) Await(t testing.TB, what string, check func() error) {
	t.Helper()
	Await(t, what, func() error {
		if p.Ended() {
			t.Fatalf("%s: %s has ended with exit code %d:\n%s", what, p.name(), p.cmd.ProcessState.ExitCode(), p.Output)
		}
		return check()
	})
}

// Listens waits until keypostd tells of both its listeners, and returns where they are.
func (p *Process) Listens(t testing.TB) (public, admin string) {
	t.Helper()
	p.Await(t, "both listeners", func() error {
		public, admin = p.Output.Address("serving"), p.Output.Address("admin listener is up")
		if public == "" || admin == "" {
			return fmt.Errorf("not yet: %s", p.Output)
		}
		return nil
	})
	return public, admin
}

// Answers is nil when url answers 200, within ten seconds.
func Answers(c *http.Client, url, bearer string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", url, resp.Status, body)
	}
	return err
}

// FreeAddress returns an address of 127.0.0.1 with a port on which nobody listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Await calls check until it returns nil, and fails the test with its last error once Patience is over.
func Await(t testing.TB, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(Patience); ; time.Sleep(5 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, Patience, err)
		}
	}
}
