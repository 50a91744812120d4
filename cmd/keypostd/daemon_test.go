package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/keypost/keypost/issuer/listen"
)

// The public side ends with a signal, and with the others.
func TestEither(t *testing.T) {
	for name, end := range map[string]func(ctx, other, own context.CancelFunc){
		"the first":    func(ctx, _, _ context.CancelFunc) { ctx() },
		"the other":    func(_, other, _ context.CancelFunc) { other() },
		"its own":      func(_, _, own context.CancelFunc) { own() },
		"both at once": func(ctx, other, _ context.CancelFunc) { ctx(); other() },
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, endFirst := context.WithCancel(t.Context())
			defer endFirst()
			other, endOther := context.WithCancel(t.Context())
			defer endOther()
			both, cancel := either(ctx, other)
			defer cancel()
			if synctest.Wait(); both.Err() != nil {
				t.Errorf("%s: %v before anything has ended", name, both.Err())
			}
			end(endFirst, endOther, cancel)
			if synctest.Wait(); both.Err() == nil {
				t.Errorf("%s has ended, and the context has not", name)
			}
		})
	}
}

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

// The program takes a memory limit by itself, less than what there is, unless GOMEMLIMIT says otherwise.
func TestAvailable(t *testing.T) {
	n, err := smaller(memlimit.FromCgroup, memlimit.FromSystem)()
	if err != nil || n < 1<<20 {
		t.Errorf("%d bytes are available, %v", n, err)
	}
}
