package listen

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A secret that every user of the machine may read is told of; not one in a volume of Kubernetes, whose files are 0644 in a container that
// has no other users.
func TestExposedSecrets(t *testing.T) {
	dir := t.TempDir()
	secret := func(name string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("0123456789abcdef"), 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	link := func(to, name string) string {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.Symlink(to, file)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	open := secret("open", 0o644)
	linked := link("open", "linked")
	mounted := secret("volume/..2026_01_01/secret", 0o644)
	link("..2026_01_01", "volume/..data")
	files := []string{open, linked, secret("own", 0o600), secret("group", 0o640), secret("volume/secret", 0o644), link("..data/secret", "volume/through"), mounted}
	shield, err := NewShield(ShieldConfig{Header: "X-Secret", SecretFiles: files})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := shield.Exposed(), []string{open, linked, filepath.Join(dir, "volume/secret")}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
