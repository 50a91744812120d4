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

// The way of a key has at most twenty functions, and each that the page names is there.
func TestTheWayOfAKeyIsThere(t *testing.T) {
	text, err := os.ReadFile("../../.github/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, way, _ := strings.Cut(string(text), "## A PEM file")
	way, _, _ = strings.Cut(way, "\n## ")
	hops := regexp.MustCompile("(?m)^\\d+\\. `([\\w/]+)` `(?:(\\w+)\\.)?(\\w+)`").FindAllStringSubmatch(way, -1)
	if len(hops) < 10 || len(hops) > 20 {
		t.Errorf("the way has %d functions", len(hops))
	}
	for _, hop := range hops {
		dir, receiver, name := hop[1], hop[2], hop[3]
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		declared := regexp.MustCompile(`(?m)^func ` + name + `[\[(]`)
		if receiver != "" {
			declared = regexp.MustCompile(`(?m)^func \(\w* ?\*?` + receiver + `\) ` + name + `\(`)
		}
		found := false
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || !strings.HasSuffix(file, "_test.go") && declared.Match(source)
		}
		if !found {
			t.Errorf("%s has no function %s%s", dir, receiver, name)
		}
	}
}
