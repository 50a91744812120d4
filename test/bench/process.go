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

// bench is what every part of a run needs.
type bench struct {
	cores cores
	dir   string // temporary, for everything
	cert  certificate
	bin   string // directory with the built programs

	servers []*server // all that were started
}

// spawn starts a program on the core for servers, where a Go program gets one processor, and waits until it is ready.
func (b *bench) spawn(ctx context.Context, ready func() bool, name string, argv ...string) (*server, error) {
	s := &server{log: filepath.Join(b.dir, name+".log"), gone: make(chan struct{})}
	out, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()                                      //nolint:errcheck // the child has its own
	s.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // our own programs
	s.cmd.Stdout, s.cmd.Stderr = out, out
	s.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	began := time.Now()
	if err := b.cores.startPinned(s.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	b.servers = append(b.servers, s)
	go func() { _ = s.cmd.Wait(); close(s.gone) }() // how it ends is of no interest, it is killed
	if err := s.await(ctx, ready); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	s.ready = time.Since(began)
	return s, nil
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

// stopAll leaves no server behind.
func (b *bench) stopAll() {
	for _, s := range b.servers {
		_ = s.cmd.Process.Kill() // it fails if it has ended
		<-s.gone
	}
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
func (s *server) resident() (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	return 0, errors.New("the kernel tells no VmRSS")
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
