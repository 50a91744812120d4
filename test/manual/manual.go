// Package manual writes manual pages in tests, as roff after man(7), and holds them against groff where that is installed. The
// programs' own packages make the text, so that neither program carries it.
package manual

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Write writes a page, such as keypost.1, below the directory of KEYPOST_MAN, or a temporary one, as man1/keypost.1, where man looks
// for it, and reports what groff finds wrong with it.
func Write(t testing.TB, name, page string) {
	t.Helper()
	dir := os.Getenv("KEYPOST_MAN")
	if dir == "" {
		dir = t.TempDir()
	}
	dir = filepath.Join(dir, "man"+strings.TrimPrefix(filepath.Ext(name), "."))
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // for everybody to read
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil { //nolint:gosec // likewise
		t.Fatal(err)
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		return
	}
	out, err := exec.CommandContext(t.Context(), groff, "-man", "-Kutf8", "-Tutf8", "-ww", "-z", file).CombinedOutput() //nolint:gosec // found in PATH
	if err != nil || len(out) > 0 {
		t.Errorf("%s: %v %s", file, err, out)
	}
}

// Escape makes a line that roff prints as it is.
func Escape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
