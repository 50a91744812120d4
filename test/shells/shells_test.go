//go:build e2e

package shells

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keypost/keypost/test/pty"
)

// shell is how a shell is started without anybody's own settings, and how it gets its completions.
type shell struct {
	args  []string
	setup string
	code  string // the exit code of the last command
}

func shells() map[string]shell {
	return map[string]shell{
		"bash": {[]string{"bash", "--norc", "--noprofile", "-i"}, "PS1='at-prompt '; . /usr/share/bash-completion/bash_completion; . <(keypost completion bash)", "$?"},
		"zsh":  {[]string{"zsh", "-f", "-i"}, "PS1='at-prompt '; autoload -U compinit; compinit -u -D; . <(keypost completion zsh)", "$?"},
		"fish": {[]string{"fish", "--no-config", "-i"}, "function fish_prompt; echo -n 'at-prompt '; end; keypost completion fish | source", "$status"},
	}
}

// TestCompletion types the beginning of a line, Tab, and the rest, and looks at what the completed line did.
func TestCompletion(t *testing.T) {
	for name, sh := range shells() {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // shells are waited for
			dir := t.TempDir()
			keypost(t, dir, "key", "generate", "--type", "p256", "--out", "signer")
			for _, issuer := range []string{"prod-a", "test-a"} {
				keypost(t, dir, "issuer", "add", issuer, "--url", "https://oidc.example.com/"+issuer, "--public-key-file", "signer/sa.pub", "--store", "file://./key sets")
			}
			must(t, os.Symlink("key sets", filepath.Join(dir, "keysets"))) // the other name is not a plain word, and is not offered
			term := open(t, dir, sh, "file://./key sets")
			for _, tt := range []struct{ before, after, want string }{
				{"keypost issuer sh", "prod-a", `generation: +1`},
				{"keypost issuer show pr", "-o json", `"name": "prod-a"`},
				{"keypost issuer show --store file://./key", "prod-a", `generation: +1`},
				{"keypost issuer show https://oidc.example.com/t", "-o json", `"name": "test-a"`},
				{"keypost issuer list -o j", "", `"issuers"`},
				{"keypost issuer list --output=j", "", `"issuers"`},
				{"keypost key generate --type p3", "--out new", `ES384`},
				{"keypost issuer set test-a --relying-party v", "-o json", `"vault"`},
				{"keypost issuer set test-a --relying-party aws,v", "-o json", `"aws",\s+"vault"`},
				{"keypost key retire prod-a ", "--why 'the key of a test'", `retired`},
				{"keypost key add prod-a --public-key-file signer/sa.p", "", `published already`},
				{"keypost export o", "--help", `Write what keypostd serves`},
			} {
				term.send(tt.before + "\t " + tt.after + "; echo code=" + sh.code + "\r")
				if said := term.await(`code=\d+\r?\n(?s:.*)at-prompt `); !regexp.MustCompile(tt.want).MatchString(said) {
					t.Errorf("%s, Tab, %s: no %q in\n%s", tt.before, tt.after, tt.want, said)
				}
			}
		})
	}
}

// TestHostileValues: what others called a key or a directory does not run, however often somebody presses Tab.
func TestHostileValues(t *testing.T) {
	for name, sh := range shells() {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // shells are waited for
			dir := t.TempDir()
			for i, kid := range []string{"`touch${IFS}pwned`", "$(touch${IFS}pwned)", "x;touch${IFS}pwned;"} {
				set := fmt.Sprintf("set%d", i)
				must(t, os.WriteFile(filepath.Join(dir, "jwks"), fmt.Appendf(nil, `{"keys": [%s, %s]}`, jwk(t, kid+"1"), jwk(t, kid+"2")), 0o600))
				keypost(t, dir, "issuer", "add", set, "--url", "https://oidc.example.com/"+set, "--jwks", "jwks", "--store", "file://./store")
				must(t, os.Mkdir(filepath.Join(dir, kid+"1"), 0o700))
				must(t, os.Mkdir(filepath.Join(dir, kid+"2"), 0o700))
			}
			must(t, os.Mkdir(filepath.Join(dir, "dir-`touch${IFS}pwned`1"), 0o700))
			must(t, os.Mkdir(filepath.Join(dir, "dir-`touch${IFS}pwned`2"), 0o700))
			term := open(t, dir, sh, "file://./store")
			for _, line := range []string{
				"keypost key revoke set0 ", "keypost key revoke set1 ", "keypost key revoke set2 ", "keypost issuer accept set0 --keep ",
				"keypost key revoke set0 '`", "keypost key revoke set0 \\`", "keypost issuer list --store file://./", "keypost issuer list --store file://./dir",
			} {
				for range 3 {
					term.send(line + "\t\t\t")
					time.Sleep(500 * time.Millisecond)
					line = ""
				}
				term.send("\x03\x15\r")
			}
			term.send("echo do''ne\r")
			term.await(`done\r?\n`)
			if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
				t.Error("what a key or a directory is called was run")
			}
		})
	}
}

// TestSilentStore: Tab gives the prompt back and says nothing, whatever is wrong with the store.
func TestSilentStore(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	for name, sh := range shells() {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // shells are waited for
			term := open(t, t.TempDir(), sh, "s3://bucket/prefix?region=eu-central-1&endpoint=http://"+listener.Addr().String())
			const clear = "\x15" // Ctrl-U: the command itself is not run
			term.send("keypost issuer show pr\t" + clear + "echo code=" + sh.code + "\r")
			said := term.await(`code=\d+\r?\n(?s:.*)at-prompt `)
			if strings.Contains(said, "ompletion ended") || strings.Contains(said, "[Debug]") {
				t.Errorf("the shell shows\n%s", said)
			}
		})
	}
}

// jwk returns a new public key under a kid.
func jwk(t *testing.T, kid string) string {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	must(t, err)
	point := key.PublicKey().Bytes()[1:]
	encode := base64.RawURLEncoding.EncodeToString
	return fmt.Sprintf(`{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": %q, "x": %q, "y": %q}`, kid, encode(point[:32]), encode(point[32:]))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func keypost(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("keypost", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("keypost %q: %v\n%s", args, err, out)
	}
}

// terminal is a shell on a pseudo-terminal.
type terminal struct {
	t      *testing.T
	master *os.File
	mu     sync.Mutex
	said   strings.Builder
}

// open starts a shell, and waits until it has its completions.
func open(t *testing.T, dir string, sh shell, store string) *terminal {
	t.Helper()
	master, slave, err := pty.Open(200)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(sh.args[0], sh.args[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, slave, slave, slave
	home := t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_DATA_HOME=" + home, "TERM=xterm", "LC_ALL=C.UTF-8", "KEYPOST_STORE=" + store,
		"AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=x"}
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	term := &terminal{t: t, master: master}
	go term.read()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = master.Close()
	})
	term.send(sh.setup + "; echo rea''dy\r")
	term.await(`ready\r?\n(?s:.*)at-prompt `)
	return term
}

func (term *terminal) read() {
	buffer := make([]byte, 4096)
	for {
		n, err := term.master.Read(buffer)
		term.mu.Lock()
		term.said.Write(buffer[:n])
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (term *terminal) send(keys string) {
	if _, err := term.master.WriteString(keys); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.said.String()
}

// await waits until what was said since the last time matches, and returns it.
func (term *terminal) await(pattern string) string {
	term.t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if said := term.text(); re.MatchString(said) {
			term.mu.Lock()
			term.said.Reset()
			term.mu.Unlock()
			return said
		}
	}
	term.t.Fatalf("no %q in\n%s", pattern, term.text())
	return ""
}
