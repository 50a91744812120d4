package imports

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every file and package that the page on the architecture names is there.
func TestArchitectureNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile("../../.github/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, m := range regexp.MustCompile("`((?:cmd|internal|issuer|keystore|provision|test|charts|\\.github)(?:/[\\w./-]*)?)`").FindAllStringSubmatch(string(text), -1) {
		named++
		if _, err := os.Stat(filepath.Join("../..", strings.TrimSuffix(m[1], "…"))); err != nil {
			t.Errorf("%s is named and not there", m[1])
		}
	}
	if named < 40 {
		t.Errorf("only %d names were found", named)
	}
}
