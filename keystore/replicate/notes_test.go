package replicate_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/replicate"
	"github.com/keypost/keypost/keystore/storetest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func noted(t *testing.T) (dir string, root *os.Root) {
	t.Helper()
	dir = t.TempDir()
	root, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { must(t, root.Close()) })
	return dir, root
}

func TestNotesAreReadByTheNextRun(t *testing.T) {
	dir, root := noted(t)
	if _, err := replicate.ReadHeartbeat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a mirror: %v", err)
	}
	n := replicate.NewNotes(root, "s3://b/p")
	if h, err := n.Heartbeat(); err != nil || !reflect.DeepEqual(h, replicate.Heartbeat{}) {
		t.Errorf("at first: %+v, %v", h, err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	status := replicate.MirrorStatus{Complete: at, Held: 3, Refused: map[keystore.Name]lastgood.Rejection{"prod-b": *lastgood.Reject(lastgood.ReasonBroken, "it does not parse")}}
	must(t, n.Write(status))
	want := replicate.Heartbeat{Complete: at, Store: "s3://b/p", KeySets: 3, Refused: 1, Reasons: map[keystore.Name]keystore.Reason{"prod-b": lastgood.ReasonBroken}}
	next := replicate.NewNotes(root, "s3://b/p")
	if h, err := next.Heartbeat(); err != nil || !reflect.DeepEqual(h, want) {
		t.Errorf("the next run: %+v, %v", h, err)
	}
	if h, err := replicate.ReadHeartbeat(dir); err != nil || !reflect.DeepEqual(h, want) {
		t.Errorf("a server: %+v, %v", h, err)
	}
}

// What lies in place of the mirror's own files does not hold it up, nor a server that reads them.
func TestNotesAreRegularFiles(t *testing.T) {
	for name, put := range map[string]func(file string) error{
		"a FIFO":      func(file string) error { return syscall.Mkfifo(file, 0o600) },
		"the kernel":  func(file string) error { return os.Symlink("/proc/kmsg", file) },
		"a device":    func(file string) error { return os.Symlink("/dev/zero", file) },
		"a loop":      func(file string) error { return os.Symlink(file, file) },
		"a large one": func(file string) error { return os.WriteFile(file, make([]byte, 1<<17), 0o600) },
		"half a one":  func(file string) error { return os.WriteFile(file, []byte(`{"complete":`), 0o600) },
	} {
		dir, root := noted(t)
		must(t, put(filepath.Join(dir, replicate.HeartbeatFile)))
		n := replicate.NewNotes(root, "s3://b/p")
		if _, err := n.Heartbeat(); err == nil || os.IsNotExist(err) {
			t.Errorf("%s is read as a heartbeat: %v", name, err)
		}
		if h, err := replicate.ReadHeartbeat(dir); err == nil || os.IsNotExist(err) || !reflect.DeepEqual(h, replicate.Heartbeat{}) {
			t.Errorf("%s is read as a heartbeat: %v", name, err)
		}
		if err := n.Write(replicate.MirrorStatus{}); err != nil {
			t.Errorf("%s is not replaced: %v", name, err)
		}
		if _, err := n.Heartbeat(); err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		}
	}
}

// A copy that is written by two mirrors, and by a store, keeps the temporary files of each.
func TestTemporaryFilesOfOthers(t *testing.T) {
	dir, root := noted(t)
	young, old := filepath.Join(dir, ".keypost-mirror-YOUNG.tmp"), filepath.Join(dir, ".keypost-mirror-OLD.tmp")
	for _, f := range []string{young, old} {
		must(t, os.WriteFile(f, []byte("half a n"), 0o600))
	}
	long := time.Now().Add(-24 * time.Hour)
	must(t, os.Chtimes(old, long, long))
	st, err := filestore.Open(dir)
	must(t, err)
	must(t, keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, "prod-a"))) // removes what its own kind has left
	replicate.NewNotes(root, "s3://b/p")
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the file of another process is gone: %v", err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("what a killed process left stays: %v", err)
	}
}
