package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/process"
)

// --dev makes its own directory and certificate, and serves development key sets only: what is demonstrated on a laptop with
// ports and no waiting must not be what production takes.
func TestDevelopment(t *testing.T) {
	t.Parallel()
	dir, address := filepath.Join(t.TempDir(), "dev"), process.FreeAddress(t)
	v := startWith(t, settings{dir: filepath.Join(dir, "keysets"), config: filepath.Join(dir, "keypostd.yaml")},
		"--dev", dir, "--address", address, "--admin-address", process.FreeAddress(t))
	v.Await(t, "ready", v.isReady)
	info, err := os.Stat(filepath.Join(dir, "tls.key"))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key has mode %v", info.Mode().Perm())
	}
	st, err := filestore.Open(v.dir)
	must(t, err)
	demo := strings.Replace("https://"+address+"/demo", "127.0.0.1", "localhost", 1)
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
