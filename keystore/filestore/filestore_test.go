package filestore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"golang.org/x/sys/unix"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) keystore.Backend { return open(t, t.TempDir()) })
}

// Two stores on one directory are what two processes have: nothing one of them remembers may matter.
func TestStoreSharedByTwo(t *testing.T) {
	storetest.Run(t, func(t *testing.T) keystore.Backend {
		dir := t.TempDir()
		return &pair{stores: [2]*Backend{open(t, dir), open(t, dir)}}
	})
}

type pair struct {
	stores [2]*Backend
	calls  atomic.Int64
}

func (p *pair) turn() *Backend { return p.stores[p.calls.Add(1)%2] }

func (p *pair) List(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	return p.turn().List(ctx)
}

func (p *pair) Get(ctx context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	return p.turn().Get(ctx, n)
}

func (p *pair) Watch(ctx context.Context, changed func(...keystore.Name)) error {
	return p.stores[0].Watch(ctx, changed)
}

func (p *pair) Put(ctx context.Context, n keystore.Name, old keystore.Revision, doc []byte) (keystore.Revision, error) {
	return p.turn().Put(ctx, n, old, doc)
}

func open(t testing.TB, dir string) *Backend {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t testing.TB, st keystore.Backend, n keystore.Name) keystore.KeySet {
	t.Helper()
	s := storetest.KeySet(t, n)
	if err := keystore.Create(t.Context(), keystore.NewStore(st), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func list(t testing.TB, st keystore.Backend) map[keystore.Name]keystore.Revision {
	t.Helper()
	all, err := st.List(t.Context())
	must(t, err)
	return all
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "")
	for path, want := range map[string]string{
		filepath.Join(dir, "absent"): "does not exist; make it, or mount",
		file:                         "is not a directory",
		filepath.Join(file, "x"):     "not a directory",
	} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%s) = %v, want an error with %q", path, err, want)
		}
	}
	t.Chdir(dir)
	if s := open(t, "."); s.Dir() != dir {
		t.Errorf("Dir = %s, want %s", s.Dir(), dir)
	}
}

// A directory that is not mounted yet is trouble until it is there, and never an empty store.
func TestAtADirectoryThatIsMissing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	b, err := At(dir)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := b.List(t.Context()); err == nil {
		t.Errorf("List = %v", all)
	}
	if _, _, err := b.Get(t.Context(), "prod-a"); err == nil || errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Get: %v", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if all, err := b.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("List = %v, %v once it is there", all, err)
	}
}

func TestDocumentsAreReadableByTheServer(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	st := open(t, dir)
	create(t, st, "prod-a")
	_, err := keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("x"))
	must(t, err)
	info, err := os.Stat(filepath.Join(dir, "prod-a.yaml"))
	if err != nil || info.Mode() != 0o644 {
		t.Errorf("the document is %v, %v; want a file of mode 0644", info, err)
	}
	path := filepath.Join(dir, lockName)
	unlock, err := lock(t.Context(), path)
	must(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode()&0o007 != 0 {
		t.Errorf("the lock is %v, %v; others must not be able to take it", info, err)
	}
	unlock()
}

// A directory that is made is readable by the server too, whatever the umask, and keeps what its parent passes on.
func TestDirectoryIsReadableByTheServer(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	parent := t.TempDir()
	must(t, os.Chmod(parent, 0o755|os.ModeSetgid))
	for _, umask := range []int{0o022, 0o027, 0o077} {
		syscall.Umask(umask)
		dir := filepath.Join(parent, fmt.Sprint(umask))
		if _, err := Create(dir); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o755 {
			t.Errorf("umask %03o: the directory is %v, %v; want mode 0755 and setgid", umask, info.Mode(), err)
		}
	}
}

// Anyone who may write the directory may take the lock, whatever the umask of the one who made it, and nobody else may.
func TestLockIsForWhoMayWrite(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	for _, umask := range []int{0o022, 0o077} {
		syscall.Umask(umask)
		for dirMode, want := range map[os.FileMode]os.FileMode{0o755: 0o600, 0o700: 0o600, 0o775: 0o660, 0o770: 0o660, 0o777: 0o666} {
			dir := t.TempDir()
			must(t, os.Chmod(dir, dirMode))
			group := os.Getegid()
			if os.Geteuid() == 0 {
				group = 4711
				must(t, os.Chown(dir, -1, group))
			}
			path := filepath.Join(dir, lockName)
			unlock, err := lock(t.Context(), path)
			must(t, err)
			info, err := os.Stat(path)
			must(t, err)
			if gid := info.Sys().(*syscall.Stat_t).Gid; info.Mode() != want || int(gid) != group {
				t.Errorf("umask %03o, directory %v: the lock is %v of group %d, want %v of %d", umask, dirMode, info.Mode(), gid, want, group)
			}
			unlock()
		}
	}
}

