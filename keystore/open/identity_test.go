package open

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The Git author is that of a commit there, if somebody has configured one and the directory is in a work tree.
func TestGitAuthor(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	home := t.TempDir()
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "EMAIL", "XDG_CONFIG_HOME"} {
		t.Setenv(name, "") // restored at the end
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(home))
	dir := filepath.Join(home, "repository", "keysets")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	u, err := Parse(fileURL(dir))
	if err != nil {
		t.Fatal(err)
	}
	b, err := u.Backend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", filepath.Dir(dir)}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	is := func(what, want string) {
		t.Helper()
		if got := Identity(t.Context(), b); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[user]\nname = Jane Doe\nemail = jane@example.com\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	is("no work tree", "")
	run("init", "-q")
	is("the user's", "git:Jane Doe <jane@example.com>")
	run("config", "user.email", "jane@work.example.com")
	is("the repository's", "git:Jane Doe <jane@work.example.com>")
	if err := os.Remove(filepath.Join(home, ".gitconfig")); err != nil {
		t.Fatal(err)
	}
	run("config", "--unset", "user.email")
	is("nobody's", "")
	t.Setenv("PATH", "")
	is("no git", "")
}
