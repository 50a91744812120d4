package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
)

// background is a keypost that runs.
type background struct {
	*exec.Cmd
	stderr *output
	ended  chan struct{}
}

func start(t *testing.T, args ...string) background {
	t.Helper()
	in, hold, err := os.Pipe() // an input on which nothing comes
	if err != nil {
		t.Fatal(err)
	}
	b := background{exec.Command("keypost", args...), &output{}, make(chan struct{})}
	b.Stdin, b.Stderr = in, b.stderr
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(b.ended)
		_ = b.Wait()
	}()
	t.Cleanup(func() {
		_ = b.Process.Kill()
		<-b.ended
		_, _ = in.Close(), hold.Close()
	})
	time.Sleep(500 * time.Millisecond) // until it waits for whatever it waits for
	return b
}

func (b background) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := b.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// programPatience bounds the waits for what takes milliseconds on a machine that is not busy.
const programPatience = 30 * time.Second

// await waits until something is so while the program runs.
func (b background) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(programPatience); !is(); time.Sleep(10 * time.Millisecond) {
		if code, ended := b.code(0); ended {
			t.Fatalf("it ended (%d) before %s: %s", code, what, b.stderr)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v passed before %s: %s", programPatience, what, b.stderr)
		}
	}
}

// output may be read while a program still writes it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// code is the exit code, if it ends within d.
func (b background) code(d time.Duration) (int, bool) {
	select {
	case <-b.ended:
		return b.ProcessState.ExitCode(), true
	case <-time.After(d):
		return 0, false
	}
}

// Ctrl-C ends what waits, and says what it leaves behind.
func TestInterrupted(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	store := "--store=file://" + t.TempDir()
	add := []string{"issuer", "add", "prod-a", "--url", "https://oidc.example.com/prod-a", store}
	for name, tt := range map[string]struct {
		args   []string
		signal os.Signal
		code   int
	}{
		"typed input":     {append(add, "--public-key-file", "-"), os.Interrupt, cli.ExitInterrupted},
		"terminated":      {append(add, "--public-key-file", "-"), syscall.SIGTERM, cli.ExitTerminated},
		"silent server":   {append(add, "--jwks", "https://"+silent.Addr().String()+"/x"), os.Interrupt, cli.ExitInterrupted},
		"verify":          {[]string{"verify", "--dev", "https://localhost:1/x", "--connect", silent.Addr().String()}, os.Interrupt, cli.ExitInterrupted},
		"silent keypostd": {[]string{"issuer", "list", "--admin", "http://" + silent.Addr().String(), store}, os.Interrupt, cli.ExitInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, tt.args...)
			b.signal(t, tt.signal)
			code, ended := b.code(programPatience)
			if !ended || code != tt.code {
				t.Errorf("exit code %d, ended %v; want %d", code, ended, tt.code)
			}
			if got := b.stderr.String(); got != "keypost: interrupted; nothing was changed\n" {
				t.Errorf("%q", got)
			}
		})
	}
}

// A second one ends it whatever hangs, here the reading of a pipe that nobody writes into.
func TestInterruptedTwice(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	b := start(t, "issuer", "add", "prod-a", "--url", "https://oidc.example.com/prod-a", "--public-key-file", pipe, "--store=file://"+t.TempDir())
	var silent *os.File // opening it succeeds once the program has it open for reading
	b.await(t, "the program reads the pipe", func() bool {
		var err error
		silent, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	t.Cleanup(func() { _ = silent.Close() })
	b.signal(t, os.Interrupt)
	b.await(t, "it says how to end it", func() bool {
		return strings.Contains(b.stderr.String(), "interrupt it once more to end it at once")
	})
	b.signal(t, os.Interrupt)
	if code, ended := b.code(programPatience); !ended || code != cli.ExitInterrupted {
		t.Errorf("exit code %d, ended %v", code, ended)
	}
}
