package durability

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
	"golang.org/x/sys/unix"
)

// ownMounts gives a process its own mounts, and to do so its own user IDs if it is not root.
func ownMounts(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if id := os.Getuid(); id != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
}

// mount mounts a file system in memory, which ends with the process.
func mount(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, options))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func mountable(t *testing.T) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "true")
	ownMounts(c)
	if err := c.Run(); err != nil {
		t.Skipf("this machine allows no mounts: %v", err)
	}
}

// On a full disk nothing is lost and nothing is half there, and the store goes on once there is room.
func TestDiskFull(t *testing.T) {
	mountable(t)
	if !inside(t, ownMounts) {
		return
	}
	dir := mount(t, "size=256k,mode=755")
	st, err := filestore.Open(dir)
	must(t, err)
	set := storetest.KeySet(t, name)
	must(t, keystore.Create(t.Context(), keystore.NewStore(st), set))
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o644); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	wantFull := func(err error) {
		t.Helper()
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "no space left on device") || strings.Contains(err.Error(), "\n") {
			t.Errorf("writing to a full disk = %v, want one sentence that says so", err)
		}
		if got := load(t, st); got.Digest() != set.Digest() {
			t.Errorf("stored is generation %d, want the old document", got.Generation())
		}
		if files := hidden(t, dir); len(files) != 0 {
			t.Errorf("left are %v, want nothing", files)
		}
		if all, err := st.List(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("List = %v, %v; want prod-a", all, err)
		}
	}
	_, err = keystore.Update(t.Context(), keystore.NewStore(st), name, storetest.Mark("x"))
	t.Logf("Update: %v", err)
	wantFull(err)
	wantFull(keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, "prod-b")))
	must(t, os.Remove(filler))
	if _, err := keystore.Update(t.Context(), keystore.NewStore(st), name, storetest.Mark("x")); err != nil {
		t.Errorf("once there is room: %v", err)
	}
}

// A read-only file system is served from and says so to a writer.
func TestReadOnlyFileSystem(t *testing.T) {
	mountable(t)
	if !inside(t, ownMounts) {
		return
	}
	dir := mount(t, "size=1m,mode=755")
	st, err := filestore.Open(dir)
	must(t, err)
	must(t, keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, name)))
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	wantReadOnly(t, st)
}

func wantReadOnly(t *testing.T, st *filestore.Backend) {
	t.Helper()
	load(t, st)
	_, err := keystore.Update(t.Context(), keystore.NewStore(st), name, storetest.Mark("x"))
	t.Logf("Update: %v", err)
	if !errors.Is(err, keystore.ErrReadOnly) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Update = %v, want ErrReadOnly", err)
	}
	err = keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, "prod-b"))
	if !errors.Is(err, keystore.ErrReadOnly) {
		t.Errorf("Create = %v, want ErrReadOnly", err)
	}
	if all, err := st.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("List = %v, %v; want prod-a", all, err)
	}
}

// Without the right to write, or to read a document, the store says so; it never takes that for absence.
func TestMissingRights(t *testing.T) {
	if !inside(t, func(*exec.Cmd) {}) {
		return
	}
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	st, err := filestore.Open(dir)
	must(t, err)
	must(t, keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, name)))
	secret := filepath.Join(dir, "secret.yaml")
	must(t, os.WriteFile(secret, []byte("x"), 0o000))
	must(t, os.Chmod(dir, 0o555))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	if os.Getuid() == 0 { // root may do everything: become nobody
		t.Cleanup(func() { must(t, syscall.Setresuid(0, 0, 0)) })
		must(t, syscall.Setresgid(65534, 65534, 0))
		must(t, syscall.Setresuid(65534, 65534, 0))
	}
	_, _, err = keystore.NewStore(st).Load(t.Context(), "secret")
	t.Logf("Load: %v", err)
	var broken *keystore.BrokenError
	if !errors.Is(err, fs.ErrPermission) || errors.Is(err, keystore.ErrNotFound) || errors.As(err, &broken) {
		t.Errorf("Load of an unreadable document = %v, want that permission is denied", err)
	}
	all, err := st.List(t.Context())
	if err != nil || len(all) != 2 || all["secret"] == "" {
		t.Errorf("List = %v, %v; want prod-a and secret", all, err)
	}
	_, err = keystore.Update(t.Context(), keystore.NewStore(st), name, storetest.Mark("x"))
	if !errors.Is(err, keystore.ErrReadOnly) {
		t.Errorf("Update = %v, want ErrReadOnly", err)
	}
	load(t, st)
}

// On tmpfs a reading of a directory leaves files out that are renamed meanwhile. A store that has seen nothing before
// lists them all the same.
func TestListIsCompleteOnTmpfs(t *testing.T) {
	mountable(t)
	if !inside(t, ownMounts) {
		return
	}
	const n = 500
	dir := mount(t, "size=16m,mode=755")
	path := func(i int) string { return filepath.Join(dir, "prod-"+strconv.Itoa(i)+".yaml") }
	for i := range n {
		must(t, os.WriteFile(path(i), nil, 0o644))
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	renames := 0
	wg.Go(func() {
		for ; !done.Load(); renames++ {
			next := filepath.Join(dir, ".next")
			if err := errors.Join(os.WriteFile(next, nil, 0o644), os.Rename(next, path(renames*37%n))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	listings, restless := 0, 0
	for ; listings < 100; listings++ {
		st, err := filestore.Open(dir)
		must(t, err)
		all, err := st.List(t.Context())
		if err != nil { // allowed: no list at all is better than one that is incomplete
			restless++
			continue
		}
		if len(all) != n {
			t.Errorf("List has %d names, want %d", len(all), n)
		}
	}
	done.Store(true)
	wg.Wait()
	t.Logf("%d listings among %d renames; %d were refused", listings, renames, restless)
	if restless > listings/2 {
		t.Errorf("%d of %d listings were refused", restless, listings)
	}
}
