package filestore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/keystore"
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

// One document that hangs keeps no other from being listed, read and changed, and a poll after the other asks for it
// once.
func TestOneDocumentHangs(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []keystore.Name{"a", "b"} {
		create(t, open(t, dir), n)
	}
	synctest.Test(t, func(t *testing.T) {
		disk := newStuck(filepath.Join(dir, "a.yaml"))
		st := newBackend(dir, disk)
		began := time.Now()
		for range 100 {
			if all := list(t, st); len(all) != 2 || all["a"] == "" {
				t.Fatalf("List = %v, want a and b", all)
			}
			_, _, err := keystore.NewStore(st).Load(t.Context(), "a")
			wantHang(t, err)
			if _, _, err := keystore.NewStore(st).Load(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := keystore.Update(t.Context(), keystore.NewStore(st), "b", numbered); err != nil {
			t.Errorf("the other one cannot be changed: %v", err)
		}
		_, err := keystore.Update(t.Context(), keystore.NewStore(st), "a", numbered)
		wantHang(t, err)
		if disk.count() != 1 || time.Since(began) > 2*hang.Patience {
			t.Errorf("%d calls hang, and it took %v", disk.count(), time.Since(began))
		}
		disk.letGo()
		synctest.Wait()
		before := list(t, st)["a"]
		if _, rev, err := keystore.NewStore(st).Load(t.Context(), "a"); err != nil || rev != before {
			t.Errorf("after the trouble Load = %q, %v; want %q", rev, err, before)
		}
	})
}

func numbered(s keystore.KeySet) (keystore.KeySet, error) {
	return s.SetPolicy(keystore.Change{At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, keystore.Policy{RelyingParties: []string{fmt.Sprint("g-", s.Generation())}})
}

// A directory that hangs is trouble and never an empty one, and whoever waits for it can be stopped.
func TestTheDirectoryHangs(t *testing.T) {
	dir := t.TempDir()
	create(t, open(t, dir), "a")
	synctest.Test(t, func(t *testing.T) {
		disk := newStuck(dir)
		st := newBackend(dir, disk)
		began := time.Now()
		for range 10 {
			_, err := st.List(t.Context())
			wantHang(t, err)
		}
		if disk.count() != 1 || time.Since(began) != hang.Patience {
			t.Errorf("%d calls hang, and ten listings took %v", disk.count(), time.Since(began))
		}
		_, _, err := keystore.NewStore(st).Load(t.Context(), "absent")
		wantHang(t, err)
		wantHang(t, st.Watch(t.Context(), func(...keystore.Name) {}))
		disk.letGo()
		synctest.Wait()
		if all := list(t, st); len(all) != 1 {
			t.Errorf("after the trouble List = %v", all)
		}
	})
}

func TestHangingReadersCanBeStopped(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := newStuck(dir, filepath.Join(dir, "a.yaml"))
		defer disk.letGo()
		st := newBackend(dir, disk)
		ctx, cancel := context.WithTimeout(t.Context(), hang.Patience/2)
		defer cancel()
		_, listErr := st.List(ctx)
		_, _, loadErr := keystore.NewStore(st).Load(ctx, "a")
		if !errors.Is(listErr, context.DeadlineExceeded) || !errors.Is(loadErr, context.DeadlineExceeded) {
			t.Errorf("List = %v and Load = %v, want that the deadline was exceeded", listErr, loadErr)
		}
	})
}

// Calls that hang are bounded: each keeps a thread.
func TestEverythingHangs(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for i := range 3 * hang.Most {
		path := filepath.Join(dir, fmt.Sprintf("n%d.yaml", i))
		write(t, path, "x")
		paths = append(paths, path)
	}
	synctest.Test(t, func(t *testing.T) {
		disk := newStuck(paths...)
		st := newBackend(dir, disk)
		for range 5 {
			if _, err := st.List(t.Context()); err == nil || !strings.Contains(err.Error(), "other files hang already") {
				t.Errorf("List = %v, want that too much hangs", err)
			}
		}
		if disk.count() != hang.Most {
			t.Errorf("%d calls hang, want %d", disk.count(), hang.Most)
		}
		disk.letGo()
		synctest.Wait()
		if all := list(t, st); len(all) != len(paths) {
			t.Errorf("after the trouble List has %d names, want %d", len(all), len(paths))
		}
	})
}
