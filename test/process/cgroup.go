package process

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Group is a memory cgroup, of version 1 or 2.
type Group struct {
	dir   string
	peaks []string // files, whose sum is the peak
}

// NewGroup makes a group for the time of a test, with a limit in MiB. Only root can.
func NewGroup(t testing.TB, mib int) *Group {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	must(t, err)
	name := fmt.Sprintf("keypost-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	g, limit := &Group{dir: filepath.Join("/sys/fs/cgroup", name), peaks: []string{"memory.peak"}}, "memory.max"
	m := regexp.MustCompile(`(?m)^\d+:memory:(.*)$`).FindSubmatch(own)
	if m != nil {
		g = &Group{dir: filepath.Join("/sys/fs/cgroup/memory", string(m[1]), name), peaks: []string{"memory.max_usage_in_bytes"}}
		limit = "memory.limit_in_bytes"
	} else if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory"), 0o600); err != nil {
		t.Fatalf("this test needs to make memory cgroups: %v; run it as root, outside a container", err)
	}
	if err := os.Mkdir(g.dir, 0o750); err != nil {
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

// Within is a command that runs what follows it in the group.
func (g *Group) Within() []string {
	return []string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, g.dir}
}

// countTCP has version 1 count the buffers of TCP, which version 2 does by itself as part of all memory. The kernel counts
// them once they have a limit; this one is never reached.
func (g *Group) countTCP(t testing.TB) {
	t.Helper()
	err := os.WriteFile(filepath.Join(g.dir, "memory.kmem.tcp.limit_in_bytes"), []byte(strconv.Itoa(1<<40)), 0o600)
	if os.IsNotExist(err) {
		t.Log("this kernel does not count the buffers of TCP")
		return
	}
	must(t, err)
	g.peaks = append(g.peaks, "memory.kmem.tcp.max_usage_in_bytes")
}

// Peak is the most that the group has used, in MiB. With version 1 that is memory and TCP, each at its own worst moment,
// which can be more than both at a time.
func (g *Group) Peak(t testing.TB) int {
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
