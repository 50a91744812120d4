//go:build e2e_full

package replicas

import (
	"bytes"
	"context"
	"fmt"
	"io"
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

// patience is how long anything may take on a busy machine before the test calls it broken.
const patience = 2 * time.Minute

// binaries are keypost and keypostd, built once; previous are those of an earlier version.
var binaries, previous string

// previousVersion is what the replicas are put back to: the first version with a mirror, until there is a release.
// KEYPOST_PREVIOUS names another commit or tag.
const previousVersion = "193eaf77ccdea58a2792973ae48cc207708d6f43"

func TestMain(m *testing.M) {
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "replicas:", err)
		code = 1
	}
	os.Exit(code)
}

func build(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "replicas")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	binaries, previous = filepath.Join(dir, "current"), filepath.Join(dir, "previous")
	if err := compile("../..", binaries); err != nil {
		return 0, err
	}
	version := os.Getenv("KEYPOST_PREVIOUS")
	if version == "" {
		version = previousVersion
	}
	source := filepath.Join(dir, "source")
	script := `mkdir "$2" && git -C ../.. archive "$1" | tar -x -C "$2"`
	if out, err := exec.Command("bash", "-euo", "pipefail", "-c", script, "-", version, source).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("get the previous version %s from Git: %w\n%s", version, err, out)
	}
	if err := compile(source, previous); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

func compile(source, into string) error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", into+"/", "./cmd/keypost", "./cmd/keypostd")
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", source, err, out)
	}
	return nil
}

// tool returns the path that a script in test/tools prints.
func tool(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command("../tools/" + name)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	must(t, err)
	return strings.TrimSpace(string(out))
}

// process is a program that runs until the test ends, or somebody ends it.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{}
}

func start(t *testing.T, log *logBuffer, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{name: filepath.Base(name), cmd: exec.Command(name, args...), log: log, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), env...)
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the exit code says it
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the end of what %s %s said:\n%s", p.name, strings.Join(args, " "), p.log.tail())
		}
	})
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

// stop asks the process to end, which must be with exit code 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Errorf("%s did not end", p.name)
		p.kill()
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("%s ended with exit code %d", p.name, code)
	}
}

// logBuffer keeps the end of what a program says.
type logBuffer struct {
	mu   sync.Mutex
	text []byte
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if keep := 1 << 20; len(b.text) > 2*keep {
		b.text = bytes.Clone(b.text[len(b.text)-keep:])
	}
	return len(p), nil
}

func (b *logBuffer) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text[max(0, len(b.text)-8192):])
}

// await polls until check is content.
func await(t *testing.T, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// answers is nil when url answers 200.
func answers(c *http.Client, url, bearer string) error {
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
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", url, resp.Status, body)
	}
	return err
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
