// Package readme runs the README: what it tells a newcomer to type must work as it stands there.
package readme

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/process"
)

const root = "../.."

var shBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

func blocks(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines > 250 {
		t.Errorf("README.md has %d lines; 250 is the limit", lines)
	}
	var found []string
	for _, m := range shBlock.FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	if len(found) < 4 || found[0] != "make run\nmake test\n" {
		t.Fatalf("README.md must begin with the two commands; found %q", found)
	}
	return found
}

// TestMakeRun runs the first of the two commands; the second is what runs this.
func TestMakeRun(t *testing.T) {
	out := run(t, root, []string{"ONCE=1", "PORT=" + freePort(t), "ADMIN_PORT=" + freePort(t), "TMPDIR=" + t.TempDir()}, "make", "run")
	for _, want := range []string{"issuer add demo", "keypost verify", "curl --cacert", "/ca.pem --store file://"} {
		if !strings.Contains(out, want) {
			t.Errorf("make run does not print %q:\n%s", want, out)
		}
	}
	for _, unwanted := range []string{"DIR/ca.pem", "no store was given", "\nwarn", "\nfail"} {
		if strings.Contains(out, unwanted) {
			t.Errorf("make run prints %q:\n%s", unwanted, out)
		}
	}
}

// TestGuide runs the blocks marked sh, one after the other in one shell, with the ports replaced by free ones and a
// certificate in place, and then asks the server that they started whether it serves the key set that they made.
func TestGuide(t *testing.T) {
	dir, bin := t.TempDir(), programs(t)
	authority.New(t).Issue(t, dir, "oidc.example.com")
	admin := process.FreeAddress(t)
	script := "set -euo pipefail\ntrap 'kill -KILL $(jobs -p); wait' EXIT\n" + strings.Join(blocks(t)[1:], "") +
		"for i in $(seq 100); do keypost --store file://./keysets issuer list --admin http://127.0.0.1:9090 && exit 0; sleep 0.1; done; exit 1\n"
	script = strings.NewReplacer(":8443", process.FreeAddress(t), "127.0.0.1:9090", admin).Replace(script)
	out := run(t, dir, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, "bash", "-c", script)
	if !strings.Contains(out, "https://oidc.example.com/prod-a") {
		t.Errorf("the guide does not end with a served issuer:\n%s", out)
	}
}

var bin string // what programs built

func TestMain(m *testing.M) {
	os.Exit(process.Main(m, func(dir string) error {
		bin = dir
		return nil
	}))
}

var build = sync.OnceValue(func() error {
	return process.Build(root, bin, "-buildvcs=false", "./cmd/keypost", "./cmd/keypostd")
})

// programs returns a directory with keypost and keypostd.
func programs(t *testing.T) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return bin
}

func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	c.WaitDelay = 10 * time.Second
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func freePort(t *testing.T) string {
	t.Helper()
	_, port, _ := strings.Cut(process.FreeAddress(t), ":")
	return port
}
