package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cores are the two that the bench uses: one for the server that is measured, one for everything else.
type cores struct {
	server, load   unix.CPUSet
	serverN, loadN int
}

// pickCores takes the first and the last core that this process may use. They are the same on a machine with one.
func pickCores() (cores, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return cores{}, fmt.Errorf("ask for the usable cores: %w", err)
	}
	c := cores{serverN: -1}
	for i := range len(allowed) * 64 {
		if allowed.IsSet(i) {
			if c.serverN < 0 {
				c.serverN = i
			}
			c.loadN = i
		}
	}
	c.server.Set(c.serverN)
	c.load.Set(c.loadN)
	return c, nil
}

// pinLoad moves every thread of this process to the core of the load; threads to come inherit that.
func (c cores) pinLoad() error {
	runtime.GOMAXPROCS(1)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &c.load); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// server is a child process that serves HTTPS on address, on the core for servers.
type server struct {
	cmd     *exec.Cmd
	address string
	gone    chan struct{} // closed when it has ended
	log     string        // file with what it wrote
	ready   time.Duration // from its start until it was ready
}

// program is what becomes a server.
type program struct {
	name  string
	argv  []string
	env   []string // beside the bench's own
	ready func() bool

	beside bool // it runs on the core of the load
}

// bench is what every part of a run needs.
type bench struct {
	cores cores
	dir   string // temporary, for everything
	cert  certificate
	bin   string // directory with the built programs

	servers []*server // all that were started
}

// spawn starts a program, on the core for servers unless it says otherwise, and waits until it is ready.
func (b *bench) spawn(ctx context.Context, p program) (*server, error) {
	s := &server{log: filepath.Join(b.dir, p.name+".log"), gone: make(chan struct{})}
	out, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()                                          //nolint:errcheck // the child has its own
	s.cmd = exec.CommandContext(ctx, p.argv[0], p.argv[1:]...) //nolint:gosec // our own programs
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.Env = append(withoutRuntime(os.Environ()), p.env...)
	began := time.Now()
	start := b.cores.startPinned
	if p.beside {
		start = (*exec.Cmd).Start
	}
	if err := start(s.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	b.servers = append(b.servers, s)
	go func() { _ = s.cmd.Wait(); close(s.gone) }() // how it ends does not matter, it is killed
	if err := s.await(ctx, p.ready); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	s.ready = time.Since(began)
	return s, nil
}

// withoutRuntime takes out the variables of Go's runtime, so that a server is measured as it is by itself. On its one
// core it takes one processor by itself.
func withoutRuntime(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG", "GOTRACEBACK"}, name)
	})
}

// startPinned starts cmd from a thread on the core for servers: a child begins where its parent thread is, so that
// not one of its threads ever runs elsewhere.
func (c cores) startPinned(cmd *exec.Cmd) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.SchedSetaffinity(0, &c.server)
		if err == nil {
			err = cmd.Start()
		}
		done <- err
	}()
	return <-done
}

// startTimeout is generous: a hundred thousand documents are parsed on one core.
const startTimeout = 5 * time.Minute

func (s *server) await(ctx context.Context, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !ready() {
		select {
		case <-s.gone:
			return fmt.Errorf("it ended: %s", lastLine(s.log))
		case <-ctx.Done():
			return errors.Join(errors.New("it did not become ready"), ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

func lastLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}

// stop ends a server, which may have ended already.
func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	<-s.gone
}

// stopAll leaves no server behind.
func (b *bench) stopAll() {
	for _, s := range b.servers {
		s.stop()
	}
	b.servers = nil
}

const (
	// quiet is how little a server does in one look when it is done with what it was asked for.
	quiet = 50 * time.Microsecond
	look  = 2 * time.Millisecond
	// longest is how long it may go on after a burst, with a heap of a hundred thousand documents to mark.
	longest = 500 * time.Millisecond
)

// settle waits until the server has nothing more to do, and returns its CPU time then. A garbage collection that the
// last burst began is part of that burst's cost, and must not run while another server is measured.
func (s *server) settle() (time.Duration, error) {
	before, err := s.cpuTime()
	for end := time.Now().Add(longest); err == nil && time.Now().Before(end); {
		time.Sleep(look)
		var now time.Duration
		if now, err = s.cpuTime(); now-before < quiet {
			return now, err
		}
		before = now
	}
	return before, err
}

// cpuTime is what the kernel has accounted to a process so far, user and system time of all its threads, ended ones
// too, in nanoseconds (/proc/PID/stat has the same in hundredths of a second). The clock's number is that of
// clock_getcpuclockid(3).
func (s *server) cpuTime() (time.Duration, error) {
	const cpuclockSched = 2
	var t unix.Timespec
	clock := int32(^s.cmd.Process.Pid<<3 | cpuclockSched) //nolint:gosec // as the kernel numbers them; a pid has 22 bits
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("read the CPU clock of process %d: %w", s.cmd.Process.Pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// resident returns the memory in use by the process, in KiB.
func (s *server) resident() (int, error) { return s.status("VmRSS") }

// status returns a number of /proc/PID/status.
func (s *server) status(name string) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	return 0, fmt.Errorf("the kernel reports no %s", name)
}

func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

func connects(address string) func() bool {
	return func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close() // nothing was sent
		}
		return err == nil
	}
}

func answersOK(url string) func() bool {
	return func() bool {
		r, err := http.Get(url) //nolint:gosec // the address is our own
		if err != nil {
			return false
		}
		_ = r.Body.Close() // nothing of it is wanted
		return r.StatusCode == http.StatusOK
	}
}
