package ccoctl

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Of another user's file nothing is taken, and nobody else may write; but a group that is the user's own may, and a sticky bit helps.
func TestWhoCanReplaceAFile(t *testing.T) {
	const me, other, group = 1000, 1001, 2000
	user, root := caller{alike: []uint32{0, me}}, caller{root: true, alike: []uint32{0}}
	sudo := caller{root: true, alike: []uint32{0, me}}
	for _, tt := range []struct {
		name     string
		by       caller
		mode     fs.FileMode
		uid, gid uint32
		want     standing
	}{
		{"my own", user, 0o600, me, me, safe},
		{"my own, with umask 022", user, fs.ModeDir | 0o755, me, group, safe},
		{"my own, with umask 002 and a group of my own", user, fs.ModeDir | 0o775, me, me, safe},
		{"my own, which a group may write", user, fs.ModeDir | 0o775, me, group, openToSome},
		{"root's", user, fs.ModeDir | 0o755, 0, 0, safe},
		{"a volume of a pod", user, fs.ModeDir | fs.ModeSetgid | 0o775, 0, group, openToSome},
		{"another user's", user, 0o600, other, other, ofOthers},
		{"another user's, which everybody may write", user, fs.ModeDir | 0o777, other, other, ofOthers},
		{"everybody's", user, fs.ModeDir | 0o777, 0, 0, openToAll},
		{"everybody's, under root", root, fs.ModeDir | 0o777, 0, 0, openToAll},
		{"another user's and everybody's, under root", root, fs.ModeDir | 0o777, other, other, openToAll},
		{"/tmp", user, fs.ModeDir | fs.ModeSticky | 0o777, 0, 0, safe},
		{"/tmp of another user", user, fs.ModeDir | fs.ModeSticky | 0o777, other, 0, ofOthers},
		{"a file with a sticky bit", user, fs.ModeSticky | 0o666, me, me, openToAll},
		{"a user's, under root", root, 0o600, me, me, ofOthers},
		{"the caller's, under sudo", sudo, 0o600, me, me, safe},
		{"another user's, under sudo", sudo, 0o600, other, other, ofOthers},
	} {
		if got := tt.by.stands(tt.mode, tt.uid, tt.gid); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A key that another user put there is not taken, and no key is put where every user can replace it. (What root finds is told by
// [Shared]: in a container the directory is its user's.)
func TestDirectoriesOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	t.Setenv("SUDO_UID", "")
	const other = 65534
	key := func(d, name string, mode fs.FileMode) error {
		return os.WriteFile(filepath.Join(d, name), []byte("key"), mode)
	}
	for _, tt := range []struct {
		name string
		make func(d string) error
		want string // of the error; empty if the directory is taken
		said string // of what is shared
	}{
		{"root's", func(string) error { return nil }, "", ""},
		{"a key of another user", func(d string) error {
			if err := key(d, PrivateKeyName, 0o600); err != nil {
				return err
			}
			return os.Chown(filepath.Join(d, PrivateKeyName), other, other)
		}, PrivateKeyName + " belongs to another user of this machine (uid 65534), who has the private key then", ""},
		{"an installed key of another user", func(d string) error {
			if err := key(d, SigningKeyName, 0o600); err != nil {
				return err
			}
			return os.Chown(filepath.Join(d, SigningKeyName), other, other)
		}, SigningKeyName + " belongs to another user", ""},
		{"a link of another user", func(d string) error {
			if err := key(d, "mine", 0o600); err != nil {
				return err
			}
			if err := os.Symlink("mine", filepath.Join(d, PrivateKeyName)); err != nil {
				return err
			}
			return os.Lchown(filepath.Join(d, PrivateKeyName), other, other)
		}, PrivateKeyName + " belongs to another user", ""},
		{"a link to a key of another user", func(d string) error {
			if err := key(d, "theirs", 0o600); err != nil {
				return err
			}
			if err := os.Symlink("theirs", filepath.Join(d, PrivateKeyName)); err != nil {
				return err
			}
			return os.Chown(filepath.Join(d, "theirs"), other, other)
		}, PrivateKeyName + " belongs to another user", ""},
		{"a link of root's", func(d string) error {
			if err := key(d, "mine", 0o600); err != nil {
				return err
			}
			return os.Symlink("mine", filepath.Join(d, PrivateKeyName))
		}, "", ""},
		{"a key that everybody may write", func(d string) error {
			if err := key(d, PrivateKeyName, 0o600); err != nil {
				return err
			}
			return os.Chmod(filepath.Join(d, PrivateKeyName), 0o666)
		}, "every user of this machine can replace the private key " + PrivateKeyName + ", and perhaps has (mode 0666)", ""},
		{"everybody's", func(d string) error { return os.Chmod(d, 0o777) },
			"every user of this machine can replace the cluster's keys and manifests in it, since it has the mode 0777; chmod o-w ", ""},
		{"tls for everybody", func(d string) error { return os.Chmod(d+"/tls", 0o777) }, "since tls in it has the mode 0777", ""},
		{"with a sticky bit", func(d string) error { return os.Chmod(d, 0o777|fs.ModeSticky) }, "", ""},
		{"of a user who mounts it", func(d string) error { return os.Chown(d, other, other) }, "", " belongs to another user of this machine (uid 65534)"},
		{"of a group", func(d string) error {
			if err := os.Chown(d, 0, other); err != nil {
				return err
			}
			return os.Chmod(d, 0o775)
		}, "", "a group of users can replace the cluster's keys"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			if _, err := OpenDir(dir, ManifestsDir, TLSDir); err != nil {
				t.Fatal(err)
			}
			if err := tt.make(dir); err != nil {
				t.Fatal(err)
			}
			_, open := OpenDir(dir, TLSDir)
			for _, err := range []error{CheckDir(dir), open} {
				if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "output directory "+dir+": ")) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
			}
			said := Shared(dir)
			if tt.said == "" && tt.want == "" && len(said) > 0 || tt.said != "" && !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, tt.said) }) {
				t.Errorf("shared: %q, want %q", said, tt.said)
			}
		})
	}
}
