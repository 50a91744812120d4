package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/test/process"
)

// start starts keypost with an input on which nothing comes, and waits until it waits for whatever it waits for.
func start(t *testing.T, args ...string) *process.Process {
	t.Helper()
	in, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), hold.Close() })
	cmd := exec.Command("keypost", args...)
	cmd.Stdin = in
	p := process.Start(t, cmd)
	for was, now := "", idle(p.PID()); (now == "" || now != was) && !p.Ended(); was, now = now, idle(p.PID()) {
		time.Sleep(500 * time.Millisecond)
	}
	return p
}

// idle returns what a process has used of the processor if none of its threads wants it now, else nothing: one that has not come to wait
// yet, on a busy machine, has no handler of signals. See proc(5).
func idle(pid int) (used string) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, file := range threads {
		text, _ := os.ReadFile(file)
		_, after, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(after)
		if len(fields) < 13 || fields[0] != "S" {
			return ""
		}
		used += fields[11] + "+" + fields[12] + " "
	}
	return used
}

// silentIssuer returns the flag of a store whose development issuer, dev, is served at an address, and rotates.
func silentIssuer(t *testing.T, at net.Addr) string {
	t.Helper()
	dir, c := t.TempDir(), checked{t}
	_, port, err := net.SplitHostPort(at.String())
	c.Check(err)
	spec := testSpec(t, "dev", "https://localhost:"+port+"/dev")
	spec.Dev = true
	set, err := keystore.New(keystore.Change{At: time.Now()}, spec)
	c.Check(err)
	set, err = set.StartRotation(keystore.Change{At: time.Now()}, testSpec(t, "x").Keys[0])
	c.Check(err)
	st, err := filestore.Open(dir)
	c.Check(err)
	c.Check(keystore.Create(t.Context(), keystore.NewStore(st), set))
	return "--store=file://" + dir
}

// Ctrl-C ends what waits.
func TestInterrupted(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	store := "--store=file://" + t.TempDir()
	add := []string{"issuer", "add", "prod-a", "--url", "https://oidc.example.com/prod-a", store}
	silentDev, observations := silentIssuer(t, silent.Addr()), "--observations=file://"+t.TempDir()
	for name, tt := range map[string]struct {
		args   []string
		signal os.Signal
		code   int
	}{
		"observe":       {[]string{"issuer", "observe", "dev", observations, silentDev}, os.Interrupt, cli.ExitInterrupted},
		"step --wait":   {[]string{"rotate", "step", "dev", "--wait", observations, silentDev}, syscall.SIGTERM, cli.ExitTerminated},
		"typed input":   {append(add, "--public-key-file", "-"), os.Interrupt, cli.ExitInterrupted},
		"silent server": {append(add, "--jwks", "https://"+silent.Addr().String()+"/x"), os.Interrupt, cli.ExitInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, tt.args...)
			p.Signal(t, tt.signal)
			code, inTime := p.Wait(process.Patience)
			if !inTime || code != tt.code {
				t.Errorf("exit code %d, in time %v; want %d", code, inTime, tt.code)
			}
			if got := p.Output.String(); got != "keypost: interrupted; what is done so far stays, and the same command goes on from there\n" {
				t.Errorf("%q", got)
			}
		})
	}
}

// A second one ends it whatever hangs, here the reading of a pipe that nobody writes into.
func TestInterruptedTwice(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "issuer", "add", "prod-a", "--url", "https://oidc.example.com/prod-a", "--public-key-file", pipe, "--store=file://"+t.TempDir())
	var silent *os.File // opening it succeeds once the program has it open for reading
	p.Await(t, "the program reads the pipe", func() (err error) {
		silent, err = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err
	})
	t.Cleanup(func() { _ = silent.Close() })
	for range 20 { // the first may still be under way
		time.Sleep(200 * time.Millisecond)
		if !p.Ended() {
			p.Signal(t, os.Interrupt)
		}
	}
	if _, inTime := p.Wait(process.Patience); !inTime {
		t.Error("it does not end")
	}
}

// SIGTERM ends a watch at once and as it should end, whatever origin is silent; it has no word of what was not changed.
func TestWatchIsTerminated(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	asked := make(chan struct{})
	go func() {
		if _, err := silent.Accept(); err == nil {
			close(asked)
		}
	}()
	p := start(t, "watch", "--every", "5s", "--listen", "127.0.0.1:0", silentIssuer(t, silent.Addr()))
	select {
	case <-asked:
	case <-time.After(process.Patience):
		t.Fatalf("the issuer is not asked: %s", p.Output)
	}
	p.Signal(t, syscall.SIGTERM)
	if code, inTime := p.Wait(3 * time.Second); !inTime || code != cli.ExitDone { // an answer is waited for five seconds
		t.Errorf("exit code %d, in time %v", code, inTime)
	}
	if got := p.Output.String(); !strings.Contains(got, `"msg":"stopped"`) || strings.Contains(got, "does not answer") {
		t.Error(got)
	}
}
