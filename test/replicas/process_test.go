//go:build e2e_full

package replicas

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/process"
)

// binaries are keypost and keypostd, built once; previous are those of an earlier version.
var binaries, previous string

// previousVersion is what the replicas are put back to: the first version with a mirror, until there is a release.
// KEYPOST_PREVIOUS names another commit or tag.
const previousVersion = "193eaf77ccdea58a2792973ae48cc207708d6f43"

func TestMain(m *testing.M) {
	os.Exit(process.Main(m, build))
}

func build(dir string) error {
	binaries, previous = filepath.Join(dir, "current"), filepath.Join(dir, "previous")
	programs := []string{"-buildvcs=false", "./cmd/keypost", "./cmd/keypostd"}
	if err := process.Build("../..", binaries, programs...); err != nil {
		return err
	}
	version := os.Getenv("KEYPOST_PREVIOUS")
	if version == "" {
		version = previousVersion
	}
	source := filepath.Join(dir, "source")
	script := `mkdir "$2" && git -C ../.. archive "$1" | tar -x -C "$2"`
	if out, err := exec.Command("bash", "-euo", "pipefail", "-c", script, "-", version, source).CombinedOutput(); err != nil {
		return fmt.Errorf("get the previous version %s from Git: %w\n%s", version, err, out)
	}
	return process.Build(source, previous, programs...)
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

// start starts a program with env added to the environment.
func start(t *testing.T, env []string, name string, args ...string) *process.Process {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	return process.Start(t, cmd)
}

// stop asks a program to end, which must be with exit code 0.
func stop(t *testing.T, name string, p *process.Process) {
	t.Helper()
	if code, inTime := p.Stop(process.Patience); code != 0 || !inTime {
		t.Errorf("%s ended with exit code %d, in time: %v", name, code, inTime)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
