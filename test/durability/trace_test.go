package durability

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The kernel sees the calls of one change in the order that makes it durable, all of them before it is reported.
func TestOrderOfSystemCalls(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	st, log := prepared(t), filepath.Join(t.TempDir(), "trace")
	c := exec.CommandContext(t.Context(), strace, "-f", "-y", "-o", log,
		"-e", "trace=openat,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,flock,unlink,unlinkat,ftruncate",
		buildWriter(t), st.Dir(), "traced", "1")
	if out, err := c.CombinedOutput(); err != nil || string(out) != "2\n" {
		t.Fatalf("the traced writer: %v\n%s", err, out)
	}
	data, err := os.ReadFile(log)
	must(t, err)
	calls := steps(string(data), st.Dir())
	want := []string{
		"lock .keypost.lock", "create temporary", "write temporary", "fsync temporary",
		"rename temporary to prod-a.yaml", "fsync directory", "unlink .keypost.lock", "report",
	}
	if !slices.Equal(calls, want) {
		t.Errorf("the calls are\n%s\nwant\n%s\ntrace:\n%s", strings.Join(calls, "\n"), strings.Join(want, "\n"), data)
	}
}

var (
	unfinished = regexp.MustCompile(`^(\d+)\s+(.*) <unfinished \.\.\.>$`)
	resumed    = regexp.MustCompile(`^(\d+)\s+<\.\.\. \w+ resumed>(.*)$`)
)

// steps turns a trace into one word or two for every successful call that changes something under dir, locks it, or
// reports, in the order in which the calls ended.
func steps(trace, dir string) []string {
	var all []string
	begun := map[string]string{} // by thread: what strace had to split
	for line := range strings.Lines(trace) {
		line = strings.TrimRight(line, "\n")
		if m := unfinished.FindStringSubmatch(line); m != nil {
			begun[m[1]] = m[2]
			continue
		}
		if m := resumed.FindStringSubmatch(line); m != nil {
			line = m[1] + " " + begun[m[1]] + m[2]
		}
		if s := step(line, dir); s != "" {
			all = append(all, s)
		}
	}
	return all
}

var (
	call = regexp.MustCompile(`^\d+\s+(\w+)\((.*)\)\s+= (-?\d+)`)
	temp = regexp.MustCompile(`\.keypost-[A-Z0-9]+\.tmp`)
)

func step(line, dir string) string {
	m := call.FindStringSubmatch(line)
	if m == nil || strings.HasPrefix(m[3], "-") {
		return ""
	}
	name, args := m[1], temp.ReplaceAllString(m[2], "temporary")
	in := func(base string) bool { return strings.Contains(args, filepath.Join(dir, base)) }
	reads := name == "openat" && !strings.Contains(args, "O_WRONLY") && !strings.Contains(args, "O_RDWR")
	switch {
	case name == "write" && strings.HasPrefix(args, "1<"):
		return "report"
	case !strings.Contains(args, dir) || reads || name == "openat" && in(".keypost.lock"):
		return ""
	case name == "flock" && in(".keypost.lock"):
		return "lock .keypost.lock"
	case strings.HasPrefix(name, "unlink") && in(".keypost.lock"):
		return "unlink .keypost.lock"
	case name == "openat" && in("temporary") && strings.Contains(args, "O_CREAT|O_EXCL"):
		return "create temporary"
	case strings.HasPrefix(name, "rename") && in("temporary") && strings.HasSuffix(args, `"`+filepath.Join(dir, "prod-a.yaml")+`"`):
		return "rename temporary to prod-a.yaml"
	case in("temporary"):
		return name + " temporary"
	case strings.HasSuffix(args, "<"+dir+">"):
		return name + " directory"
	}
	return name + " " + args
}
