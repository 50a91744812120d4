package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var shownBy = regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)\\w+)`")

// Each line of the threat model names tests that exist, or says that nothing shows it.
func TestThreatModel(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, ".github", "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, model, found := strings.Cut(string(text), "## Threat model\n")
	model, _, ends := strings.Cut(model, "\n## ")
	if !found || !ends {
		t.Fatal("SECURITY.md has no threat model")
	}
	named := 0
	for line := range strings.Lines(model) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") || strings.HasSuffix(strings.TrimSpace(line), "shown by |") {
			continue
		}
		proof := strings.TrimSpace(cells[len(cells)-1])
		tests := shownBy.FindAllStringSubmatch(proof, -1)
		if len(cells) != 3 || len(tests) == 0 && proof != "accepted" && proof != "not shown by a test" {
			t.Errorf("neither a test nor an admission: %s", line)
		}
		if rest := strings.Count(proof, "`") - 2*len(tests); rest != 0 {
			t.Errorf("a test in another form than `package.TestName`: %s", proof)
		}
		for _, m := range tests {
			named++
			if !hasTest(t, m[1], m[2]) {
				t.Errorf("%s has no test %s", m[1], m[2])
			}
		}
	}
	if named < 60 {
		t.Errorf("%d tests are named: the lines are not found", named)
	}
}

func hasTest(t *testing.T, pkg, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
