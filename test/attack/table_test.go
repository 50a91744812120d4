//go:build e2e_full

package attack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/process"
)

// lasting is how long each attack goes on.
const lasting = 10 * time.Second

// scenario is one attack: a mode, and on how many connections.
type scenario struct {
	mode string
	n    int
	// slots makes both servers have this many connections at most.
	slots int
}

// loads are what takes memory or time, crowds what takes slots.
var (
	loads = []scenario{
		{"h2-load", 100, 0}, {"h2-load", 8, 0}, {"h2-cookie-crumbs", 100, 0}, {"h2-unread-refusals", 100, 0}, {"h2-unread-refusals", 500, 0},
		{"h2-window-drip", 100, 0}, {"h2-window-drip", 1000, 0}, {"h2-rapid-reset", 100, 0}, {"h2-hpack-bomb", 100, 0}, {"h1-pipeline", 100, 0},
		{"h1-header-bomb", 1000, 0}, {"h1-small-bomb", 1200, 0}, {"h1-stall", 2000, 0}, {"h1-idle", 2000, 0}, {honestLoad, 300, 0},
	}
	floods = []scenario{
		{"h2-settings-flood", 100, 0}, {"h2-ping-flood", 100, 0}, {"h2-priority-flood", 100, 0}, {"h2-unknown-flood", 100, 0}, {"h2-window-flood", 100, 0},
		{"tls-handshakes", 20, 0},
	}
	crowds = []scenario{
		{"tcp-idle", 600, 500}, {"h1-idle", 600, 500}, {"h2-idle", 600, 500}, {"h1-slow-header", 600, 500},
		{"h2-stall", 600, 500}, {"h1-stall", 600, 500}, {"h1-slow-body", 600, 500},
	}
	// hardest are those that are tried with many issuers.
	hardest = []scenario{
		{"h2-load", 100, 0}, {"h2-cookie-crumbs", 100, 0}, {"h2-unread-refusals", 500, 0}, {"h2-window-drip", 1000, 0}, {"h1-idle", 3000, 0}, {honestLoad, 300, 0},
	}
)

// honestLoad is h2load: many requests, all of them proper.
const honestLoad = "h2load -m 100"

// surroundings are what a server runs in.
type surroundings struct {
	memory    int // MiB
	issuers   int
	scenarios []scenario
}

func TestTable(t *testing.T) {
	all := append(append(append([]scenario{}, loads...), floods...), crowds...)
	t.Logf("| attack x connections | memory, issuers | alive | failed | p50 | p99 | peak MiB | nginx: alive | failed | p50 | p99 | peak MiB |")
	nginx := map[scenario]outcome{}
	for _, s := range []surroundings{{512, 1, all}, {256, 1, loads}, {512, 10_000, hardest}} {
		for _, sc := range s.scenarios {
			t.Run(fmt.Sprintf("%s-x%d/%dMiB-%d", strings.ReplaceAll(sc.mode, " ", ""), sc.n, s.memory, s.issuers), func(t *testing.T) {
				other, known := nginx[sc]
				if !known {
					other = against(t, sc, startNginx)
					nginx[sc] = other
				}
				o := judgeable(t, sc, func(t *testing.T, sc scenario) (*target, *group) { return startKeypostd(t, sc, s) })
				t.Logf("| %s x %d | %d MiB, %d | %s | %s |", sc.mode, sc.n, s.memory, s.issuers, o, other)
				if o.detail != "" {
					t.Log(o.detail)
				}
				if !o.alive {
					t.Error("keypostd has ended")
				}
				if o.party.failed > 0 {
					t.Errorf("%d of %d honest requests failed: %v", o.party.failed, o.party.asked, o.party.first)
				}
			})
		}
	}
}

// judgeable tries again, twice at most, while the machine is too busy with other work to judge: the relying party did
// not even get to ask as often as it should. A server that has ended is judged at once.
func judgeable(t *testing.T, sc scenario, start func(*testing.T, scenario) (*target, *group)) outcome {
	t.Helper()
	due := int(lasting.Seconds() * 20 * 0.9)
	for try := 0; ; try++ {
		o := against(t, sc, start)
		if !o.alive || o.party.failed == 0 || o.party.asked >= due || try == 2 {
			return o
		}
		t.Logf("%d of %d failed, but only %d of %d could be asked: this machine is too busy, again", o.party.failed, o.party.asked, o.party.asked, due)
	}
}

// outcome is what an attack has brought about.
type outcome struct {
	alive  bool
	party  *party
	peak   int // MiB
	detail string
}

func (o outcome) String() string {
	return fmt.Sprintf("%v | %d of %d | %d ms | %d ms | %d", o.alive, o.party.failed, o.party.asked,
		o.party.quantile(0.5).Milliseconds(), o.party.quantile(0.99).Milliseconds(), o.peak)
}

func against(t *testing.T, sc scenario, start func(*testing.T, scenario) (*target, *group)) outcome {
	t.Helper()
	v, g := start(t, sc)
	wait := startScenario(t, sc, v.address)
	time.Sleep(500 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), lasting-500*time.Millisecond)
	defer cancel()
	p := rely(ctx, v)
	detail := wait()
	o := outcome{alive: !v.Ended(), party: p, peak: g.peak(t), detail: detail}
	if o.alive && v.admin != "" {
		o.detail += fmt.Sprintf(" evicted %v, delayed %v", v.metric(t, "keypost_connections_evicted_total"), v.metric(t, "keypost_http2_reads_delayed_total"))
	}
	v.Stop(10 * time.Second) // and its workers with it
	return o
}

