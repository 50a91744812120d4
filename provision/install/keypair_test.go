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
