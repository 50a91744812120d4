package export_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/export"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

func open(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	check(t, err)
	t.Cleanup(func() { check(t, root.Close()) })
	return root, dir
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The files have the bytes that are served, each discovery document after its keys, and a second export changes nothing.
func TestWrite(t *testing.T) {
	root, dir := open(t)
	s := storetest.KeySet(t, "prod-a")
	u := s.Issuers()[0]
	base := u.Host() + u.Path()
	jwks, err := issuer.RenderJWKS(s)
	check(t, err)
	discovery, err := issuer.RenderDiscovery(s, u)
	check(t, err)
	contents := map[string][]byte{base + issuer.JWKSPath: jwks, base + issuer.JWKSAliasPath: jwks, base + issuer.DiscoveryPath: discovery}
	for _, written := range []bool{true, false} {
		files, err := export.Write(root, s)
		check(t, err)
		if len(files) != 3 || files[2].Name != base+issuer.DiscoveryPath {
			t.Errorf("files %v", files)
		}
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(dir, f.Name))
			check(t, err)
			if !bytes.Equal(data, contents[f.Name]) || f.Written != written {
				t.Errorf("%s: written %t, %s", f.Name, f.Written, data)
			}
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	s := storetest.KeySet(t, "prod-a")
	u := s.Issuers()[0]
	jwks := u.Host() + u.Path() + issuer.JWKSAliasPath
	put := func(content string) func(path string) error {
		return func(path string) error { return os.WriteFile(path, []byte(content), 0o600) }
	}
	for name, tt := range map[string]struct {
		make    func(path string) error
		dropped keystore.KeyID // empty: the file is foreign
	}{
		"a key that is not gone": {put(`{"keys":[{"kid":"old"}]}`), "old"},
		"no JSON":                {put("hello"), ""},
		"no JWKS":                {put(`{"a":1}`), ""},
		"nothing":                {put(""), ""},
		"a pipe":                 {func(path string) error { return syscall.Mkfifo(path, 0o600) }, ""},
		"a directory":            {func(path string) error { return os.Mkdir(path, 0o700) }, ""},
	} {
		root, dir := open(t)
		path := filepath.Join(dir, jwks)
		check(t, os.MkdirAll(filepath.Dir(path), 0o700))
		check(t, tt.make(path))
		files, err := export.Write(root, s)
		dropped, isDropped := errors.AsType[*export.DroppedError](err)
		foreign, isForeign := errors.AsType[*export.ForeignError](err)
		switch {
		case tt.dropped != "" && (!isDropped || dropped.Key != tt.dropped || dropped.File != jwks):
			t.Errorf("%s: %v", name, err)
		case tt.dropped == "" && (!isForeign || foreign.File != jwks):
			t.Errorf("%s: %v", name, err)
		}
		if len(files) > 0 || exists(t, filepath.Join(dir, u.Host()+u.Path()+issuer.JWKSPath)) {
			t.Errorf("%s: it wrote %v", name, files)
		}
	}
}

// A key that is in gone may leave an earlier export, and no link leads out of the directory.
func TestWriteLets(t *testing.T) {
	root, dir := open(t)
	a, b := storetest.Key(t), storetest.Key(t)
	s := storetest.KeySet(t, "prod-a", a, b)
	_, err := export.Write(root, s)
	check(t, err)
	s, err = s.Revoke(keystore.Change{At: storetest.Time(0).Add(1), By: "tester", Why: "lost"}, b.ID(), keystore.RevokeOptions{})
	check(t, err)
	files, err := export.Write(root, s)
	check(t, err)
	if !slices.ContainsFunc(files, func(f export.File) bool { return f.Written }) {
		t.Errorf("nothing was written: %v", files)
	}
	outside := t.TempDir()
	host := filepath.Join(dir, s.Issuers()[0].Host())
	check(t, os.RemoveAll(host))
	check(t, os.Symlink(outside, host))
	if _, err := export.Write(root, s); err == nil {
		t.Error("it followed a link out of the directory")
	}
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}
