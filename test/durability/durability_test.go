package durability

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
)

const name = keystore.Name("prod-a") // what the writer changes

// buildWriter builds the command in ./writer and returns its path.
func buildWriter(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "writer")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./writer").CombinedOutput()
	if err != nil {
		t.Fatalf("build the writer: %v\n%s", err, out)
	}
	return path
}

// prepared returns a store with the key set prod-a, in a directory of its own.
func prepared(t *testing.T) *filestore.Backend {
	t.Helper()
	st, err := filestore.Open(t.TempDir())
	must(t, err)
	must(t, keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, name, storetest.SyntheticRSA(t, 1), storetest.SyntheticRSA(t, 2))))
	return st
}

func load(t *testing.T, st *filestore.Backend) keystore.KeySet {
	t.Helper()
	s, _, err := keystore.NewStore(st).Load(t.Context(), name)
	must(t, err)
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// count returns a number from the environment, or what is bearable in every test run.
func count(t *testing.T, variable string, bearable int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return bearable
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// hidden returns the files in dir that are not documents.
func hidden(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, ".*"))
	must(t, err)
	return files
}

// inside runs this very test again, in a process that prepare may give other rights or its own mounts, and reports
// whether this is that process: the test then does its work, and otherwise ends.
func inside(t *testing.T, prepare func(*exec.Cmd)) bool {
	t.Helper()
	const mark = "KEYPOST_INSIDE"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	self, err := os.Executable()
	must(t, err)
	c := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%s", mark, t.Name()), "GORACE=atexit_sleep_ms=0")
	prepare(c)
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("in its own process: %v", err)
	}
	return false
}
