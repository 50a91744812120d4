package observe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/authority"
)

func TestReadShield(t *testing.T) {
	dir := t.TempDir()
	authority.New(t).Issue(t, dir, "cdn.example.com")
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", "X-Origin-Secret:  of: colons \n")
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for name, tt := range map[string]struct{ origin, header, cert, key, err string }{
		"none":               {},
		"both":               {"o.example.com, p.example.com:8443", good, cert, key, ""},
		"no file":            {"o.example.com", dir + "/none", "", "", "no such file"},
		"no colon":           {"o.example.com", file("a", "secret"), "", "", "write NAME: VALUE"},
		"no value":           {"o.example.com", file("b", "X-A: "), "", "", "write NAME: VALUE"},
		"two headers":        {"o.example.com", file("c", "X-A: secret\nX-B: secret"), "", "", "write NAME: VALUE"},
		"space in its name":  {"o.example.com", file("d", "X A: secret"), "", "", "write NAME: VALUE"},
		"no origin":          {"", good, "", "", "go with KEYPOST_ORIGIN=HOST"},
		"only origin":        {"o.example.com", "", "", "", ""},
		"only certificate":   {"o.example.com", "", cert, "", "go together"},
		"key of another one": {"o.example.com", "", cert, good, "read the client certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			for env, value := range map[string]string{envOrigin: tt.origin, envHeader: tt.header, envCert: tt.cert, envKey: tt.key} {
				t.Setenv(env, value)
			}
			shield, err := ReadShield()
			if (err == nil) != (tt.err == "") || err != nil && (!strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("%v, want %q", err, tt.err)
			}
			if name == "both" && (shield.Header != "X-Origin-Secret" || shield.Value != "of: colons" || len(shield.Certificates) != 1 || !shield.IsFor("P.example.com:8443")) {
				t.Errorf("read %q: %q for %q and %d certificates", shield.Header, shield.Value, shield.Origins, len(shield.Certificates))
			}
		})
	}
}
