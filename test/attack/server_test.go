package attack

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/process"
)

// keypostd is the program under attack: built as it is released, or what KEYPOST_KEYPOSTD names.
var keypostd string

// attackEnv makes this test program an attacker: "MODE ADDRESS CONNECTIONS DURATION".
const attackEnv = "KEYPOST_ATTACK"

func TestMain(m *testing.M) {
	if what := os.Getenv(attackEnv); what != "" {
		os.Exit(beAttacker(what))
	}
	if keypostd = os.Getenv("KEYPOST_KEYPOSTD"); keypostd != "" {
		os.Exit(m.Run())
	}
	os.Exit(process.Main(m, func(dir string) error {
		keypostd = filepath.Join(dir, "keypostd")
		return process.Build("../..", dir, "./cmd/keypostd")
	}))
}

func beAttacker(what string) int {
	var mode, address, duration string
	var n int
	if _, err := fmt.Sscan(what, &mode, &address, &n, &duration); err != nil || modes[mode] == nil {
		fmt.Fprintln(os.Stderr, "attack: no such attack:", what, err)
		return 2
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 10) // the machine is shared
	d, err := time.ParseDuration(duration)
	if err != nil {
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // which the test closes to end the attack
		cancel()
	}()
	fmt.Println(attack(ctx, mode, address, n))
	return 0
}

// startAttack runs a mode in a process of its own, for d at most. The function it returns ends it and says how many
// connections were opened; without one the test fails, since nothing was attacked.
func startAttack(t *testing.T, mode, address string, n int, d time.Duration) (end func() int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), attackEnv+"="+fmt.Sprintf("%s %s %d %v", mode, address, n, d), "GOMAXPROCS=1", "GOGC=400")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	var once sync.Once
	opened := 0
	stop := func() {
		_ = stdin.Close()
		_ = cmd.Wait() // what it printed says it
		opened, _ = strconv.Atoi(strings.TrimSpace(out.String()))
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, but for a failed test
		once.Do(stop)
	})
	return func() int {
		once.Do(stop)
		if opened == 0 {
			t.Errorf("%s has opened no connection: there was no attack", mode)
		}
		return opened
	}
}

// target is a server under attack.
type target struct {
	*process.Process
	address string
	admin   string
	body    string // of path
	group   *process.Group
}

// setup says how keypostd is started.
type setup struct {
	issuers int      // default 1
	listen  string   // more fields of listen, such as "maxConnections: 500"
	env     []string // such as GOMEMLIMIT
	within  []string // a command that starts it, such as prlimit; or one of a cgroup
}

const settings = `dir: %q
issuerURLs: ["https://oidc.example.com/{name}"]
hostAliases: {%s: oidc.example.com}
listen: {address: "127.0.0.1:0", drainDelay: 0s, drainTimeout: 1s, tls: {files: [{cert: %q, key: %q}]}%s}
admin: {address: "127.0.0.1:0"}
`

// start runs keypostd until the end of the test.
func start(t *testing.T, s setup) *target {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "keysets")
	must(t, os.Mkdir(dir, 0o755))
	writeKeySets(t, dir, max(s.issuers, 1))
	authority.New(t).Issue(t, root, host, nickname)
	config := filepath.Join(root, "keypostd.yaml")
	more := s.listen
	if more != "" {
		more = ", " + more
	}
	must(t, os.WriteFile(config, fmt.Appendf(nil, settings, dir, nickname, filepath.Join(root, "tls.crt"), filepath.Join(root, "tls.key"), more), 0o600))
	v := run(t, append(slices.Clone(s.within), keypostd, "--config", config), s.env)
	v.address, v.admin = v.Listens(t)
	v.Await(t, "ready", func() error { return process.Answers(http.DefaultClient, "http://"+v.admin+"/readyz", "") })
	body, err := ask(t.Context(), v.address)
	must(t, err)
	v.body = body
	return v
}

func run(t *testing.T, args, env []string) *target {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return &target{Process: process.Start(t, cmd)}
}

// writeKeySets writes prod-a and, for n above 1, as many more.
func writeKeySets(t *testing.T, dir string, n int) {
	t.Helper()
	text, err := os.ReadFile("../contract/testdata/keysets/prod-a.yaml")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "prod-a.yaml"), text, 0o600))
	for i := range n - 1 {
		name := fmt.Sprintf("n%d", i)
		must(t, os.WriteFile(filepath.Join(dir, name+".yaml"), bytes.ReplaceAll(text, []byte("prod-a"), []byte(name)), 0o600))
	}
}

// metric reads the sum of a metric from the admin listener; name may go on with its first labels.
func (v *target) metric(t *testing.T, name string) float64 {
	t.Helper()
	c := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + v.admin + "/metrics")
	must(t, err)
	defer resp.Body.Close()
	sum := 0.0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name); ok && strings.IndexByte(" {,", rest[0]) >= 0 {
			n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			must(t, err)
			sum += n
		}
	}
	return sum
}

// peakResident is the most memory that the server has had resident, in bytes. The kernel knows it without asking the
// server, which is busy.
func (v *target) peakResident(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.PID()))
	must(t, err)
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kib float64
	_, err = fmt.Sscan(rest, &kib)
	must(t, err)
	return kib * 1024
}

// client returns what asks a server for path, with a connection for each request or with one that is kept.
func client(address string, kept bool) *http.Transport {
	return &http.Transport{
		DisableKeepAlives: !kept, TLSClientConfig: &tls.Config{ServerName: host, InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
}

// ask fetches path over a connection of its own.
func ask(ctx context.Context, address string) (string, error) {
	c := client(address, false)
	defer c.CloseIdleConnections()
	return askWith(ctx, c)
}

func askWith(ctx context.Context, c *http.Transport) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return string(body), err
}

// party is an honest relying party: it asks often, mostly on new connections, and compares every byte.
type party struct {
	asked, failed int
	times         []time.Duration // of those that did not fail
	first         error           // of those that failed

	mu sync.Mutex
}

// note notes a request that has got its answer, or none.
func (p *party) note(what string, took time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if err == nil {
		p.times = append(p.times, took)
		return
	}
	p.failed++
	if p.first == nil {
		p.first = fmt.Errorf("%s: %w", what, err)
	}
}

// asksPerSecond is how often a party asks: 20 times on a new connection, and 10 times on one that it keeps.
const asksPerSecond = 30

// rely asks until ctx is done.
func rely(ctx context.Context, v *target) *party {
	p := &party{}
	var all sync.WaitGroup
	kept := client(v.address, true)
	defer kept.CloseIdleConnections()
	one := func(what string, do func(ctx context.Context) (string, error)) {
		all.Go(func() {
			began := time.Now()
			body, err := do(context.WithoutCancel(ctx))
			if err == nil && body != v.body {
				err = fmt.Errorf("%d bytes that differ", len(body))
			}
			p.note(what, time.Since(began), err)
		})
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		one("new", func(ctx context.Context) (string, error) { return ask(ctx, v.address) })
		if n%2 == 0 {
			one("kept", func(ctx context.Context) (string, error) { return askWith(ctx, kept) })
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	all.Wait()
	return p
}

// quantile is over the requests that did not fail.
func (p *party) quantile(q float64) time.Duration {
	if len(p.times) == 0 {
		return 0
	}
	slices.Sort(p.times)
	return p.times[int(float64(len(p.times)-1)*q)]
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
