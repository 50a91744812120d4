package verify

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// A server that says nothing, from whatever stage on, holds no connection and no goroutine for longer than an answer may take. The
// bubble fails if a goroutine is left.
func TestSilentServers(t *testing.T) {
	t.Parallel()
	answer := func(text string) func(*world, net.Conn) {
		return func(w *world, c net.Conn) {
			s := tls.Server(c, w.tls)
			if s.Handshake() == nil {
				_, _ = io.WriteString(s, text)
			}
		}
	}
	for stage, serve := range map[string]func(*world, net.Conn){
		"dial": nil, "handshake": func(*world, net.Conn) {}, "header": answer(""), "rest of the header": answer("HTTP/1.1 200 OK\r\nEtag"),
		"body": answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
	} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.stored = withOrigins(t, w.stored, "origin.example.net", "198.51.100.9")
				var open atomic.Int64
				w.options.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
					if serve == nil {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					near, far := net.Pipe()
					open.Add(1)
					go func() {
						defer open.Add(-1)
						serve(w, far)
						_, _ = io.Copy(io.Discard, far) // until it is closed
					}()
					return near, nil
				}
				n := w.options.Network
				_, err := Observe(t.Context(), n, Target{URL: storetest.URLs(t, testIssuer)[0], Origins: w.stored.Policy().Origins})
				check(t, err)
				Examine(t.Context(), w.options)
				if _, err := n.At(storetest.URLs(t, testIssuer)[0], "192.0.2.1:443").JWKS(t.Context(), testIssuer); err == nil {
					t.Error("it answered")
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if left := open.Load(); left > 0 {
					t.Errorf("%d connections are left", left)
				}
			})
		})
	}
}

func withOrigins(t *testing.T, s keystore.KeySet, origins ...string) keystore.KeySet {
	t.Helper()
	p := s.Policy()
	p.Origins = origins
	s, err := s.SetPolicy(keystore.Change{At: time.Now()}, p)
	check(t, err)
	return s
}
