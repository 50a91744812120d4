package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/keypost/keypost/test/authority"
)

func TestShieldFlags(t *testing.T) {
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
	for name, tt := range map[string]struct {
		args []string
		err  string
	}{
		"none":               {nil, ""},
		"both":               {[]string{"--origin", "o.example.com", "--origin-header-file", good, "--origin-cert", cert, "--origin-key", key}, ""},
		"no file":            {[]string{"--origin", "o.example.com", "--origin-header-file", dir + "/none"}, "no such file"},
		"no colon":           {[]string{"--origin", "o.example.com", "--origin-header-file", file("a", "secret")}, "write NAME: VALUE"},
		"no value":           {[]string{"--origin", "o.example.com", "--origin-header-file", file("b", "X-A: ")}, "write NAME: VALUE"},
		"two headers":        {[]string{"--origin", "o.example.com", "--origin-header-file", file("c", "X-A: secret\nX-B: secret")}, "write NAME: VALUE"},
		"space in its name":  {[]string{"--origin", "o.example.com", "--origin-header-file", file("d", "X A: secret")}, "write NAME: VALUE"},
		"no origin":          {[]string{"--origin-header-file", good}, "go with --origin HOST"},
		"origin alone":       {[]string{"--origin", "o.example.com"}, "say what is shown to it"},
		"certificate alone":  {[]string{"--origin", "o.example.com", "--origin-cert", cert}, "go together"},
		"key of another one": {[]string{"--origin", "o.example.com", "--origin-cert", cert, "--origin-key", good}, "read the client certificate"},
	} {
		if name == "origin alone" { // says what --connect leads to
			var s ShieldFlags
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			s.Register(fs)
			if err := fs.Parse(tt.args); err != nil {
				t.Fatal(err)
			}
			if shield, err := s.Read(true); err != nil || len(shield.Origins) != 1 {
				t.Errorf("with --connect: %v, %v", shield.Origins, err)
			}
		}
		var s ShieldFlags
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		s.Register(fs)
		if err := fs.Parse(tt.args); err != nil {
			t.Fatal(err)
		}
		shield, err := s.Read(false)
		if (err == nil) != (tt.err == "") || err != nil && (!strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %q", name, err, tt.err)
		}
		if name == "both" && (shield.Header != "X-Origin-Secret" || shield.Value != "of: colons" || len(shield.Certificates) != 1) {
			t.Errorf("read %q: %q and %d certificates", shield.Header, shield.Value, len(shield.Certificates))
		}
	}
}