// oddities fills dir with what may lie in a directory of key sets and returns what List must name.
func oddities(t *testing.T, dir string) []keystore.Name {
	at := func(base string) string { return filepath.Join(dir, base) }
	for _, ignored := range []string{".hidden.yaml", ".prod-a.yaml.swp", "prod-a.yaml~", "#prod-a.yaml#", "prod-a.yaml.bak", "prod-a.json", "README.md", ".keypost-X.tmp", "prod-a.YAML"} {
		write(t, at(ignored), "x")
	}
	must(t, os.Mkdir(at(".git"), 0o755))
	must(t, os.Symlink("nowhere", at("dangling.yaml")))
	write(t, at("Upper.yaml"), "x")
	write(t, at("two words.yaml"), "x")
	write(t, at(strings.Repeat("a", 64)+".yaml"), "x")
	write(t, at("mistake.yml"), "x")
	write(t, at("empty.yaml"), "")
	write(t, at("large.yaml"), "")
	must(t, os.Truncate(at("large.yaml"), 10<<30))
	must(t, os.Mkdir(at("directory.yaml"), 0o755))
	must(t, os.Symlink("loop.yaml", at("loop.yaml")))
	must(t, unix.Mkfifo(at("pipe.yaml"), 0o644))
	must(t, os.Symlink("/dev/zero", at("device.yaml")))
	must(t, os.Symlink("/proc/uptime", at("process.yaml"))) // says that it is a regular file; /proc/kmsg does too, and blocks
	l, err := net.Listen("unix", at("socket.yaml"))
	if err != nil {
		t.Logf("no socket: %v", err) // the path may be too long for one
		return []keystore.Name{"Upper", "two words", keystore.Name(strings.Repeat("a", 64)), "mistake.yml", "empty", "large", "directory", "loop", "pipe", "device", "process"}
	}
	t.Cleanup(func() { _ = l.Close() })
	return []keystore.Name{"Upper", "two words", keystore.Name(strings.Repeat("a", 64)), "mistake.yml", "empty", "large", "directory", "loop", "pipe", "device", "process", "socket"}
}

func TestOdditiesAreListedAndBroken(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	create(t, st, "prod-a")
	want := append(oddities(t, dir), "prod-a")
	all := list(t, st)
	if len(all) != len(want) {
		t.Errorf("List = %v, want %v", all, want)
	}
	for _, n := range want {
		if all[n] == "" {
			t.Errorf("List has no revision of %q", n)
		}
		if n == "prod-a" || n == "loop" { // a loop of links is trouble, not a document
			continue
		}
		var broken *keystore.BrokenError
		_, rev, err := keystore.NewStore(st).Load(t.Context(), n)
		if !errors.As(err, &broken) || broken.Name != n {
			t.Errorf("Load(%q) = %v, want a BrokenError", n, err)
		}
		if rev != all[n] {
			t.Errorf("Load(%q) has revision %q, List %q", n, rev, all[n])
		}
	}
	if _, _, err := keystore.NewStore(st).Load(t.Context(), "loop"); err == nil || errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Load(loop) = %v, want another error", err)
	}
	if _, _, err := keystore.NewStore(st).Load(t.Context(), "dangling"); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Load(dangling) = %v, want ErrNotFound", err)
	}
}

// counting counts the files that are opened for reading.
type counting struct {
	disk
	opened []string
}

func (c *counting) Open(path string, flag int) (file, error) {
	c.opened = append(c.opened, filepath.Base(path))
	return c.disk.Open(path, flag)
}

func TestListReadsOnlyWhatChanged(t *testing.T) {
	dir := t.TempDir()
	writer := open(t, dir)
	for _, n := range []keystore.Name{"a", "b", "c"} {
		create(t, writer, n)
	}
	c := &counting{disk: osDisk{}}
	st := newBackend(dir, c)
	st.now = func() time.Time { return time.Now().Add(2 * racy) }
	first := list(t, st)
	if len(c.opened) != 3 {
		t.Errorf("the first List opened %v, want three documents", c.opened)
	}
	c.opened = nil
	list(t, st)
	if len(c.opened) != 0 {
		t.Errorf("a List of what did not change opened %v", c.opened)
	}
	_, err := keystore.Update(t.Context(), keystore.NewStore(writer), "b", storetest.Mark("x"))
	must(t, err)
	second := list(t, st)
	if !slices.Equal(c.opened, []string{"b.yaml"}) {
		t.Errorf("after a change of b, List opened %v", c.opened)
	}
	if second["a"] != first["a"] || second["b"] == first["b"] || second["c"] != first["c"] {
		t.Errorf("List went from %v to %v, want another revision of b only", first, second)
	}
}

// What was written a moment ago may be written again without a trace in size and times, so it is read again.
func TestListDoesNotTrustYoungTimes(t *testing.T) {
	dir := t.TempDir()
	create(t, open(t, dir), "a")
	c := &counting{disk: osDisk{}}
	st := newBackend(dir, c)
	list(t, st)
	list(t, st)
	if len(c.opened) != 2 {
		t.Errorf("two Lists at once opened %v, want the document twice", c.opened)
	}
}

