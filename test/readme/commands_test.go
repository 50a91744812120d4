package readme

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/keypost/keypost/test/commands"
)

// Every command of the documentation is either run, in a block of README.md marked sh, or somebody's to check. Those
// that are checked neither beside the flags of keypost and keypostd nor in test/chart are checked here.
func TestEveryCommandIsChecked(t *testing.T) {
	all, err := commands.All(root)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, c := range all {
		program := c.Words[0]
		seen[program]++
		checker := commands.Checkers()[program]
		check := here[program]
		if platformCommands[program] != nil && !c.Run {
			check = checkPlatform(program)
		}
		if check != nil {
			if err := check(t, c.Words[1:]); err != nil {
				t.Errorf("%s: %v", c, err)
			}
		} else if strings.Contains(program, "/") {
			if info, err := os.Stat(filepath.Join(root, program)); err != nil || info.Mode()&0o111 == 0 {
				t.Errorf("%s: no program of this repository", c)
			}
		} else if checker == "" && !c.Run {
			t.Errorf("%s: nobody checks commands for %s; see test/commands", c, program)
		} else if checker == "test/readme" && !c.Run {
			t.Errorf("%s: test/commands says that it is checked here", c)
		}
	}
	for program := range commands.Checkers() {
		if seen[program] == 0 {
			t.Errorf("no command for %s was found", program)
		}
	}
}

// here are the programs that have no test of their own.
var here = map[string]func(t *testing.T, args []string) error{"make": checkMake, "go": checkGo, "docker": checkImages, "cosign": checkImages, "grep": checkGrep}

func checkMake(t *testing.T, args []string) error {
	for _, target := range args {
		if strings.Contains(target, "=") {
			continue
		}
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).MatchString(read(t, "Makefile")) {
			return fmt.Errorf("Makefile has no %s", target)
		}
	}
	return nil
}

// checkGo looks at `go install`: its packages must be main packages of this module.
func checkGo(_ *testing.T, args []string) error {
	if len(args) < 2 || args[0] != "install" {
		return nil
	}
	for _, arg := range args[1:] {
		dir, version, _ := strings.Cut(strings.TrimPrefix(arg, "github.com/keypost/keypost/"), "@")
		if text, err := os.ReadFile(filepath.Join(root, dir, "main.go")); err != nil || version != "latest" || !strings.Contains(string(text), "package main") {
			return fmt.Errorf("%s is not a program of this module", arg)
		}
	}
	return nil
}

// checkImages looks at what is done with an image.
func checkImages(_ *testing.T, args []string) error {
	if len(args) == 0 || !slices.Contains([]string{"run", "build", "verify", "verify-blob"}, args[0]) {
		return fmt.Errorf("not a command that this test knows")
	}
	return nil
}

// checkGrep looks for the text in the messages that keypost watch logs, since those are what is read with it.
func checkGrep(t *testing.T, args []string) error {
	if len(args) != 1 || !strings.Contains(read(t, "issuer/verify/watch/log.go"), args[0]) {
		return fmt.Errorf("issuer/verify/watch has no such message")
	}
	return nil
}

// TestNothingIsPublishedUntested: what a release runs is pinned, and every job that publishes waits for the tests of its commit.
func TestNothingIsPublishedUntested(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"ci.yml", "nightly.yml", "release.yml"} {
		for _, uses := range regexp.MustCompile(`uses: (.*)`).FindAllStringSubmatch(read(t, ".github/workflows/"+file), -1) {
			if !regexp.MustCompile(`^(\./\.github/workflows/ci\.yml|\S+@[0-9a-f]{40} # v\S+)$`).MatchString(uses[1]) {
				t.Errorf("%s uses %s: name the commit, and its tag in a comment", file, uses[1])
			}
		}
	}
	_, jobs, _ := strings.Cut(read(t, ".github/workflows/release.yml"), "\njobs:\n")
	for _, job := range regexp.MustCompile(`(?m)^  \w+:\n(    .*\n)*`).FindAllString(jobs, -1) {
		if !strings.HasPrefix(job, "  ci:\n    uses: ./.github/workflows/ci.yml\n") && !regexp.MustCompile(`\n    needs: (ci|images)\n`).MatchString(job) {
			t.Errorf("release.yml does not wait for the tests: %s", job)
		}
	}
	if verify := read(t, ".github/SECURITY.md"); strings.Contains(verify, "--certificate-identity-regexp") ||
		!strings.Contains(verify, "--certificate-identity https://github.com/keypost/keypost/.github/workflows/release.yml@refs/tags/v") {
		t.Error("SECURITY.md does not name the release workflow and its tag as the signer")
	}
}

// documents are the files in which names of a release are written for people, or for the chart.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"*.md", "charts/keypost/*.md", "charts/keypost/values.yaml", "charts/keypost/presets/*.yaml", "charts/keypost/templates/NOTES.txt", ".github/*.md", "provision/*.md", "provision/*/*.md",
		"docs/*.md", "docs/*/*.md", "docs/*/*.yaml", "keystore/*/*.md", "issuer/*/*.md", "test/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name, _ := filepath.Rel(root, f)
			found[name] = read(t, name)
		}
	}
	return found
}

// TestLinks: what a link or a path in the documentation leads to exists, the heading after a # too.
func TestLinks(t *testing.T) {
	links, anchors := 0, 0
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile(`\]\(([^):#]*)(?:#([^)]*))?\)`).FindAllStringSubmatch(text, -1) {
			links++
			to := name
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if m[2] != "" {
				if anchors++; !slices.Contains(headings(read(t, to)), m[2]) {
					t.Errorf("%s: %s has no heading #%s", name, to, m[2])
				}
			}
		}
	}
	if links < 100 || anchors < 50 {
		t.Errorf("only %d links were found, %d to headings", links, anchors)
	}
}

// headings returns the anchors of a page, as forges make them of its headings: letters, digits, hyphens and, for each space, a hyphen.
func headings(text string) (anchors []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		anchors = append(anchors, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return anchors
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
