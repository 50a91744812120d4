package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/keypost/keypost/issuer/listen"
)

// A directory that hangs does not keep the process from ending, and the first error is the one that is told.
func TestWait(t *testing.T) {
	broken := errors.New("the socket is gone")
	for name, tc := range map[string]struct {
		hangs bool
		err   error
		want  string
		took  time.Duration
	}{
		"a clean end":      {false, nil, "", time.Second},
		"an error":         {false, broken, broken.Error(), 0},
		"one hangs":        {true, nil, "has not ended", time.Second + lastWait},
		"an error, a hang": {true, broken, broken.Error(), lastWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				g, rest := errgroup.WithContext(ctx)
				mended := make(chan struct{})
				g.Go(func() error {
					<-rest.Done()
					if tc.hangs {
						<-mended
					}
					return nil
				})
				g.Go(func() error {
					if tc.err == nil {
						time.Sleep(time.Second)
						cancel()
					}
					return tc.err
				})
				began := time.Now()
				err := wait(rest, g)
				if took := time.Since(began); took != tc.took {
					t.Errorf("it took %v, want %v", took, tc.took)
				}
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
				close(mended)
			})
		})
	}
}

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
	if c.Address != ":8443" || c.NoHTTP2 || c.DrainDelay != 10*time.Second || c.DrainTimeout != 20*time.Second || c.Shield != nil {
		t.Errorf("the defaults: %+v", c)
	}
	c = public(fmt.Sprintf(`address: "127.0.0.1:1", http2: false, maxConnections: 7, drainDelay: 3s, drainTimeout: 4s, shield: {header: X-Secret, secretFiles: [%q]}`, secret))
	if c.Address != "127.0.0.1:1" || !c.NoHTTP2 || c.MaxConnections != 7 || c.DrainDelay != 3*time.Second || c.DrainTimeout != 4*time.Second || c.Shield == nil {
		t.Errorf("all set: %+v", c)
	}
}

// The program takes a memory limit by itself, less than what there is, unless GOMEMLIMIT says otherwise.
func TestAvailable(t *testing.T) {
	n, err := least(memlimit.FromCgroup, memlimit.FromSystem)()
	if err != nil || n < 1<<20 {
		t.Errorf("%d bytes are available, %v", n, err)
	}
}
