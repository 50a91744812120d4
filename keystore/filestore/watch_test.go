package filestore

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// observed is a running watch. The channels are large enough for every report of a test.
type observed struct {
	reports chan []keystore.Name
	ended   chan error
}

// observe returns once the watch stands.
func observe(t *testing.T, st *Backend) observed {
	t.Helper()
	o := observed{make(chan []keystore.Name, 10000), make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { o.ended <- st.Watch(ctx, func(n ...keystore.Name) { o.reports <- n }) }()
	t.Cleanup(cancel)
	select {
	case first := <-o.reports:
		if len(first) != 0 {
			t.Errorf("the first report is %v, want one of everything", first)
		}
	case err := <-o.ended:
		t.Fatal(err)
	case <-time.After(5 * time.Second):
		t.Fatal("the watch does not stand after 5 s")
	}
	return o
}

// within is what the watch promises; the machine may be busy, the kernel is not slow.
const within = time.Second

func (o observed) wants(t *testing.T, n keystore.Name) {
	t.Helper()
	late := time.After(within)
	for {
		select {
		case names := <-o.reports:
			if slices.Contains(names, n) || n == "" && len(names) == 0 {
				return
			}
		case err := <-o.ended:
			t.Fatalf("the watch ended: %v", err)
		case <-late:
			t.Fatalf("no report of %q within %v", n, within)
		}
	}
}

func (o observed) wantsEnd(t *testing.T) {
	t.Helper()
	select {
	case err := <-o.ended:
		if err == nil {
			t.Error("the watch ended without an error")
		}
	case <-time.After(5 * within):
		t.Error("the watch goes on")
	}
}

func TestWatchSeesEveryKindOfChange(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir)
	path := func(base string) string { return filepath.Join(dir, base) }
	text := storetest.Text(t, storetest.KeySet(t, "a"))
	create(t, st, "a")
	create(t, st, "b")
	create(t, st, "c")
	o := observe(t, st)
	for _, c := range []struct {
		name   string
		change func()
		want   keystore.Name
	}{
		{"another process replaces it", func() {
			_, err := keystore.Update(t.Context(), keystore.NewStore(open(t, dir)), "a", storetest.Mark("x"))
			must(t, err)
		}, "a"},
		{"an editor writes in place", func() { write(t, path("a.yaml"), text) }, "a"},
		{"an editor renames", func() { write(t, path(".new"), text); must(t, os.Rename(path(".new"), path("a.yaml"))) }, "a"},
		{"it becomes readable", func() { must(t, os.Chmod(path("a.yaml"), 0o640)) }, "a"},
		{"it is removed", func() { must(t, os.Remove(path("b.yaml"))) }, "b"},
		{"it is moved away", func() { must(t, os.Rename(path("c.yaml"), path("c.bak"))) }, "c"},
		{"it comes back", func() { must(t, os.Rename(path("c.bak"), path("c.yaml"))) }, "c"},
		{"a file with a wrong suffix", func() { write(t, path("d.yml"), text) }, "d.yml"},
		{"the mounted data is swapped", func() { must(t, os.Symlink("x", path(mountData))) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.change()
			o.wants(t, c.want)
		})
	}
}

func TestWatchEndsWithItsDirectory(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, dir string){
		"removed":  func(t *testing.T, dir string) { must(t, os.RemoveAll(dir)) },
		"moved":    func(t *testing.T, dir string) { must(t, os.Rename(dir, dir+"-old")) },
		"replaced": func(t *testing.T, dir string) { must(t, os.Rename(dir, dir+"-old")); must(t, os.Mkdir(dir, 0o755)) },
	} {
		t.Run(name, func(t *testing.T) {
			st, err := Create(filepath.Join(t.TempDir(), "store"))
			must(t, err)
			create(t, st, "a")
			o := observe(t, st)
			lose(t, st.Dir())
			o.wantsEnd(t)
		})
	}
	st := open(t, t.TempDir())
	must(t, os.Remove(st.Dir()))
	if err := st.Watch(t.Context(), func(...keystore.Name) {}); err == nil {
		t.Error("Watch of a directory that does not exist returned no error")
	}
}

// git-sync shows a new commit by swapping the link that leads to the checkout; the old one may stay for a while.
func TestWatchEndsWhenALinkToTheDirectoryChanges(t *testing.T) {
	base := t.TempDir()
	for _, commit := range []string{"1", "2"} {
		must(t, os.Mkdir(filepath.Join(base, commit), 0o755))
	}
	create(t, open(t, filepath.Join(base, "2")), "a")
	link := filepath.Join(base, "current")
	must(t, os.Symlink("1", link))
	st := open(t, link)
	o := observe(t, st)
	must(t, os.Symlink("2", link+"_tmp"))
	must(t, os.Rename(link+"_tmp", link))
	o.wantsEnd(t)
	if all := list(t, st); len(all) != 1 {
		t.Errorf("List = %v, want the key set of the new checkout", all)
	}
}