func TestRevisionFollowsBytes(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	set := create(t, st, "a")
	path := filepath.Join(dir, "a.yaml")
	first := list(t, st)["a"]
	info, err := os.Stat(path)
	must(t, err)

	// An editor that writes in place, the same length, and puts the time of modification back.
	text := storetest.Text(t, set)
	write(t, path, strings.Replace(text, "issuer added", "issuer ADDED", 1))
	must(t, os.Chtimes(path, time.Time{}, info.ModTime()))
	second := list(t, st)["a"]
	if second == first {
		t.Error("an edit of the same length and time has the revision from before")
	}
	// Another file with the same bytes, as git checkout makes it.
	must(t, os.Remove(path))
	write(t, path, text)
	if again := list(t, st)["a"]; again != first {
		t.Errorf("the same bytes have revision %q, before %q", again, first)
	}
}

func TestLockWaitsNoLongerThanItsContext(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	unlock, err := lock(t.Context(), filepath.Join(dir, lockName))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := keystore.NewStore(st).Replace(ctx, "", storetest.KeySet(t, "a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Replace while another writer has the lock = %v, want that the deadline was exceeded", err)
	}
	if all := list(t, st); len(all) != 0 { // and readers do not wait at all
		t.Errorf("List = %v, want nothing", all)
	}
	unlock()
	create(t, st, "a")
}

// Somebody cleans the checkout while one writer works and another waits: the one that waits must not go on with a lock
// that nobody else sees.
func TestLockFileRemovedMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), lockName)
	first, err := lock(t.Context(), path)
	must(t, err)
	waiting := make(chan func(), 1)
	go func() {
		unlock, err := lock(t.Context(), path)
		if err != nil {
			t.Error(err)
		}
		waiting <- unlock
	}()
	for deadline := time.Now().Add(10 * time.Second); !blocked(t, path); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the second writer does not wait for the lock")
		}
	}
	must(t, os.Remove(path))
	third, err := lock(t.Context(), path)
	must(t, err)
	first()
	select {
	case <-waiting:
		t.Fatal("two writers have the lock")
	case <-time.After(100 * time.Millisecond):
	}
	third()
	(<-waiting)()
}

// blocked reports whether somebody waits for the lock at path: proc_locks(5) marks waiting ones with an arrow.
func blocked(t *testing.T, path string) bool {
	t.Helper()
	st, err := osDisk{}.Stat(path)
	must(t, err)
	locks, err := os.ReadFile("/proc/locks")
	must(t, err)
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, "->") && strings.Contains(line, fmt.Sprintf(":%d ", st.ino)) {
			return true
		}
	}
	return false
}

// unsteady is a file that changes while it is read, as often as left says.
type unsteady struct {
	disk
	left *int
}

type unsteadyFile struct {
	file
	left *int
}

func (u unsteady) Open(path string, flag int) (file, error) {
	f, err := u.disk.Open(path, flag)
	return unsteadyFile{f, u.left}, err
}

func (f unsteadyFile) Stat() (stamp, error) {
	st, err := f.file.Stat()
	if *f.left > 0 {
		*f.left--
		st.mtime += int64(*f.left) + 1
	}
	return st, err
}

// A file that is written in place at that moment is in nobody else's way, and is read the next time.
func TestAFileThatIsWrittenInPlaceIsNeverHalfRead(t *testing.T) {
	dir := t.TempDir()
	create(t, open(t, dir), "a")
	left := 1
	st := newBackend(dir, unsteady{osDisk{}, &left})
	if _, _, err := keystore.NewStore(st).Load(t.Context(), "a"); !keystore.OfDocument(err) || !strings.Contains(err.Error(), "changed while it was read") {
		t.Errorf("Load = %v", err)
	}
	left = 1
	if _, ok := list(t, st)["a"]; !ok {
		t.Error("List leaves out what is being written")
	}
	if _, _, err := keystore.NewStore(st).Load(t.Context(), "a"); err != nil {
		t.Errorf("Load = %v once it is written", err)
	}
}

// flickering leaves names out of a listing, one after the other, as btrfs and tmpfs do for files that are renamed over
// another meanwhile. The directory's time shows that something changed.
type flickering struct {
	disk
	dir  string
	turn int
}

func (f *flickering) Names(dir string) ([]string, error) {
	names, err := f.disk.Names(dir)
	slices.Sort(names)
	f.turn++
	return slices.Delete(names, f.turn%len(names), f.turn%len(names)+1), errors.Join(err, os.Chtimes(f.dir, time.Time{}, time.Now()))
}

func TestListIsCompleteWhileFilesAreRenamed(t *testing.T) {
	dir := t.TempDir()
	writer := open(t, dir)
	for i := range 5 {
		create(t, writer, keystore.Name(fmt.Sprintf("prod-%d", i)))
	}
	for range 20 {
		st := newBackend(dir, &flickering{disk: osDisk{}, dir: dir})
		for range 3 {
			if all := list(t, st); len(all) != 5 {
				t.Fatalf("List = %v, want five", all)
			}
		}
	}
}
