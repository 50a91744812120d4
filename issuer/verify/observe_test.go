package verify

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// places are what the addresses of the issuer's host answer, each with its own server.
type places struct {
	w       *world
	network fetch.Network
	target  Target
	dialled atomic.Int64
}

func newPlaces(t *testing.T, w *world, servers map[string]http.HandlerFunc) *places {
	t.Helper()
	u, err := keystore.ParseIssuerURL(testIssuer, false)
	check(t, err)
	p := &places{w: w, target: Target{URL: u, pause: time.Millisecond, Rounds: 2}} // fewer than in earnest
	at := map[string]string{}
	var ips []netip.Addr
	for ip, h := range servers {
		server := httptest.NewUnstartedServer(h)
		server.TLS = w.tls.Clone()
		server.StartTLS()
		t.Cleanup(server.Close)
		at[net.JoinHostPort(ip, "443")] = server.Listener.Addr().String()
		ips = append(ips, netip.MustParseAddr(ip))
	}
	p.network = fetch.Network{
		RootCAs:  w.pki.root.Pool(),
		Patience: time.Minute, // race detector, shared machine
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			if host == "origin.example.net" {
				return addrs("198.51.100.9"), nil
			}
			return slices.DeleteFunc(slices.Clone(ips), func(a netip.Addr) bool { return a.String() == "198.51.100.9" }), nil
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			p.dialled.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, at[address])
		},
	}
	return p
}

func (p *places) observe(t *testing.T) observation.Look {
	t.Helper()
	l, err := Observe(t.Context(), p.network, p.target)
	check(t, err)
	return l
}

// with returns the world with other answers at some paths below the issuer.
func (w *world) with(replace map[string]http.HandlerFunc) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if h, ok := replace[strings.TrimPrefix(r.URL.Path, "/prod-a")]; ok {
			h(rw, r)
			return
		}
		w.serve(rw, r)
	}
}

func jsonOf(text string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(text)) }
}

func jwksJSON(t *testing.T, keys ...member) string {
	t.Helper()
	text, err := json.Marshal(member{"keys": keys})
	check(t, err)
	return string(text)
}

// changed returns a copy of a JWK with another member.
func changed(k member, name string, value any) member {
	k = maps.Clone(k)
	k[name] = value
	return k
}

// cutOff answers with less than it announced.
func cutOff(body string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", "100000")
		_, _ = rw.Write([]byte(body[:len(body)/2]))
	}
}

func status(code int) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(code) }
}

// What an answer without keys allows caches counts.
func TestObserveCountsTheHeadersOfEveryAnswer(t *testing.T) {
	w := newWorld(t)
	h := w.with(map[string]http.HandlerFunc{fetch.AliasPath: func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Cache-Control", "public, max-age=86400")
		_, _ = rw.Write([]byte(`{}`))
	}})
	l := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve, "192.0.2.2": h}).observe(t)
	if l.MaxAge != keystore.Duration(24*time.Hour) || l.Answers != 4*2 {
		t.Errorf("max-age %v of %d answers", l.MaxAge, l.Answers)
	}
}

// once answers as first for the first request and as rest from then on.
func once(first, rest http.HandlerFunc) http.HandlerFunc {
	var n atomic.Int64
	return func(rw http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			first(rw, r)
			return
		}
		rest(rw, r)
	}
}

func TestObserveAHealthyIssuer(t *testing.T) {
	w := newWorld(t)
	p := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve, "192.0.2.2": w.serve, "198.51.100.9": w.serve})
	p.target.Origins, p.target.Rounds = []string{"origin.example.net"}, 0
	l := p.observe(t)
	k := public(t, w.signer)
	if want := []observation.Key{{ID: k.ID(), Fingerprint: k.Fingerprint()}}; !l.Complete() || !slices.Equal(l.Keys, want) {
		t.Errorf("gaps %q, keys %v; want none and %v", l.Gaps, l.Keys, want)
	}
	if want := []string{"192.0.2.1:443", "192.0.2.2:443", "198.51.100.9:443"}; !slices.Equal(l.Addresses, want) {
		t.Errorf("asked %q, want %q", l.Addresses, want)
	}
	if l.Answers != rounds*3*2 || p.dialled.Load() != rounds*3*3 {
		t.Errorf("%d answers over %d connections; want %d and %d", l.Answers, p.dialled.Load(), rounds*3*2, rounds*3*3)
	}
	if l.MaxAge != keystore.Duration(5*time.Minute) || l.SharedCache != "" || l.ClockAhead == nil || time.Duration(*l.ClockAhead).Abs() > 2*time.Second {
		t.Errorf("max-age %v, cache %q, clock %v", l.MaxAge, l.SharedCache, l.ClockAhead)
	}
}

