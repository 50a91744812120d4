package page_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/keypost/keypost/issuer/page"
	"github.com/keypost/keypost/keystore"
)

func openDir(t *testing.T, dir string) (*page.Files, error) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	check(t, err)
	t.Cleanup(func() { check(t, root.Close()) })
	return page.Open(root)
}

func TestFiles(t *testing.T) {
	s := newSet(t, "ada", "")
	dir := t.TempDir()
	for _, names := range [][]keystore.Name{{"prod-a", "prod-b"}, {"prod-a"}} {
		f, err := openDir(t, dir)
		check(t, err)
		check(t, f.Write(page.List{About: at(0)}))
		for _, name := range names {
			check(t, f.Write(page.Of(at(0), page.Input{Name: name, Set: &s})))
		}
		check(t, f.Done())
		for file, want := range map[string]bool{
			"index.html": true, "index.json": true, "keysets/prod-a.html": true, "keysets/prod-a.json": true,
			"keysets/prod-b.html": len(names) == 2, "keysets/prod-b.json": len(names) == 2, ".keypost-page.tmp": false,
		} {
			if _, err := os.Stat(filepath.Join(dir, file)); (err == nil) != want {
				t.Errorf("%v: %s: %v", names, file, err)
			}
		}
	}
}

// Pages are never written among documents that everybody reads, nor into somebody else's directory.
func TestFilesRefuse(t *testing.T) {
	for file, want := range map[string]error{
		"oidc.example.com/prod-a/keys.json":                        page.ErrDocuments,
		"oidc.example.com/prod-a/.well-known/openid-configuration": page.ErrDocuments,
		"prod-a.yaml": page.ErrForeign,
		"index.html":  page.ErrForeign,
	} {
		for _, marked := range []bool{false, true} {
			dir := t.TempDir()
			check(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
			check(t, os.WriteFile(filepath.Join(dir, file), []byte("theirs"), 0o600))
			if marked {
				if errors.Is(want, page.ErrForeign) {
					continue // somebody has put it there since, and it is not ours to judge
				}
				check(t, os.WriteFile(filepath.Join(dir, page.Marker), nil, 0o600))
			}
			if _, err := openDir(t, dir); !errors.Is(err, want) {
				t.Errorf("%s, marked %t: %v", file, marked, err)
			}
			if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != "theirs" {
				t.Errorf("%s: %q, %v", file, got, err)
			}
		}
	}
}

// A link that somebody has put into the directory leads no page out of it.
func TestFilesStayInside(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "theirs")
	f, err := openDir(t, dir)
	check(t, err)
	check(t, os.Symlink(outside, filepath.Join(dir, "index.html")))
	check(t, f.Write(page.List{About: at(0)}))
	if _, err := os.Lstat(outside); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if i, err := os.Lstat(filepath.Join(dir, "index.html")); err != nil || !i.Mode().IsRegular() {
		t.Errorf("%v, %v", i, err)
	}
}
