package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// faulty notes every call and lets one of them fail.
type faulty struct {
	FS
	w     Writer
	calls []string
	fail  int // index of the call that fails
}

var errFault = errors.New("fault")

func (f *faulty) call(op, name string) error {
	if f.w.IsTemp(filepath.Base(name)) {
		name = "temp"
	}
	f.calls = append(f.calls, op+" "+filepath.Base(name))
	if len(f.calls)-1 == f.fail {
		return errFault
	}
	return nil
}

func (f *faulty) Create(name string, mode fs.FileMode) (File, error) {
	if err := f.call("create", name); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name, mode)
	return &faultyFile{file, f, name}, err
}

func (f *faulty) Open(name string) (File, error) {
	if err := f.call("open", "dir"); err != nil {
		return nil, err
	}
	file, err := f.FS.Open(name)
	return &faultyFile{file, f, "dir"}, err
}

func (f *faulty) Rename(from, to string) error {
	return errors.Join(f.call("rename", to), f.unless(func() error { return f.FS.Rename(from, to) }))
}

func (f *faulty) Remove(name string) error {
	return errors.Join(f.call("remove", name), f.unless(func() error { return f.FS.Remove(name) }))
}

// unless makes a call that was not to fail.
func (f *faulty) unless(call func() error) error {
	if len(f.calls)-1 == f.fail {
		return nil
	}
	return call()
}

type faultyFile struct {
	File
	f    *faulty
	name string
}

func (f *faultyFile) Write(p []byte) (int, error) {
	if err := f.f.call("write", f.name); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, err
	}
	return f.File.Write(p)
}

func (f *faultyFile) Sync() error { return errors.Join(f.f.call("sync", f.name), f.File.Sync()) }
func (f *faultyFile) Close() error {
	return errors.Join(f.f.call("close", f.name), f.File.Close())
}

func TestReplace(t *testing.T) {
	for _, existing := range []bool{false, true} {
		w := Writer{Owner: "test"}
		f := &faulty{FS: osFS{}, w: w, fail: -1}
		w.FS = f
		name := start(t, existing)
		must(t, w.Replace(name, []byte("new content")))
		want := []string{"create temp", "write temp", "sync temp", "close temp", "rename file", "open dir", "sync dir", "close dir"}
		if !slices.Equal(f.calls, want) {
			t.Errorf("calls %q", f.calls)
		}
		if got := content(t, name); got != "new content" {
			t.Errorf("content %q", got)
		}
		checkNames(t, name, "file")
	}
}

// Whichever call fails, a reader sees the old file or the new one, and nothing else is left behind.
func TestReplaceFails(t *testing.T) {
	for _, existing := range []bool{false, true} {
		for fail := range 8 {
			w := Writer{Owner: "test"}
			f := &faulty{FS: osFS{}, w: w, fail: fail}
			w.FS = f
			name := start(t, existing)
			if err := w.Replace(name, []byte("new content")); !errors.Is(err, errFault) {
				t.Errorf("call %d: %v", fail, err)
			}
			old := ""
			if existing {
				old = "old"
			}
			renamed := slices.Index(f.calls, "rename file") >= 0 && fail > slices.Index(f.calls, "rename file")
			if got := content(t, name); renamed && got != "new content" || !renamed && got != old {
				t.Errorf("%s fails: content %q", f.calls[fail], got)
			}
			if renamed || existing {
				checkNames(t, name, "file")
			} else {
				checkNames(t, name)
			}
		}
	}
}

func TestCreate(t *testing.T) {
	for fail := -1; fail < 7; fail++ {
		w := Writer{}
		f := &faulty{FS: osFS{}, w: w, fail: fail}
		w.FS = f
		name := start(t, false)
		err := w.Create(name, []byte("content"))
		if fail < 0 {
			must(t, err)
			if want := []string{"create file", "write file", "sync file", "close file", "open dir", "sync dir", "close dir"}; !slices.Equal(f.calls, want) {
				t.Errorf("calls %q", f.calls)
			}
			if got := content(t, name); got != "content" {
				t.Errorf("content %q", got)
			}
			continue
		}
		if !errors.Is(err, errFault) {
			t.Errorf("call %d: %v", fail, err)
		}
		checkNames(t, name)
	}
	name := start(t, true)
	if err := (Writer{}).Create(name, []byte("content")); !errors.Is(err, fs.ErrExist) || content(t, name) != "old" {
		t.Errorf("it exists: %v, %q", err, content(t, name))
	}
	link := filepath.Join(filepath.Dir(name), "link")
	must(t, os.Symlink("nowhere", link))
	if err := (Writer{}).Create(link, []byte("content")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a link: %v", err)
	}
}