// A key counts as seen only if every answer has it; what may hide an answer without it is a gap.
func TestObserveSeesWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	other := newECKey(t)
	good := jwksJSON(t, w.jwks...)
	impostor := publicJWK(t, other)
	impostor["kid"] = w.kid
	withOther := jwksJSON(t, w.jwks[0], publicJWK(t, other))
	unusable := member{"kty": "OKP", "kid": "x", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
	for name, tt := range map[string]struct {
		replace map[string]http.HandlerFunc // at the second address
		seen    bool                        // the world's key
		gap     string                      // in part; empty: complete
	}{
		"one answer without it":      {map[string]http.HandlerFunc{fetch.KeysPath: once(jsonOf(`{"keys":[]}`), jsonOf(good))}, false, ""},
		"one at the other path":      {map[string]http.HandlerFunc{fetch.AliasPath: once(jsonOf(`{"keys":[]}`), jsonOf(good))}, false, ""},
		"another key under its kid":  {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(jwksJSON(t, impostor))}, false, ""},
		"another key beside it":      {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(withOther)}, true, ""},
		"not found once":             {map[string]http.HandlerFunc{fetch.AliasPath: once(status(404), jsonOf(good))}, false, "at 192.0.2.2:443: " + testIssuer + fetch.AliasPath + " answers 404"},
		"trouble once":               {map[string]http.HandlerFunc{fetch.KeysPath: once(status(503), jsonOf(good))}, true, "answers 503"},
		"a redirect":                 {map[string]http.HandlerFunc{fetch.KeysPath: http.RedirectHandler("https://elsewhere.example", http.StatusFound).ServeHTTP}, true, "redirects (302) to https://elsewhere.example"},
		"no JWKS":                    {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf("<html>")}, false, "is not a JWKS"},
		"keys twice":                 {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(`{"keys":[],` + good[1:])}, false, "is not a sound JWKS"},
		"a private member":           {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(strings.Replace(good, `"kty"`, `"d":"x","kty"`, 1))}, false, "private"},
		"keys null":                  {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(`{"keys":null}`)}, false, "is not a JWKS"},
		"an unusable key beside it":  {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(jwksJSON(t, unusable, w.jwks[0]))}, false, "key 1"},
		"its kid twice":              {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(jwksJSON(t, w.jwks[0], impostor))}, false, "two different keys have the kid"},
		"without its kid":            {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(jwksJSON(t, changed(w.jwks[0], "kid", "")))}, false, "key 1 has no kid"},
		"to encrypt with":            {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(jwksJSON(t, changed(w.jwks[0], "key_ops", []string{"encrypt"})))}, false, "key_ops"},
		"more than is read":          {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(strings.Repeat(" ", fetch.MaxBody) + good)}, true, "larger than"},
		"cut off":                    {map[string]http.HandlerFunc{fetch.KeysPath: cutOff(good)}, true, "EOF"},
		"no discovery document":      {map[string]http.HandlerFunc{fetch.DiscoveryPath: status(404)}, true, fetch.DiscoveryPath + " answers 404"},
		"another issuer's discovery": {map[string]http.HandlerFunc{fetch.DiscoveryPath: jsonOf(`{"issuer":"https://x.example","jwks_uri":"` + testIssuer + fetch.KeysPath + `"}`)}, true, "names the issuer https://x.example"},
		"another jwks_uri":           {map[string]http.HandlerFunc{fetch.DiscoveryPath: jsonOf(`{"issuer":"` + testIssuer + `","jwks_uri":"https://x.example/k"}`)}, true, "the JWKS https://x.example/k"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve, "192.0.2.2": w.with(tt.replace)}).observe(t)
			k := public(t, w.signer)
			seen := slices.Contains(l.Keys, observation.Key{ID: k.ID(), Fingerprint: k.Fingerprint()})
			gaps := strings.Join(l.Gaps, "\n")
			if seen != tt.seen || l.Complete() != (tt.gap == "") || !strings.Contains(gaps, tt.gap) || len(l.Gaps) > 1 {
				t.Errorf("seen %t, gaps %q; want %t, %q", seen, l.Gaps, tt.seen, tt.gap)
			}
		})
	}
}

