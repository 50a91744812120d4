package signingkey

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keypost/keypost/keystore/pubkey"
)

func TestLoadReadsWhatWriteWrote(t *testing.T) {
	for _, kind := range []Kind{RSA2048, P256} {
		k, paths := generated(t, kind), pathsIn(t.TempDir())
		check(t, k.Write(paths))
		loaded, err := Load(paths.Private)
		check(t, err)
		if !loaded.Public().Equal(k.Public()) || fmt.Sprintf("%+v", loaded) != "[signing key]" {
			t.Errorf("%s: loaded another key, or one that shows", kind)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	k, dir := generated(t, P256), t.TempDir()
	pem, err := k.privatePEM()
	check(t, err)
	other, err := generated(t, P256).privatePEM()
	check(t, err)
	public := []byte(k.public.PEM())
	for _, tt := range []struct {
		name string
		make func(path string) error
		want string
	}{
		{"nothing", func(string) error { return nil }, "no such file"},
		{"a directory", func(p string) error { return os.Mkdir(p, 0o700) }, "is not a regular file"},
		{"a pipe", func(p string) error { return syscall.Mkfifo(p, 0o600) }, "is not a regular file"},
		{"two keys", func(p string) error { return os.WriteFile(p, append(bytes.Clone(pem), other...), 0o600) }, "it holds 2 keys, and a cluster signs with one"},
		{"a public key", func(p string) error { return os.WriteFile(p, public, 0o600) }, "it holds only the public half"},
		{"a flood", func(p string) error { return os.WriteFile(p, make([]byte, pubkey.MaxSize+2), 0o600) }, "a flood is larger than"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, tt.name)
			check(t, tt.make(path))
			_, err := Load(path)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if errors.Is(err, fs.ErrNotExist) != (tt.name == "nothing") {
				t.Errorf("%v: as if the file were missing, or not", err)
			}
		})
	}
}

func TestWritePublic(t *testing.T) {
	k, path := generated(t, P256), filepath.Join(t.TempDir(), "sa.pub")
	check(t, k.WritePublic(path))
	data, err := os.ReadFile(path)
	check(t, err)
	keys, err := pubkey.Parse(path, data)
	check(t, err)
	if len(keys) != 1 || !keys[0].Equal(k.Public()) {
		t.Error("another key")
	}
	if err := k.WritePublic(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("again: %v", err)
	}
}

// The installer's copy becomes the key, whole and readable for nobody else, or stays what it was.
func TestInstall(t *testing.T) {
	k := generated(t, P256)
	data, err := k.privatePEM()
	check(t, err)
	other, err := generated(t, P256).privatePEM()
	check(t, err)
	public := []byte(k.public.PEM())
	same := pkcs8(t, k.signer)
	file := func(content ...[]byte) func(string) error {
		return func(p string) error { return os.WriteFile(p, bytes.Join(content, nil), 0o644) }
	}
	for _, tt := range []struct {
		name string
		make func(path string) error
		want []byte // nil: refused
	}{
		{"nothing there", func(string) error { return nil }, data},
		{"the key is there", file(data), data},
		{"the key is there in another form", file(same), data},
		{"a copy that was cut off", file(data[:len(data)/3]), data},
		{"another key", file(other), nil},
		{"the key and bytes of a longer one, as ccoctl leaves them", file(data, other[len(other)/2:]), data},
		{"the public half", file(public), data},
		{"a link to the key", func(p string) error { return errors.Join(file(data)(p+".target"), os.Symlink(p+".target", p)) }, nil},
		{"a dangling link", func(p string) error { return os.Symlink(p+".target", p) }, nil},
		{"a pipe", func(p string) error { return syscall.Mkfifo(p, 0o600) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "installer.key")
			check(t, tt.make(path))
			before, err := os.ReadDir(dir)
			check(t, err)
			err = k.Install(path)
			if tt.want == nil {
				if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "move it away") || !strings.Contains(err.Error(), path) {
					t.Errorf("error %v", err)
				}
				if after, err := os.ReadDir(dir); err != nil || len(after) != len(before) {
					t.Errorf("left behind: %v (%v)", after, err)
				}
				return
			}
			check(t, err)
			got, err := os.ReadFile(path)
			check(t, err)
			info, err := os.Lstat(path)
			check(t, err)
			if !bytes.Equal(got, tt.want) || info.Mode() != 0o600 {
				t.Errorf("mode %v, %d bytes", info.Mode(), len(got))
			}
			if after, err := os.ReadDir(dir); err != nil || len(after) != 1 {
				t.Errorf("left behind: %v (%v)", after, err)
			}
		})
	}
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, ".keypost-key-ABC.tmp"), data, 0o600)) // of a program that was killed
	check(t, k.Install(filepath.Join(dir, "installer.key")))
	if after, err := os.ReadDir(dir); err != nil || len(after) != 1 {
		t.Errorf("left behind: %v (%v)", after, err)
	}
	if err := k.Install(filepath.Join(t.TempDir(), "missing", "installer.key")); err == nil || strings.Contains(err.Error(), "PRIVATE") {
		t.Errorf("without a directory: %v", err)
	}
}
