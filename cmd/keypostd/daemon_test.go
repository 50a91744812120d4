package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/listen"
)

// The public listener is what the configuration says, in each setting that is not the default.
func TestPublicListenerFollowsConfiguration(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	public := func(settings string) listen.Config {
		c, err := parseConfig(fmt.Appendf(nil, "dir: %q\nissuerURLs: [\"https://oidc.example.com/{name}\"]\nlisten: {tls: {mode: off}, %s}\n", t.TempDir(), settings))
		if err != nil {
			t.Fatal(err)
		}
		d, err := newDaemon(c, "", io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return d.public()
	}
	c := public("")
	if c.Address != ":8443" || c.DrainDelay != 10*time.Second || c.DrainTimeout != 20*time.Second || c.Shield != nil {
		t.Errorf("the defaults: %+v", c)
	}
	c = public(fmt.Sprintf(`address: "127.0.0.1:1", http2: false, maxConnections: 7, drainDelay: 3s, drainTimeout: 4s, shield: {header: X-Secret, secretFiles: [%q]}`, secret))
	if c.Address != "127.0.0.1:1" || c.MaxConnections != 7 || c.DrainDelay != 3*time.Second || c.DrainTimeout != 4*time.Second || c.Shield == nil {
		t.Errorf("all set: %+v", c)
	}
}
