package filestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// mountConfigMap lays out dir as kubelet does, and as it does again for every change: a directory of its own for the
// files, the link ..data that is swapped by renaming, and a link for every file that leads through it.
func mountConfigMap(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	must(t, os.Mkdir(filepath.Join(dir, version), 0o755))
	for base, text := range files {
		write(t, filepath.Join(dir, version, base), text)
	}
	old, _ := os.Readlink(filepath.Join(dir, mountData))
	must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, mountData)))
	for base := range files {
		if err := os.Symlink(filepath.Join(mountData, base), filepath.Join(dir, base)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(dir, old)))
	}
}

func TestMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	first := storetest.KeySet(t, "prod-a")
	m := storetest.NewMemStore(t)
	must(t, keystore.Create(t.Context(), m.Store, first))
	second, err := keystore.Update(t.Context(), m.Store, "prod-a", storetest.Mark("x"))
	must(t, err)
	other := storetest.Text(t, storetest.KeySet(t, "prod-b"))

	mountConfigMap(t, dir, "..2026_01", map[string]string{"prod-a.yaml": storetest.Text(t, first), "prod-b.yaml": other})
	st := open(t, dir)
	before := list(t, st)
	if s, rev, err := keystore.NewStore(st).Load(t.Context(), "prod-a"); err != nil || s.Digest() != first.Digest() || rev != before["prod-a"] || len(before) != 2 {
		t.Errorf("Load = generation %d at %q, %v; List = %v", s.Generation(), rev, err, before)
	}
	mountConfigMap(t, dir, "..2026_02", map[string]string{"prod-a.yaml": storetest.Text(t, second), "prod-b.yaml": other})
	after := list(t, st)
	if s, rev, err := keystore.NewStore(st).Load(t.Context(), "prod-a"); err != nil || s.Digest() != second.Digest() || rev != after["prod-a"] {
		t.Errorf("after the swap, Load = generation %d at %q, %v", s.Generation(), rev, err)
	}
	if after["prod-a"] == before["prod-a"] || after["prod-b"] != before["prod-b"] || len(after) != 2 {
		t.Errorf("the swap took List from %v to %v, want another revision of prod-a only", before, after)
	}
	_, err = keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("y"))
	wantReadOnly(t, err, "mounted ConfigMap")
	wantReadOnly(t, keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, "prod-c")), "mounted ConfigMap")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 4 {
		t.Errorf("refused writes left %v, %v", entries, err)
	}
}

func wantReadOnly(t *testing.T, err error, hint string) {
	t.Helper()
	if !errors.Is(err, keystore.ErrReadOnly) || !strings.Contains(err.Error(), hint) {
		t.Errorf("writing = %v, want ErrReadOnly and %q", err, hint)
	}
}

// A link would take the write somewhere else, or be replaced by a file and cut anyone who maintains it off.
func TestNoWriteThroughLinks(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "target.yaml")
	st := open(t, dir)
	text := storetest.Text(t, storetest.KeySet(t, "prod-a"))
	write(t, elsewhere, text)
	must(t, os.Symlink(elsewhere, filepath.Join(dir, "prod-a.yaml")))
	must(t, os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "prod-b.yaml")))
	if _, _, err := keystore.NewStore(st).Load(t.Context(), "prod-a"); err != nil {
		t.Errorf("Load through a link = %v", err)
	}
	_, err := keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("x"))
	wantReadOnly(t, err, "prod-a.yaml is a symbolic link")
	wantReadOnly(t, keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, "prod-b")), "prod-b.yaml is a symbolic link")
	if data, err := os.ReadFile(elsewhere); err != nil || string(data) != text {
		t.Errorf("the target of the link has changed: %v", err)
	}
	must(t, os.Symlink(elsewhere, filepath.Join(dir, lockName)))
	if err := keystore.Create(t.Context(), keystore.NewStore(st), storetest.KeySet(t, "prod-c")); err == nil {
		t.Error("the lock was opened through a link")
	}
}