func startScenario(t *testing.T, sc scenario, address string) (wait func() string) {
	t.Helper()
	if sc.mode != honestLoad {
		end := startAttack(t, sc.mode, address, sc.n, lasting)
		return func() string { return fmt.Sprintf("%d connections opened;", end()) }
	}
	cmd := exec.Command("nice", "-n", "10", "h2load", "-c", strconv.Itoa(sc.n), "-m", "100", "-t", "1", "-D", strconv.Itoa(int(lasting.Seconds())-1),
		"--header=host: "+host, "--connect-to="+address, "https://"+host+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	done := make(chan string, 1)
	go func() {
		out, _ := cmd.CombinedOutput() // what it says tells more than its code
		done <- strings.Join(regexp.MustCompile(`(?m)^(finished|requests|status codes).*$`).FindAllString(string(out), -1), "; ") + ";"
	}()
	return func() string { return <-done }
}

func startKeypostd(t *testing.T, sc scenario, s surroundings) (*target, *group) {
	t.Helper()
	g := newGroup(t, s.memory)
	more := ""
	if sc.slots > 0 {
		more = fmt.Sprintf("maxConnections: %d", sc.slots)
	}
	return start(t, setup{issuers: s.issuers, listen: more, within: g.within()}), g
}

const nginxConfig = `daemon off;
worker_processes %d;
worker_rlimit_nofile 16384;
pid %[2]s/pid;
error_log stderr crit;
user root;
events { worker_connections %[3]d; }
http {
	access_log off;
	client_body_temp_path %[2]s/body; proxy_temp_path %[2]s/proxy; fastcgi_temp_path %[2]s/fastcgi; uwsgi_temp_path %[2]s/uwsgi; scgi_temp_path %[2]s/scgi;
	default_type application/json;
	server {
		listen %[4]s ssl http2;
		ssl_certificate %[2]s/tls.crt; ssl_certificate_key %[2]s/tls.key;
		root %[2]s/html;
		add_header Cache-Control "public, max-age=300, stale-while-revalidate=300, stale-if-error=86400";
		add_header Access-Control-Allow-Origin "*";
		add_header X-Content-Type-Options nosniff;
	}
}
`

// startNginx serves the same bytes.
func startNginx(t *testing.T, sc scenario) (*target, *group) {
	t.Helper()
	reference := start(t, setup{})
	reference.Stop(10 * time.Second)
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "html", filepath.Dir(path)), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "html", path), []byte(reference.body), 0o600))
	authority.New(t).Issue(t, dir, host)
	address := process.FreeAddress(t)
	workers, connections := 2, 4096
	if sc.slots > 0 {
		workers, connections = 1, sc.slots
	}
	config := filepath.Join(dir, "nginx.conf")
	must(t, os.WriteFile(config, fmt.Appendf(nil, nginxConfig, workers, dir, connections, address), 0o600))
	g := newGroup(t, 512)
	v := run(t, append(g.within(), "nginx", "-p", dir, "-c", config), nil)
	v.address, v.body = address, reference.body
	v.Await(t, "nginx serves the same bytes", func() error {
		body, err := ask(t.Context(), address, "h2")
		if err == nil && body != v.body {
			err = fmt.Errorf("it serves %q", body)
		}
		return err
	})
	return v, g
}

// group is a memory cgroup, of version 1 or 2.
type group struct {
	dir   string
	peaks []string // files, whose sum is the peak
}

func newGroup(t *testing.T, mib int) *group {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	must(t, err)
	name := fmt.Sprintf("keypost-attack-%d-%d", os.Getpid(), time.Now().UnixNano())
	g, limit := &group{dir: filepath.Join("/sys/fs/cgroup", name), peaks: []string{"memory.peak"}}, "memory.max"
	m := regexp.MustCompile(`(?m)^\d+:memory:(.*)$`).FindSubmatch(own)
	if m != nil {
		g = &group{dir: filepath.Join("/sys/fs/cgroup/memory", string(m[1]), name), peaks: []string{"memory.max_usage_in_bytes"}}
		limit = "memory.limit_in_bytes"
	} else if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0o600); err != nil {
		t.Fatalf("this test needs to make memory cgroups: %v; run it as root, outside a container", err)
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Fatalf("this test needs to make memory cgroups: %v; run it as root", err)
	}
	t.Cleanup(func() { // once the processes are gone
		for range 100 {
			if os.Remove(g.dir) == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("the cgroup %s is still in use", g.dir)
	})
	must(t, os.WriteFile(filepath.Join(g.dir, limit), []byte(strconv.Itoa(mib<<20)), 0o600))
	if m != nil {
		g.countTCP(t)
	}
	return g
}

// within is a command that runs what follows it in the group.
func (g *group) within() []string {
	return []string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.dir}
}

// countTCP has version 1 count the buffers of TCP, which version 2 does by itself as part of all memory. The kernel counts
// them once they have a limit; this one is never reached.
func (g *group) countTCP(t *testing.T) {
	t.Helper()
	err := os.WriteFile(filepath.Join(g.dir, "memory.kmem.tcp.limit_in_bytes"), []byte(strconv.Itoa(1<<40)), 0o600)
	if os.IsNotExist(err) {
		t.Log("this kernel does not count the buffers of TCP")
		return
	}
	must(t, err)
	g.peaks = append(g.peaks, "memory.kmem.tcp.max_usage_in_bytes")
}

// peak is the most that the group has used, in MiB. With version 1 that is memory and TCP, each at its own worst moment,
// which can be more than both at a time.
func (g *group) peak(t *testing.T) int {
	t.Helper()
	sum := 0
	for _, f := range g.peaks {
		text, err := os.ReadFile(filepath.Join(g.dir, f))
		must(t, err)
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		must(t, err)
		sum += n
	}
	return sum >> 20
}
