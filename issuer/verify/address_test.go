package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
)

// places makes the world answer at several addresses: each dials what its function says, or the world itself.
func (w *world) places(t *testing.T, list map[string]fetch.DialFunc) {
	t.Helper()
	var ips []netip.Addr
	for ip := range list {
		ips = append(ips, netip.MustParseAddr(ip))
	}
	w.start(t)
	own := w.options.Dial
	w.options.Lookup = func(context.Context, string) ([]netip.Addr, error) { return ips, nil }
	w.options.Dial = func(ctx context.Context, network, asked string) (net.Conn, error) {
		ip, _, err := net.SplitHostPort(asked)
		if dial := list[ip]; err == nil && dial != nil {
			return dial(ctx, network, asked)
		}
		return own(ctx, network, "192.0.2.1:443")
	}
}

// impostor serves the world's documents with its certificate, changed.
func (w *world) impostor(t *testing.T, path string, change func() any) fetch.DialFunc {
	t.Helper()
	body := mustJSON(t, change())
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if path == "" && strings.Contains(r.URL.Path, "s") && r.URL.Path != "/prod-a"+fetch.DiscoveryPath || r.URL.Path == "/prod-a"+path {
			w.write(rw, body)
			return
		}
		w.serve(rw, r)
	}))
	server.TLS = w.tls
	server.StartTLS()
	t.Cleanup(server.Close)
	return to(server.Listener.Addr().String())
}

func to(address string) fetch.DialFunc {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

func refusing(err syscall.Errno) fetch.DialFunc {
	return func(_ context.Context, network, asked string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
}

// silent accepts and says nothing.
func silent(t *testing.T) fetch.DialFunc {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return to(l.Addr().String())
}

// dropping lets every packet vanish.
func dropping(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func findings(t *testing.T, w *world) string {
	t.Helper()
	var lines []string
	for _, f := range Examine(t.Context(), w.options).Findings {
		lines = append(lines, string(f.Severity)+" "+f.Check+" "+f.Message())
	}
	return strings.Join(lines, "\n")
}

func TestEveryAddressIsAsked(t *testing.T) {
	const b, six = "198.51.100.7", "2001:db8::7"
	stranger := func(t *testing.T, w *world) any {
		return member{"keys": append([]member{publicJWK(t, newECKey(t))}, w.jwks...)}
	}
	for _, tt := range []struct {
		name  string
		make  func(t *testing.T, w *world)
		want  []string
		never []string
	}{
		{"all the same", func(t *testing.T, w *world) {
			w.places(t, map[string]fetch.DialFunc{"192.0.2.1": nil, b: nil, six: nil})
		},
			[]string{"ok addresses oidc.example.com was asked at 192.0.2.1:443, 198.51.100.7:443 and [2001:db8::7]:443", "\nok stored-keys the published"},
			[]string{"\nfail", "\nwarn", "at 198"}},
		{"an impostor at one, on the other path", func(t *testing.T, w *world) {
			w.places(t, map[string]fetch.DialFunc{"192.0.2.1": nil, six: w.impostor(t, fetch.AliasPath, func() any { return stranger(t, w) })})
		}, []string{"fail stored-keys at [2001:db8::7]:443: https://oidc.example.com/prod-a/openid/v1/jwks has the key "}, nil},
		{"an older copy at one", func(t *testing.T, w *world) {
			before, k := w.jwks, newECKey(t)
			w.storeKey(t, settling, k)
			w.jwks = append([]member{publicJWK(t, k)}, w.jwks...)
			w.places(t, map[string]fetch.DialFunc{"192.0.2.1": nil, b: w.impostor(t, "", func() any { return member{"keys": before} })})
		}, []string{"warn stored-keys at 198.51.100.7:443: ", "ok stored-keys at 192.0.2.1:443: "}, []string{"\nfail"}},
		{"another issuer's document at one", func(t *testing.T, w *world) {
			other := member{}
			check(t, json.Unmarshal(mustJSON(t, w.discovery), &other))
			other["issuer"] = testIssuer + "-b"
			w.places(t, map[string]fetch.DialFunc{"192.0.2.1": nil, b: w.impostor(t, fetch.DiscoveryPath, func() any { return other })})
		}, []string{"fail issuer at 198.51.100.7:443: ", "ok issuer at 192.0.2.1:443: "}, nil},
		{"nobody at one", func(t *testing.T, w *world) {
			w.places(t, map[string]fetch.DialFunc{"192.0.2.1": nil, b: refusing(syscall.ECONNREFUSED)})
		}, []string{"fail reach at 198.51.100.7:443: fetch ", "fail stored-keys at 198.51.100.7:443: nothing could be compared"}, nil},
		{"no route for anything", func(t *testing.T, w *world) {
			w.options.hasRoute = func(string) bool { return false }
			w.places(t, map[string]fetch.DialFunc{six: refusing(syscall.ENETUNREACH)})
		}, []string{"fail addresses not seen: ", "fail stored-keys nothing could be compared"}, []string{"ok addresses"}},
		{"unreachable, says somebody on the way", func(t *testing.T, w *world) {
			w.places(t, map[string]fetch.DialFunc{"192.0.2.1": nil, six: refusing(syscall.ENETUNREACH)})
		}, []string{"fail reach at [2001:db8::7]:443: fetch "}, []string{"not seen"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tt.make(t, w)
			got := "\n" + findings(t, w) + "\n"
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			for _, never := range tt.never {
				if strings.Contains(got, never) {
					t.Errorf("%q in\n%s", never, got)
				}
			}
		})
	}
}

// TestManyAddresses: of a host with more addresses than anybody needs, one that was not asked is not a success.
func TestManyAddresses(t *testing.T) {
	w := newWorld(t)
	w.options.Patience, w.options.Dial = 100*time.Millisecond, dropping
	w.options.Lookup = func(context.Context, string) (all []netip.Addr, err error) {
		for i := range 200 {
			all = append(all, netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}))
		}
		return all, nil
	}
	if got := findings(t, w); !strings.Contains(got, "fail addresses not seen: 168 further addresses") {
		t.Errorf("200 addresses:\n%s", got)
	}
	refused := func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	n := fetch.Network{Lookup: w.options.Lookup, Dial: refused}
	u, _ := keystore.ParseIssuerURL(testIssuer, false)
	look, err := Observe(t.Context(), n, Target{URL: u, Rounds: 1})
	if err != nil || !slices.Contains(look.Gaps, "168 of 200 addresses were not asked") {
		t.Errorf("observed: %v, %v", look.Gaps, err)
	}
}

// TestConnectAsksOnlyThere: with --connect nothing else is looked up or dialled.
func TestConnectAsksOnlyThere(t *testing.T) {
	w := newWorld(t)
	w.options.Connect = "192.0.2.1:8443"
	w.options.Lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		t.Errorf("looked up %s", host)
		return nil, nil
	}
	w.discovery["jwks_uri"] = "https://elsewhere.example.com/keys.json"
	w.start(t)
	if got := findings(t, w); !strings.Contains(got, "ok addresses oidc.example.com was asked at 192.0.2.1:8443 and nowhere else") || strings.Contains(got, "reach") {
		t.Error(got)
	}
}

