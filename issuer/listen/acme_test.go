package listen

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/authority"
)

// Orders are tested with a CA of others' in test/e2e (TestACME…) too.

func TestACMEConfigErrors(t *testing.T) {
	dir := t.TempDir()
	open, group := filepath.Join(dir, "open"), filepath.Join(dir, "group")
	if err := errors.Join(os.Mkdir(open, 0o700), os.Mkdir(group, 0o700), os.Chmod(open, 0o704), os.Chmod(group, 0o740)); err != nil {
		t.Fatal(err)
	}
	noKey, noCA := filepath.Join(dir, "hmac"), filepath.Join(dir, "ca.pem")
	writeFile(t, noKey, []byte("not base64 §"))
	writeFile(t, noCA, []byte("no PEM"))
	shortKey := filepath.Join(dir, "short")
	writeFile(t, shortKey, []byte("c2hvcnQ"))
	sound := ACMEConfig{Hosts: []string{"oidc.example.com"}, Cache: filepath.Join(dir, "cache")}
	if _, err := NewACME(sound); err != nil {
		t.Fatalf("a sound configuration: %v", err)
	}
	if _, err := os.Stat(sound.Cache); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("NewACME made the cache: %v", err)
	}
	for name, tt := range map[string]struct {
		change func(*ACMEConfig)
		want   string
	}{
		"no host":          {func(c *ACMEConfig) { c.Hosts = nil }, "1 to 20 host names, not 0"},
		"too many hosts":   {func(c *ACMEConfig) { c.Hosts = slices.Repeat(c.Hosts, 21) }, "not 21"},
		"wildcard":         {func(c *ACMEConfig) { c.Hosts = []string{"*.example.com"} }, "is a wildcard"},
		"address":          {func(c *ACMEConfig) { c.Hosts = []string{"192.0.2.1"} }, "is not a host name"},
		"no dot":           {func(c *ACMEConfig) { c.Hosts = []string{"localhost"} }, "is not a host name"},
		"a path":           {func(c *ACMEConfig) { c.Hosts = []string{"../x.example"} }, "is not a host name"},
		"a host twice":     {func(c *ACMEConfig) { c.Hosts = append(c.Hosts, c.Hosts...) }, "given twice"},
		"open cache":       {func(c *ACMEConfig) { c.Cache = open }, "run chmod 700 " + open},
		"group's cache":    {func(c *ACMEConfig) { c.Cache = group }, "run chmod 700 " + group},
		"HMAC key short":   {func(c *ACMEConfig) { c.KeyID, c.MACKeyFile = "k", shortKey }, "does not hold an HMAC key"},
		"cache is a file":  {func(c *ACMEConfig) { c.Cache = noKey }, "not a directory"},
		"directory http":   {func(c *ACMEConfig) { c.Directory = "http://ca.example/dir" }, "not an https URL"},
		"only key ID":      {func(c *ACMEConfig) { c.KeyID = "k" }, "needs its key ID and the file"},
		"HMAC key broken":  {func(c *ACMEConfig) { c.KeyID, c.MACKeyFile = "k", noKey }, "does not hold an HMAC key"},
		"HMAC key missing": {func(c *ACMEConfig) { c.KeyID, c.MACKeyFile = "k", dir+"/none" }, "read the HMAC key"},
		"CA file broken":   {func(c *ACMEConfig) { c.CAFile = noCA }, "holds no PEM certificate"},
	} {
		c := sound
		tt.change(&c)
		if _, err := NewACME(c); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "§") {
			t.Errorf("%s: error %v, want %q", name, err, tt.want)
		}
	}
}

// The CA is told what was configured.
func TestAccountAtTheCA(t *testing.T) {
	key := filepath.Join(t.TempDir(), "hmac")
	writeFile(t, key, []byte("MDEyMzQ1Njc4OWFiY2RlZg\n"))
	a, err := NewACME(ACMEConfig{Hosts: []string{"a.example.com"}, Cache: filepath.Join(t.TempDir(), "cache"), Email: "ops@example.com", KeyID: "kid", MACKeyFile: key})
	if err != nil {
		t.Fatal(err)
	}
	if b := a.account.ExternalAccountBinding; !slices.Equal(a.account.Contact, []string{"mailto:ops@example.com"}) || b.KID != "kid" || string(b.Key) != "0123456789abcdef" || a.directory != LetsEncrypt {
		t.Errorf("%+v at %s", a.account, a.directory)
	}
}