func TestMode(t *testing.T) {
	name := start(t, false)
	for mode, want := range map[fs.FileMode]fs.FileMode{0: 0o600, 0o400: 0o400, 0o700: 0o700} {
		must(t, Writer{Owner: "test", Mode: mode}.Replace(name, nil))
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("mode %o: %v, %v", mode, info.Mode(), err)
		}
	}
}

// Below a root, no link leads out of it.
func TestRoot(t *testing.T) {
	outside, inside := t.TempDir(), t.TempDir()
	root, err := os.OpenRoot(inside)
	must(t, err)
	defer root.Close()
	w := Writer{FS: Root{root}, Owner: "test"}
	must(t, os.Mkdir(filepath.Join(inside, "sub"), 0o700))
	must(t, w.Replace("sub/file", []byte("content")))
	if got := content(t, filepath.Join(inside, "sub/file")); got != "content" {
		t.Errorf("content %q", got)
	}
	must(t, os.Symlink(outside, filepath.Join(inside, "out")))
	if err := w.Replace("out/file", nil); err == nil {
		t.Error("it followed a link out of the root")
	}
	checkNames(t, filepath.Join(outside, "x"))
}

// Of two owners in one directory none takes the other's files for its own.
func TestIsTemp(t *testing.T) {
	owners := []string{"keypost", "keypost-mirror", "keypost-export", "other"}
	for _, a := range owners {
		var temp string
		must(t, Writer{Owner: a, FS: &capture{FS: osFS{}, temp: &temp}}.Replace(start(t, false), nil))
		for _, b := range owners {
			if got := (Writer{Owner: b}).IsTemp(temp); got != (a == b) {
				t.Errorf("%s takes %s for its own: %t", b, temp, got)
			}
		}
	}
	for _, base := range []string{"", ".keypost-.tmp", ".keypost-ABC", "keypost-ABC.tmp", ".keypost-ABC.tmp.yaml", ".keypost-mirror.json", ".keypost.lock"} {
		if (Writer{Owner: "keypost"}).IsTemp(base) {
			t.Errorf("%q passes for a temporary file", base)
		}
	}
}

type capture struct {
	FS
	temp *string
}

func (c *capture) Rename(from, to string) error {
	*c.temp = filepath.Base(from)
	return c.FS.Rename(from, to)
}

func TestRemoveTemps(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	for _, name := range []string{".test-ABC.tmp", ".test-OLD.tmp", ".other-ABC.tmp", "file", "sub/.test-ABC.tmp"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	past := time.Now().Add(-2 * time.Hour)
	must(t, os.Chtimes(filepath.Join(dir, ".test-OLD.tmp"), past, past))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	w := Writer{Owner: "test"}
	must(t, w.RemoveTemps(root, ".", time.Hour))
	checkNames(t, filepath.Join(dir, "x"), ".other-ABC.tmp", ".test-ABC.tmp", "file", "sub")
	must(t, w.RemoveTemps(root, ".", 0))
	checkNames(t, filepath.Join(dir, "x"), ".other-ABC.tmp", "file", "sub")
	must(t, w.RemoveTemps(root, "sub", 0))
	checkNames(t, filepath.Join(dir, "sub", "x"))
	if err := w.RemoveTemps(root, "absent", 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

// start returns the path of a file in a new directory.
func start(t *testing.T, existing bool) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if existing {
		must(t, os.WriteFile(name, []byte("old"), 0o600))
	}
	return name
}

func content(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

func checkNames(t *testing.T, name string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(name))
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has %s, want %s", filepath.Dir(name), strings.Join(got, " "), strings.Join(want, " "))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
