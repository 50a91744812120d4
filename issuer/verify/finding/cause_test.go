package finding

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCatalogue: scripts go by the codes, people by the rest.
func TestCatalogue(t *testing.T) {
	form := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	codes, checks := map[string]bool{}, map[string]bool{}
	for _, c := range Causes() {
		checks[c.Check] = true
	}
	for _, c := range Causes() {
		if codes[c.Code] {
			t.Errorf("%s stands twice", c.Code)
		}
		codes[c.Code] = true
		if !form.MatchString(c.Code) || !form.MatchString(c.Check) || checks[c.Code] {
			t.Errorf("%s of check %s: the code has another form, or is a check's", c.Code, c.Check)
		}
		if c.Title == "" || c.Repair == "" {
			t.Errorf("%s does not have a title or a repair", c.Code)
		}
		if err := sourceExists(c.Source); err != nil {
			t.Errorf("%s: %v", c.Code, err)
		}
		if got := CauseOf(c.Code); got.Title != c.Title {
			t.Errorf("CauseOf(%s) is %s", c.Code, got.Title)
		}
		for _, a := range c.Answers {
			if !slices.Contains([]string{AWS, GCP, Entra, Vault, KubeAPIServer}, a.Party) || a.Text == "" {
				t.Errorf("%s: who answers %q is %q", c.Code, a.Text, a.Party)
			}
		}
		f := c.Finding(Fail, "x\x1b\ny", "")
		if f.Code != c.Code || f.Check != c.Check || f.Repair != c.Repair || strings.ContainsAny(f.Evidence, "\x1b\n") {
			t.Errorf("%s makes the finding %+v", c.Code, f)
		}
		if f := c.Finding(Warn, "x", "do it"); f.Repair != "do it" || f.Severity != Warn {
			t.Errorf("%s makes the finding %+v", c.Code, f)
		}
	}
}

// sourceExists returns an error for a source that is not a page, a test or a file of the tree.
func sourceExists(source string) error {
	const root = "../../../"
	dir, test, isTest := strings.Cut(source, " ")
	switch {
	case strings.HasPrefix(source, "https://"):
		return nil
	case !isTest:
		_, err := os.Stat(root + source)
		return err
	}
	files, _ := filepath.Glob(root + dir + "/*_test.go")
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "\nfunc "+test+"(") {
			return nil
		}
	}
	return fmt.Errorf("there is no %q", source)
}

// TestCodesInUse: a code that stands in the source is one of the catalogue's.
func TestCodesInUse(t *testing.T) {
	use := regexp.MustCompile(`(?:CauseOf|\.(?:Fail|Warn)(?:With)?)\("([a-z0-9-]+)"`)
	found := 0
	for _, dir := range []string{"../../../issuer", "../../../provision", "../../../cmd"} {
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") {
				return err
			}
			source, err := os.ReadFile(file)
			for _, m := range use.FindAllSubmatch(source, -1) {
				found++
				if CauseOf(string(m[1])).Title == string(m[1]) {
					t.Errorf("%s: the catalogue has no cause %q", file, m[1])
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 70 {
		t.Errorf("only %d codes were found in the source", found)
	}
	const none = "no-such-code"
	if c := CauseOf(none); c.Code != none || c.Repair == "" {
		t.Errorf("an unknown code makes %+v", c)
	}
}