func TestACMEHandshakes(t *testing.T) {
	a, err := NewACME(ACMEConfig{Hosts: []string{"a.example.com", "b.example.com"}, Cache: filepath.Join(t.TempDir(), "cache"), Directory: "https://127.0.0.1:1/dir"})
	if err == nil {
		err = a.Prepare()
	}
	if err != nil {
		t.Fatal(err)
	}
	refused := func(when, name string, protocols ...string) {
		t.Helper()
		if c, err := a.choose(&tls.ClientHelloInfo{ServerName: name, SupportedProtos: protocols}); err == nil {
			t.Errorf("%s, %q %v: %v", when, name, protocols, c.Leaf)
		}
	}
	challenges := func(when string) {
		t.Helper()
		refused(when, "x.example.com")
		refused(when, "x.example.com", "acme-tls/1")
		for _, name := range []string{"", "a.example.com", "A.example.com"} {
			refused(when, name, "acme-tls/1") // of no order
			refused(when, name, "h2", "http/1.1", "acme-tls/1")
		}
	}
	challenges("without a certificate")
	for _, name := range []string{"a.example.com", ""} {
		refused("without a certificate", name)
	}
	root := authority.Named(t, "root", nil)
	leaf := root.Leaf(t, "a.example.com")
	for _, host := range []string{"a.example.com", "b.example.com"} { // b's is for another name
		writeFile(t, filepath.Join(a.dir, host), append(leaf.KeyPEM(t), authority.ChainPEM(leaf, root)...))
	}
	if !a.take(a.hosts[0]) || a.take(a.hosts[0]) || a.take(a.hosts[1]) {
		t.Error("a certificate is taken once, and only for its own name")
	}
	for _, name := range []string{"a.example.com", "A.Example.Com", ""} {
		if c, err := a.choose(&tls.ClientHelloInfo{ServerName: name, SupportedProtos: []string{"h2"}}); err != nil || !c.Leaf.Equal(leaf.Cert) {
			t.Errorf("%q: %v", name, err)
		}
	}
	challenges("with a certificate")
	if got := a.TLSConfig().NextProtos; !slices.Equal(got, []string{"acme-tls/1"}) {
		t.Errorf("protocols %v; the CA's challenge is not agreed on", got)
	}
	if made, err := filepath.Glob(filepath.Join(a.dir, "*")); err != nil || len(made) != 2 {
		t.Errorf("a handshake has made something: %q, %v", made, err)
	}
}

func TestChallenges(t *testing.T) {
	a, err := NewACME(ACMEConfig{Hosts: []string{"a.example.com"}, Cache: filepath.Join(t.TempDir(), "cache"), HTTP01: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Prepare(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(a.dir, "token+http-01"), []byte("answer"))
	writeFile(t, filepath.Join(a.dir, "acme_account+key"), []byte("secret"))
	for _, tt := range []struct {
		method, target string
		code           int
	}{
		{"GET", "http://a.example.com/.well-known/acme-challenge/token", 200},
		{"GET", "http://a.example.com:80/.well-known/acme-challenge/token", 200},
		{"HEAD", "http://a.example.com/.well-known/acme-challenge/token", 200},
		{"POST", "http://a.example.com/.well-known/acme-challenge/token", 405},
		{"GET", "http://x.example.com/.well-known/acme-challenge/token", 404},
		{"GET", "http://a.example.com/.well-known/acme-challenge/acme_account+key", 404},
		{"GET", "http://a.example.com/.well-known/acme-challenge/" + strings.Repeat("x", 300), 404},
		{"GET", "http://a.example.com/.well-known/acme-challenge/../a.example.com", 404},
		{"GET", "http://a.example.com/prod/keys.json", 404},
	} {
		w := httptest.NewRecorder()
		a.Challenges().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, tt.target, http.NoBody))
		body := w.Body.String()
		if w.Code != tt.code || strings.Contains(body, "secret") || strings.Contains(body, a.dir) || w.Header().Get("Location") != "" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s %.80s: %d %q, want %d", tt.method, tt.target, w.Code, body, tt.code)
		}
	}
}
