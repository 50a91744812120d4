// Package golden compares what tests make with files that were read by eye once. KEYPOST_UPDATE=1 writes the files anew.
package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Same fails t unless the file has the text got.
func Same(t testing.TB, file, got string) {
	t.Helper()
	if os.Getenv("KEYPOST_UPDATE") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // part of the source
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // part of the source
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s has another text than\n%s\nKEYPOST_UPDATE=1 writes it anew", file, shown(string(want), got))
	}
}

// mostShown are lines of a text that are shown whole.
const mostShown = 40

// shown returns got, or of a long text the first line that is another one.
func shown(want, got string) string {
	lines, before := strings.Split(got, "\n"), strings.Split(want, "\n")
	if len(lines) <= mostShown {
		return got
	}
	for i, l := range lines {
		if i >= len(before) || before[i] != l {
			return fmt.Sprintf("… line %d:\n%s", i+1, l)
		}
	}
	return fmt.Sprintf("its first %d lines", len(lines))
}
