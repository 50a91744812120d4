package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
)

// An origin that no policy names is not asked, whatever the flags say. Whoever names one is told so: a mistyped origin would be one that
// nobody has looked at.
func TestOriginOfNoPolicy(t *testing.T) {
	dir, c := t.TempDir(), checked{t}
	st, err := filestore.Create(dir)
	c.Check(err)
	spec := testSpec(t, "prod-a", "https://oidc.invalid/prod-a") // answers nowhere (RFC 6761, section 6.4)
	spec.Policy.Origins = []string{"origin.invalid"}
	set, err := keystore.New(keystore.Change{At: time.Now(), By: "a", Why: "b"}, spec)
	c.Check(err)
	c.Check(keystore.Create(t.Context(), keystore.NewStore(st), set))
	header := filepath.Join(t.TempDir(), "header")
	c.Check(os.WriteFile(header, []byte("X-Origin-Secret: 0123456789abcdef\n"), 0o600))
	for _, command := range [][]string{{"verify"}, {"issuer", "observe", "--observations", "file://" + t.TempDir()}} {
		for origin, want := range map[string]string{"origin.invalid": "", "ORIGIN.invalid": "", "orgin.invalid": "; did you mean --origin origin.invalid?",
			"another.invalid": "keypost issuer set prod-a --origin origin.invalid --origin another.invalid"} {
			args := append(command, "prod-a", "--store", "file://"+dir, "--origin", origin, "--origin-header-file", header)
			_, stderr := showsSafely(t, args...)
			told := strings.Contains(stderr, "the origin "+origin+` was not asked: the policy of key set "prod-a" does not name it, it has origin.invalid`)
			adds := strings.Contains(stderr, "issuer set")
			if told != (want != "") || !strings.Contains(stderr, want) || adds != strings.Contains(want, "issuer set") { // a typing error is not to be added
				t.Errorf("keypost %s: told of it: %v, want %q\n%s", strings.Join(args, " "), told, want, stderr)
			}
		}
	}
}
