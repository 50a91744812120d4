package install_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
)

// Whatever has the name of one half of a key pair, looking for the pair ends, and nothing is made.
func TestCreateKeyPairReadsFilesOnly(t *testing.T) {
	for _, half := range []string{ccoctl.PublicKeyName, ccoctl.PrivateKeyName} {
		for _, tt := range []struct {
			name string
			make func(path string) error
			want string
		}{
			{"a pipe", func(p string) error { return syscall.Mkfifo(p, 0o600) }, "is not a regular file"},
			{"a link to a device", func(p string) error { return os.Symlink("/dev/zero", p) }, "is not a regular file"},
			{"a directory", func(p string) error { return os.Mkdir(p, 0o700) }, "is not a regular file"},
			{"a flood", func(p string) error { return os.WriteFile(p, bytes.Repeat([]byte("#"), pubkey.MaxSize+1), 0o600) }, "is larger than"},
		} {
			t.Run(half+" is "+tt.name, func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, half)
				must(t, tt.make(path))
				made := make(chan error, 1)
				go func() { made <- install.CreateKeyPair(install.Options{Dir: dir}) }()
				select {
				case err := <-made:
					if err == nil || !strings.Contains(err.Error(), path+" "+tt.want) {
						t.Errorf("error %v, want %q", err, tt.want)
					}
				case <-time.After(time.Minute):
					t.Fatal("it waits for the file")
				}
				if there, err := os.ReadDir(dir); err != nil || len(there) != 1 {
					t.Errorf("made %v: %v", there, err)
				}
			})
		}
	}
}

// A key that another user can have put there is not taken; where somebody else can replace it, that is told, once.
func TestCreateKeyPairInADirectoryOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give files away")
	}
	t.Setenv("SUDO_UID", "")
	const other = 65534
	dir := t.TempDir()
	var said []string
	o := install.Options{Dir: dir, Report: func(e install.Event) {
		if e.Kind == install.Warning {
			said = append(said, e.Text)
		}
	}}
	must(t, install.CreateKeyPair(o))
	if len(said) > 0 {
		t.Errorf("warnings %q", said)
	}
	must(t, os.Chown(dir, other, other))
	must(t, install.CreateKeyPair(o))
	if len(said) != 1 || said[0] != "the directory "+dir+" belongs to another user of this machine (uid 65534), who can replace the cluster's keys and manifests there" {
		t.Errorf("warnings %q", said)
	}
	must(t, os.Chown(filepath.Join(dir, ccoctl.PrivateKeyName), other, other))
	if err := install.CreateKeyPair(o); err == nil || !strings.Contains(err.Error(), ccoctl.PrivateKeyName+" belongs to another user of this machine (uid 65534)") {
		t.Errorf("error %v", err)
	}
}
