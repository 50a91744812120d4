package keyfiles

import (
	"crypto"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/internal/signingkey"
)

func write(t *testing.T, path string) signingkey.Private {
	t.Helper()
	k, err := signingkey.Generate(signingkey.P256)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Install(path); err != nil {
		t.Fatal(err)
	}
	return k
}

// New files are picked up, others are passed over, and one that cannot be used hides none of the rest.
func TestKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := Open(dir)
	expect := func(wantErr string, files ...string) {
		t.Helper()
		keys, err := d.Keys(t.Context())
		if err == nil != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("error %v, want %q", err, wantErr)
		}
		var got []string
		for _, k := range keys {
			got = append(got, k.File)
		}
		if strings.Join(got, " ") != strings.Join(files, " ") {
			t.Errorf("%q, want %q", got, files)
		}
	}
	expect("")
	first := write(t, filepath.Join(dir, "a.pem"))
	for _, other := range []string{"readme.txt", ".b.pem"} {
		if err := os.WriteFile(filepath.Join(dir, other), []byte("no key"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect("", "a.pem")
	write(t, filepath.Join(dir, "b.key"))
	expect("", "a.pem", "b.key")
	if err := os.Chmod(filepath.Join(dir, "b.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	expect("run chmod 600", "a.pem")
	if err := os.Chmod(filepath.Join(dir, "b.key"), 0o640); err != nil {
		t.Fatal(err)
	}
	expect("", "a.pem", "b.key")
	if err := os.WriteFile(filepath.Join(dir, "c.pem"), []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect("c.pem", "a.pem", "b.key")
	if err := os.Remove(filepath.Join(dir, "c.pem")); err != nil {
		t.Fatal(err)
	}
	expect("", "a.pem", "b.key")

	// A key of the same size and time takes the place of another.
	info, err := os.Stat(filepath.Join(dir, "b.key"))
	if err != nil {
		t.Fatal(err)
	}
	instead := write(t, filepath.Join(dir, "other"))
	if err := errors.Join(os.Chtimes(filepath.Join(dir, "other"), info.ModTime(), info.ModTime()), os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "b.key"))); err != nil {
		t.Fatal(err)
	}
	if keys, err := d.Keys(t.Context()); err != nil || keys[1].Public().ID() != instead.Public().ID() {
		t.Errorf("the replaced key is not taken: %v", err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	expect("run chmod 700")
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	keys, err := d.Keys(t.Context())
	if err != nil || keys[0].Public().ID() != first.Public().ID() {
		t.Fatal(err)
	}
	if _, err := keys[0].Sign(t.Context(), make([]byte, 32), crypto.SHA256); err != nil {
		t.Error(err)
	}
	if _, err := Open(filepath.Join(dir, "absent")).Keys(t.Context()); err == nil {
		t.Error("a directory that is not there has keys")
	}
}