func TestObserveNamesWhatItDoesNotSee(t *testing.T) {
	w := newWorld(t)
	one := func(ip string) *places { return newPlaces(t, w, map[string]http.HandlerFunc{ip: w.serve}) }
	gaps := func(p *places) string { return strings.Join(p.observe(t).Gaps, "\n") }

	for _, ip := range []string{"10.0.0.7", "127.0.0.1", "169.254.1.1", "100.64.0.1"} {
		p := one(ip)
		if g := gaps(p); !strings.Contains(g, ip+":443 is not a public address") {
			t.Errorf("%s: gaps %q", ip, g)
		}
		if p.target.Private = true; gaps(p) != "" {
			t.Errorf("%s of a private issuer: gaps %q", ip, gaps(p))
		}
		p = one(ip)
		if p.target.Dev = true; gaps(p) != "" {
			t.Errorf("%s of a development issuer: gaps %q", ip, gaps(p))
		}
	}
	p := one("192.0.2.1")
	p.network.Connect = "127.0.0.1:1"
	p.network.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return one("192.0.2.1").network.Dial(ctx, network, "192.0.2.1:443")
	}
	if g := gaps(p); !strings.Contains(g, "127.0.0.1:1 was asked in place of") {
		t.Errorf("--connect: gaps %q", g)
	}
	p = one("192.0.2.1")
	p.target.Origins = []string{"no.example.net"}
	lookup := p.network.Lookup
	p.network.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
		if host == "no.example.net" {
			return nil, errors.New("no such host")
		}
		return lookup(ctx, host)
	}
	if g := gaps(p); g != "the origin no.example.net cannot be looked up: no such host" {
		t.Errorf("an origin without a name: gaps %q", g)
	}
	p = one("192.0.2.1")
	p.network.Dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("network is unreachable")
	}
	if l := p.observe(t); l.Answers != 0 || len(l.Keys) != 0 || len(l.Gaps) != 1 || !strings.Contains(l.Gaps[0], "network is unreachable") {
		t.Errorf("nothing answers: %+v", l)
	}
	p = one("192.0.2.1")
	p.network.Lookup = func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") }
	if l, err := Observe(t.Context(), p.network, p.target); err == nil {
		t.Errorf("a name that leads nowhere: %+v", l)
	}
}

// A document that does not come in time is asked for once, and holds up the others no longer than that.
func TestObserveAnAddressThatHangs(t *testing.T) {
	w := newWorld(t)
	var asked atomic.Int64
	p := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve, "192.0.2.2": w.with(map[string]http.HandlerFunc{fetch.KeysPath: func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-r.Context().Done()
	}})})
	p.network.Patience = impatient
	l := p.observe(t)
	if len(l.Gaps) != 1 || !strings.HasSuffix(l.Gaps[0], "no answer within 1s") || asked.Load() != 1 || l.Answers != 3*2 || len(l.Keys) != 1 {
		t.Errorf("asked %d times, %d answers, gaps %q, keys %v", asked.Load(), l.Answers, l.Gaps, l.Keys)
	}
}

func TestObserveNotesCachesAndClocks(t *testing.T) {
	w := newWorld(t)
	late := func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Date", time.Now().Add(-3*time.Minute).UTC().Format(http.TimeFormat))
		w.serve(rw, r)
	}
	l := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve, "192.0.2.2": late}).observe(t)
	if l.ClockAhead == nil || time.Duration(*l.ClockAhead) < 2*time.Minute {
		t.Errorf("a server three minutes behind: this clock is ahead by %v", l.ClockAhead)
	}
	cached := func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Age", "100")
		rw.Header().Set("Date", time.Now().Add(-100*time.Second).UTC().Format(http.TimeFormat))
		w.serve(rw, r)
		rw.Header().Set("Cache-Control", "x")
	}
	l = newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": cached}).observe(t)
	if l.SharedCache != "Age: 100" || l.ClockAhead != nil {
		t.Errorf("behind a cache: sign %q, clock %v, which a cache says nothing about", l.SharedCache, l.ClockAhead)
	}
	w.header.Set("Cache-Control", "public, max-age=7200")
	if l = newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve}).observe(t); l.MaxAge != keystore.Duration(2*time.Hour) {
		t.Errorf("max-age %v", l.MaxAge)
	}
	w.header["Cache-Control"] = []string{"public", "max-age=60, s-maxage=7200"}
	if l = newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve}).observe(t); l.MaxAge != keystore.Duration(2*time.Hour) {
		t.Errorf("max-age %v of two lines", l.MaxAge)
	}
	w.header["Cache-Control"] = []string{"max-age=300, stale-while-revalidate=600, stale-if-error=86400"}
	l = newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve}).observe(t)
	if want := (keystore.Cache{MaxAge: 5 * time.Minute, StaleWhileRevalidate: 10 * time.Minute, StaleIfError: 24 * time.Hour}); l.Cache() != want {
		t.Errorf("caches may hold an answer for %+v, want %+v", l.Cache(), want)
	}
}

// A shared cache may show itself with the discovery document, or with an error, but never both.
func TestObserveNotesACacheWithWhateverAnswer(t *testing.T) {
	w := newWorld(t)
	via := func(code int, path string) http.HandlerFunc {
		return w.with(map[string]http.HandlerFunc{path: func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Via", "1.1 cache")
			if code != 0 {
				rw.WriteHeader(code)
				return
			}
			w.serve(rw, r)
		}})
	}
	for name, h := range map[string]http.HandlerFunc{
		"discovery": via(0, fetch.DiscoveryPath), "alias": via(0, fetch.AliasPath), "no discovery": via(404, fetch.DiscoveryPath), "no keys": via(404, fetch.KeysPath), "trouble": via(503, fetch.KeysPath),
	} {
		if l := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve, "192.0.2.2": h}).observe(t); l.SharedCache != "Via: 1.1 cache" {
			t.Errorf("%s: sign %q", name, l.SharedCache)
		}
	}
}
