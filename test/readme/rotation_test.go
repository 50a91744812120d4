package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/process"
)

// TestTryARotation runs what keystore/rotation says to type for a rotation of a development issuer, against the server of make run.
func TestTryARotation(t *testing.T) {
	t.Parallel() // it waits for gates
	text, err := os.ReadFile(filepath.Join(root, "keystore", "rotation", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Try it\n")
	block := shBlock.FindStringSubmatch(section)
	if block == nil || !strings.Contains(block[1], "key retire try KID") {
		t.Fatal("the section does not say what to type")
	}
	dir, bin := t.TempDir(), programs(t)
	address := process.FreeAddress(t)
	server := exec.CommandContext(t.Context(), filepath.Join(bin, "keypostd"), "--dev", dir, "--address", address, "--admin-address", process.FreeAddress(t))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "ca.pem")); err == nil {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("keypostd --dev makes no CA")
		}
	}
	_, port, _ := strings.Cut(address, ":")
	script := strings.NewReplacer("DIR", dir, ":8443", ":"+port).Replace(block[1])
	before, rest, _ := strings.Cut(script, "keypost key retire")
	_, after, _ := strings.Cut(rest, "\n")
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	work := t.TempDir()
	out := run(t, work, env, "bash", "-ec", before)
	// The line as printed and not the block's: one kid in 64 begins with a hyphen and stands behind "--".
	printed := regexp.MustCompile(`keypost key retire (?:try (\S+) --why STATEMENT|--why STATEMENT -- try (\S+))`).FindStringSubmatch(out)
	if printed == nil {
		t.Fatalf("the old key is not named:\n%s", out)
	}
	kid := printed[1] + printed[2]
	exports, _, _ := strings.Cut(before, "\n")
	out = run(t, work, env, "bash", "-ec", exports+"\n"+strings.Replace(printed[0], "STATEMENT", "'no cluster signs for it'", 1)+"\n"+after)
	if !strings.Contains(out, "removed key "+kid) || !strings.HasSuffix(strings.TrimSpace(out), "no rotation is under way") {
		t.Errorf("the rotation does not end:\n%s", out)
	}
}