// TestNothingMovesTheTerminal: whatever the server sends, a finding has characters that can be printed.
func TestNothingMovesTheTerminal(t *testing.T) {
	const evil = "a\u202eb\x1b[2Jc\u2066d\u0085e\u200bf"
	w := newWorld(t)
	w.discovery["issuer"], w.discovery["jwks_uri"] = "https://"+evil, testIssuer+"/"+"\u202e/keys.json"
	w.header.Set("Content-Type", "text/\u202ehtml")
	w.header.Set("X-Cache", "\u202ehit")
	w.replace["/prod-a/\u202e/keys.json"] = func(rw http.ResponseWriter, r *http.Request) { r.URL.Path = "/prod-a/keys.json"; w.serve(rw, r) }
	w.jwks[0]["kid"], w.jwks[0]["\u2067more"] = evil, evil
	w.alias = []member{{"kty": evil, "kid": evil}}
	w.options.Token = w.token(t)
	for _, f := range w.visit(t) {
		if strings.ContainsFunc(fmt.Sprint(f.Message(), f), func(r rune) bool { return !text.Printable(r) }) {
			t.Errorf("%+q", f)
		}
	}
}

func TestSplitHorizon(t *testing.T) {
	const words = "which clouds on the public internet cannot reach"
	for _, tt := range []struct {
		name    string
		address string
		change  func(t *testing.T, w *world)
		warned  bool
	}{
		{"private", "10.0.0.5", func(*testing.T, *world) {}, true},
		{"loopback", "127.0.0.1", func(*testing.T, *world) {}, true},
		{"shared", "100.64.0.1", func(*testing.T, *world) {}, true},
		{"public", "192.0.2.1", func(*testing.T, *world) {}, false},
		{"without a store", "10.0.0.5", func(_ *testing.T, w *world) { w.options.Stored = nil }, true},
		{"--dev", "127.0.0.1", func(_ *testing.T, w *world) { w.options.Dev = true }, false},
		{"--connect", "10.0.0.5", func(_ *testing.T, w *world) { w.options.Connect = "10.0.0.5:443" }, false},
		{"declared private", "10.0.0.5", func(t *testing.T, w *world) {
			w.store(t, func(s keystore.KeySet) (keystore.KeySet, error) {
				return s.SetPolicy(ago(stale), keystore.Policy{Private: true})
			})
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.places(t, map[string]fetch.DialFunc{tt.address: nil})
			tt.change(t, w)
			got := findings(t, w)
			if warned := strings.Contains(got, "warn addresses here the name leads to "+tt.address+", "+words); warned != tt.warned {
				t.Errorf("warned %t, want %t:\n%s", warned, tt.warned, got)
			}
			if !strings.Contains(got, "stored-keys") || strings.Contains(got, "fail ") {
				t.Errorf("not checked like any other:\n%s", got)
			}
		})
	}
}
