package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestInstallPage runs the blocks of docs/install.md marked sh, in a directory with archives as a release has them, and with another
// place for what would go below /usr/local: what is installed runs, and nothing of it is left in the end.
func TestInstallPage(t *testing.T) {
	found := shBlock.FindAllStringSubmatch(read(t, "docs/install.md"), -1)
	if len(found) != 2 {
		t.Fatalf("docs/install.md has %d blocks, not one to install and one to uninstall", len(found))
	}
	dir, place := t.TempDir(), t.TempDir()
	for _, program := range []string{"keypost", "keypostd"} {
		content := filepath.Join(t.TempDir(), program)
		if err := os.Mkdir(content, 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, content, nil, "cp", filepath.Join(programs(t), program), ".")
		run(t, content, nil, "tar", "-czf", filepath.Join(dir, program+"_VERSION_linux_amd64.tar.gz"), ".")
	}
	run(t, dir, nil, "sh", "-c", "sha256sum *.tar.gz > checksums.txt && echo '0123456789012345678901234567890123456789012345678901234567890123  another.tar.gz' >> checksums.txt")
	env := []string{"PATH=" + place + "/bin:" + os.Getenv("PATH")}
	out := run(t, dir, env, "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(found[0][1], "/usr/local", place))
	for _, want := range []string{"\nkeypost ", "\nkeypostd "} {
		if !strings.Contains(out, want) {
			t.Errorf("the block prints no %q:\n%s", want, out)
		}
	}
	if n := count(t, place); n != 2 {
		t.Errorf("%d files were installed", n)
	}
	run(t, dir, env, "bash", "-euo", "pipefail", "-c", strings.ReplaceAll(found[1][1], "/usr/local", place))
	if n := count(t, place); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// count returns how many files there are below a directory.
func count(t *testing.T, dir string) (files int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestHighAvailabilityPage: each claim of docs/high-availability.md names a test, which is where it says.
func TestHighAvailabilityPage(t *testing.T) {
	named := 0
	_, claims, _ := strings.Cut(read(t, "docs/high-availability.md"), "## What one keypostd survives by itself")
	for line := range strings.Lines(claims) {
		tests := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(line, -1)
		if strings.HasPrefix(line, "| ") && !strings.HasSuffix(line, "| shown by |\n") && len(tests) == 0 {
			t.Errorf("nothing shows %s", line)
		}
		files := regexp.MustCompile(`\b[\w/]+_test\.go`).FindAllString(line, -1)
		for _, m := range tests {
			named++
			if !slices.ContainsFunc(files, func(f string) bool { return strings.Contains(read(t, f), "func "+m[1]+"(t *testing.T)") }) {
				t.Errorf("%q have no %s", files, m[1])
			}
		}
	}
	if named < 15 {
		t.Errorf("only %d tests are named", named)
	}
}
