package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// stuck is a disk on which calls about some files do not return before they are let go, as on a mount whose server is
// gone.
type stuck struct {
	disk
	mu    sync.Mutex
	files map[string]chan struct{} // by path
	calls int                      // that got stuck
}

func newStuck(paths ...string) *stuck {
	d := &stuck{disk: osDisk{}, files: map[string]chan struct{}{}}
	for _, p := range paths {
		d.files[p] = make(chan struct{})
	}
	return d
}

func (d *stuck) wait(path string) {
	d.mu.Lock()
	free := d.files[path]
	if free != nil {
		d.calls++
	}
	d.mu.Unlock()
	if free != nil {
		<-free
	}
}

func (d *stuck) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calls
}

// letGo ends the trouble with every file.
func (d *stuck) letGo() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, free := range d.files {
		close(free)
	}
	clear(d.files)
}

func (d *stuck) Open(path string, flag int) (file, error) {
	d.wait(path)
	return d.disk.Open(path, flag)
}

func (d *stuck) Stat(path string) (stamp, error) {
	d.wait(path)
	return d.disk.Stat(path)
}

func (d *stuck) Names(dir string) ([]string, error) {
	d.wait(dir)
	return d.disk.Names(dir)
}

func wantHang(t *testing.T, err error) {
	t.Helper()
	if hanging, ok := errors.AsType[*hang.Error](err); !ok || !strings.Contains(hanging.Error(), "hangs: the file system has not answered since") {
		t.Errorf("error %v, want that the file hangs", err)
	}
}

func numbered(s keystore.KeySet) (keystore.KeySet, error) {
	return s.SetPolicy(keystore.Change{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, keystore.Policy{RelyingParties: []string{fmt.Sprint("g-", s.Generation())}})
}

// A store that hangs is trouble and never an empty one. Its callers get an error after patience, and at once while a call has not
// come back; then it goes on as before.
func TestTheStoreHangs(t *testing.T) {
	dir := t.TempDir()
	create(t, open(t, dir), "a")
	for what, path := range map[string]string{"the directory": dir, "a document": filepath.Join(dir, "a.yaml")} {
		synctest.Test(t, func(t *testing.T) {
			disk := newStuck(path)
			st := newBackend(dir, disk)
			store := keystore.NewStore(st)
			began := time.Now()
			for range 10 {
				_, err := st.List(t.Context())
				wantHang(t, err)
				_, _, err = store.Load(t.Context(), "a")
				wantHang(t, err)
				_, err = keystore.Update(t.Context(), store, "a", numbered)
				wantHang(t, err)
				wantHang(t, st.Watch(t.Context(), func(...keystore.Name) {}))
			}
			if disk.count() != 1 || time.Since(began) != patience {
				t.Errorf("%s: %d calls hang, and it took %v", what, disk.count(), time.Since(began))
			}
			disk.letGo()
			synctest.Wait()
			if all := list(t, st); len(all) != 1 {
				t.Errorf("%s: after the trouble List = %v", what, all)
			}
			if _, err := keystore.Update(t.Context(), store, "a", numbered); err != nil {
				t.Errorf("%s: after the trouble: %v", what, err)
			}
		})
	}
}

// A Put that was given up must not write once the disk is back: its caller has gone on.
func TestAPutThatHangsWritesNothingLater(t *testing.T) {
	dir := t.TempDir()
	create(t, open(t, dir), "a")
	before := contentOf(t, filepath.Join(dir, "a.yaml"))
	synctest.Test(t, func(t *testing.T) {
		st := newBackend(dir, osDisk{})
		_, rev, err := st.Get(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		disk := newStuck(filepath.Join(dir, "a.yaml"))
		st.disk = disk
		_, err = st.Put(t.Context(), "a", rev, []byte("other"))
		wantHang(t, err)
		disk.letGo()
		synctest.Wait()
	})
	if now := contentOf(t, filepath.Join(dir, "a.yaml")); now != before {
		t.Errorf("it holds %q", now)
	}
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return string(data)
}

// What every Backend promises: once ctx is done, a method returns.
func TestContract(t *testing.T) {
	dir := t.TempDir()
	create(t, open(t, dir), "a")
	storetest.RunHanging(t, func(t *testing.T) keystore.Backend {
		disk := newStuck(dir, filepath.Join(dir, "a.yaml"))
		t.Cleanup(disk.letGo)
		return newBackend(dir, disk)
	})
}
