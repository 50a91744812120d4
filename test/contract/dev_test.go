package contract

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
)

// freePort returns a port of 127.0.0.1 that nobody listens at.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	must(t, err)
	return port
}

// --dev makes its own directory and certificate, and serves development key sets only: what is demonstrated on a laptop with
// ports and no waiting must not be what production takes.
func TestDevelopment(t *testing.T) {
	t.Parallel()
	dir, port, admin := filepath.Join(t.TempDir(), "dev"), freePort(t), "127.0.0.1:"+freePort(t)
	cmd := []string{"--dev", dir, "--address", "127.0.0.1:" + port, "--admin-address", admin}
	v := startWith(t, settings{dir: filepath.Join(dir, "keysets"), config: filepath.Join(dir, "keypostd.yaml")}, cmd...)
	v.Await(t, "ready", func() error {
		if status, body := v.ask(t, "/readyz"); status != 200 {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	info, err := os.Stat(filepath.Join(dir, "tls.key"))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v", info.Mode().Perm())
	}
	st, err := filestore.Open(v.dir)
	must(t, err)
	demo := "https://localhost:" + port + "/demo"
	for name, spec := range map[string]keystore.Spec{
		"demo":  {Issuers: storetest.URLs(t, demo), Dev: true},
		"other": {Issuers: storetest.URLs(t, "https://elsewhere.example.com/other")},
	} {
		spec.Name, spec.Keys = keystore.Name(name), []keystore.VerificationKey{storetest.Key(t)}
		s, err := keystore.New(keystore.Change{At: storetest.Time(0), By: "dev"}, spec)
		must(t, err)
		must(t, keystore.Create(t.Context(), keystore.NewStore(st), s))
	}
	c := v.client(t)
	v.Await(t, "the demo issuer", func() error { return checkKeys(c, demo+"/keys.json", nil, nil) })
	_, body := get(t, c, demo+"/.well-known/openid-configuration")
	if !strings.Contains(body, `"issuer":"`+demo+`"`) {
		t.Errorf("discovery: %s", body)
	}
	v.Await(t, "the refusal of the other issuer", func() error { // each key set is published by itself
		if s := v.statusOf(t, "other"); s.Rejected != "url_not_permitted" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}
