package listen

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/keypost/keypost/issuer/listen/shield"
)

// A secret that every user of the machine may read is told of.
func TestExposedSecrets(t *testing.T) {
	var files []string
	for _, mode := range []os.FileMode{0o644, 0o640, 0o600} {
		file := filepath.Join(t.TempDir(), "secret")
		writeFile(t, file, []byte("0123456789abcdef"))
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	shield, err := shield.New(shield.Config{Header: "X-Secret", SecretFiles: files})
	if err != nil {
		t.Fatal(err)
	}
	if got := shield.Exposed(); !slices.Equal(got, files[:1]) {
		t.Errorf("%q, want %q", got, files[:1])
	}
}
