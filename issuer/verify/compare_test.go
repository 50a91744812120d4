package verify

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
)

// codesOf returns what was found, as CODE@ADDRESS….
func codesOf(s Sight) []string {
	var all []string
	for _, f := range s.Findings {
		code := f.Code
		if f.Rogue() {
			code = "rogue:" + code
		}
		for _, at := range f.At {
			code += "@" + strings.TrimSuffix(at, ":443")
		}
		all = append(all, code)
	}
	return all
}

func (p *places) compare(t *testing.T, set keystore.KeySet, err error) Sight {
	t.Helper()
	s, failed := Compare(t.Context(), p.network, p.target, func(context.Context) (keystore.KeySet, error) { return set, err })
	check(t, failed)
	return s
}

// What is rogue, what is merely not as stored, and where: one replica of three is enough, at whatever path and once.
func TestCompare(t *testing.T) {
	w := newWorld(t)
	good := jwksJSON(t, w.jwks...)
	stranger := jwksJSON(t, w.jwks[0], publicJWK(t, newECKey(t)))
	impostor := publicJWK(t, newECKey(t))
	impostor["kid"] = w.kid
	private := strings.Replace(good, `"kty"`, `"d":"x","kty"`, 1)
	small := jwksJSON(t, w.jwks[0], member{"kty": "RSA", "kid": "small", "n": "AQAB", "e": "AQAB"})
	for name, tt := range map[string]struct {
		replace map[string]http.HandlerFunc // at the third address
		want    []string
	}{
		"as stored":                   {nil, nil},
		"a stranger's key":            {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(stranger)}, []string{"rogue:key-rogue@192.0.2.3"}},
		"at the other path":           {map[string]http.HandlerFunc{fetch.AliasPath: jsonOf(stranger)}, []string{"rogue:key-rogue@192.0.2.3"}},
		"in one answer of eight":      {map[string]http.HandlerFunc{fetch.KeysPath: once(jsonOf(stranger), jsonOf(good))}, []string{"rogue:key-rogue@192.0.2.3"}},
		"under the kid of ours":       {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(jwksJSON(t, impostor))}, []string{"rogue:key-rogue@192.0.2.3", "key-missing@192.0.2.3"}},
		"that cannot be read":         {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(small)}, []string{"rogue:keys-unread@192.0.2.3"}},
		"a private key":               {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(private)}, []string{"rogue:keys-unread@192.0.2.3", "key-missing@192.0.2.3"}},
		"keys twice":                  {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(`{"keys":[],` + good[1:])}, []string{"rogue:keys-unread@192.0.2.3"}},
		"a page of HTML":              {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf("<html>")}, []string{"rogue:keys-unread@192.0.2.3"}},
		"no key":                      {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(`{"keys":[]}`)}, []string{"key-missing@192.0.2.3"}},
		"not found":                   {map[string]http.HandlerFunc{fetch.KeysPath: status(404)}, []string{"key-missing@192.0.2.3"}},
		"trouble":                     {map[string]http.HandlerFunc{fetch.KeysPath: status(503)}, nil},
		"more than anybody publishes": {map[string]http.HandlerFunc{fetch.KeysPath: flood(good), fetch.AliasPath: flood(good)}, []string{"rogue:keys-unread"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve, "192.0.2.2": w.serve, "192.0.2.3": w.with(tt.replace)})
			p.target.Rounds = 3 // more than anybody publishes takes that
			s := p.compare(t, w.stored, nil)
			if got := codesOf(s); !slices.Equal(got, tt.want) || s.NotCompared != "" {
				t.Errorf("%q, not compared %q; want %q", got, s.NotCompared, tt.want)
			}
			if len(s.Chains) != 3 || !s.Chains[0].Certificates[0].Equal(w.pki.leaf.Cert) || len(s.Chains[0].Certificates) != 3 {
				t.Errorf("%d chains", len(s.Chains))
			}
		})
	}
}

// A relying party may read what we do not: it follows a redirect, takes another status, more than 1 MiB, packed or sloppy
// JSON, waits longer than we do, or goes where the discovery document sends it. Anyone who answers so can publish keys.
func TestCompareWithWhatOthersMayRead(t *testing.T) {
	w := newWorld(t)
	good := jwksJSON(t, w.jwks...)
	stranger := jwksJSON(t, w.jwks[0], publicJWK(t, newECKey(t)))
	const read, unread = "rogue:key-rogue@192.0.2.3", "rogue:keys-unread@192.0.2.3"
	with := func(name, value, body string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set(name, value)
			_, _ = rw.Write([]byte(body))
		}
	}
	answer := func(code int, body string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(code)
			_, _ = rw.Write([]byte(body))
		}
	}
	naming := func(uri string) http.HandlerFunc {
		return jsonOf(`{"issuer":"` + testIssuer + `","jwks_uri":"` + uri + `"}`)
	}
	for name, tt := range map[string]struct {
		replace map[string]http.HandlerFunc // at the third address
		rogue   []string
	}{
		"a redirect":                     {map[string]http.HandlerFunc{fetch.KeysPath: http.RedirectHandler(testIssuer+"/other", http.StatusFound).ServeHTTP}, []string{unread}},
		"another status":                 {map[string]http.HandlerFunc{fetch.KeysPath: answer(http.StatusNonAuthoritativeInfo, stranger)}, []string{read}},
		"another status, and our keys":   {map[string]http.HandlerFunc{fetch.KeysPath: answer(http.StatusNonAuthoritativeInfo, good)}, nil},
		"nothing":                        {map[string]http.HandlerFunc{fetch.KeysPath: status(http.StatusNoContent)}, []string{unread}},
		"a byte order mark":              {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf("\ufeff" + stranger)}, []string{unread}},
		"text after the JSON":            {map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(stranger + "\n;")}, []string{unread}},
		"cut off within":                 {map[string]http.HandlerFunc{fetch.KeysPath: with("Content-Length", "100000", stranger[:len(stranger)-1])}, nil},
		"another JWKS":                   {map[string]http.HandlerFunc{fetch.DiscoveryPath: naming(testIssuer + "/other"), "/other": jsonOf(stranger)}, []string{unread}},
		"another host's JWKS":            {map[string]http.HandlerFunc{fetch.DiscoveryPath: naming("https://elsewhere.example/keys.json")}, []string{"rogue:keys-unread@192.0.2.3"}},
		"a discovery document elsewhere": {map[string]http.HandlerFunc{fetch.DiscoveryPath: http.RedirectHandler(testIssuer+"/other", http.StatusFound).ServeHTTP}, []string{unread}},
		"no discovery document":          {map[string]http.HandlerFunc{fetch.DiscoveryPath: status(404)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve, "192.0.2.2": w.serve, "192.0.2.3": w.with(tt.replace)}).compare(t, w.stored, nil)
			got := slices.DeleteFunc(codesOf(s), func(code string) bool { return !strings.HasPrefix(code, "rogue:") })
			if !slices.Equal(got, tt.rogue) {
				t.Errorf("%q, want %q", got, tt.rogue)
			}
			if clean := len(tt.rogue) == 1 && tt.rogue[0] == read; clean && s.Look.Complete() {
				t.Error("the look counts as complete")
			}
		})
	}
}

// Anyone who lets us wait for one document may serve the others to anyone who has more patience.
func TestCompareWithADocumentThatIsLate(t *testing.T) {
	w := newWorld(t)
	stranger := jwksJSON(t, w.jwks[0], publicJWK(t, newECKey(t)))
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, replace := range map[string]map[string]http.HandlerFunc{
		"discovery": {fetch.DiscoveryPath: hang, fetch.KeysPath: jsonOf(stranger)},
		"JWKS":      {fetch.KeysPath: hang, fetch.AliasPath: jsonOf(stranger)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.3": w.with(replace)})
			p.network.Patience = impatient
			if got := codesOf(p.compare(t, w.stored, nil)); !slices.Contains(got, "rogue:key-rogue@192.0.2.3") {
				t.Errorf("%q", got)
			}
		})
	}
}

// A megabyte of keys that say nothing is one finding, and is not looked at key by key.
func TestCompareWithMoreKeysThanAnybodyHas(t *testing.T) {
	w := newWorld(t)
	for keys, want := range map[int]string{fetch.MostKeys: "has keys (1000) that cannot be read", 20_000: "has 20000 keys; at most 1000 are looked at"} {
		body := `{"keys":[` + strings.Repeat("{},", keys-1) + `{}]}`
		s := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.3": w.with(map[string]http.HandlerFunc{fetch.KeysPath: jsonOf(body)})}).compare(t, w.stored, nil)
		if len(s.Findings) == 0 || !s.Findings[0].Rogue() || !strings.Contains(s.Findings[0].Evidence, want) || s.Look.Complete() {
			t.Errorf("%d keys: %+v", keys, s.Findings)
		}
	}
}

// flood answers with the same keys and another large body every time.
func flood(good string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = rw.Write([]byte(good[:len(good)-1] + `,"x":"` + time.Now().Format(time.RFC3339Nano) + strings.Repeat("x", 900<<10) + `"}`))
	}
}

// A copy of a key that has left is not a stranger's key, wherever and however long it is kept.
func TestCompareWithAKeyThatIsGone(t *testing.T) {
	w := newWorld(t)
	stays := newECKey(t)
	both := jwksJSON(t, w.jwks[0], publicJWK(t, stays))
	renamed := publicJWK(t, w.signer)
	renamed["kid"] = "other"
	cached := func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Age", "100")
		_, _ = rw.Write([]byte(both))
	}
	for name, tt := range map[string]struct {
		gone time.Duration // ago
		jwks http.HandlerFunc
		want []string
	}{
		"a CDN has it":          {10 * time.Minute, cached, []string{"key-still-there@192.0.2.1"}},
		"a CDN has it for days": {9 * 24 * time.Hour, cached, []string{"key-still-there@192.0.2.1"}},
		"a server has it":       {10 * time.Minute, jsonOf(both), []string{"key-still-there@192.0.2.1"}},
		"under another kid":     {10 * time.Minute, jsonOf(jwksJSON(t, renamed, publicJWK(t, stays))), []string{"key-still-there@192.0.2.1"}},
	} {
		set := newSet(t, w.signer, stays)
		set, err := set.Revoke(keystore.Change{At: time.Now().Add(-tt.gone), Why: "stolen"}, public(t, w.signer).ID(), keystore.RevokeOptions{})
		check(t, err)
		h := w.with(map[string]http.HandlerFunc{fetch.KeysPath: tt.jwks, fetch.AliasPath: tt.jwks})
		s := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": h}).compare(t, set, nil)
		var codes []string
		for _, c := range codesOf(s) {
			if !slices.Contains(codes, c) { // once for each path
				codes = append(codes, c)
			}
		}
		if !slices.Equal(codes, tt.want) {
			t.Errorf("%s: %q, want %q", name, codes, tt.want)
		}
	}
}

func TestCompareWithoutSomethingToCompare(t *testing.T) {
	w := newWorld(t)
	withdrawn, err := w.stored.Withdraw(keystore.Change{At: time.Now(), Why: "x", Force: true})
	check(t, err)
	one := func(h http.HandlerFunc) *places { return newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": h}) }
	if s := one(w.serve).compare(t, keystore.KeySet{}, errors.New("no such bucket")); !strings.Contains(s.NotCompared, "no such bucket") || s.Findings != nil || !s.Look.Complete() {
		t.Errorf("a store that cannot be read: %+v", s)
	}
	if s := one(w.serve).compare(t, withdrawn, nil); !strings.Contains(s.NotCompared, "was withdrawn") {
		t.Errorf("a key set that was withdrawn: %+v", s)
	}
	if s := one(status(503)).compare(t, w.stored, nil); s.NotCompared != "no JWKS could be read at "+testIssuer || !slices.Equal(s.Failed, []string{"192.0.2.1:443"}) {
		t.Errorf("nothing but errors: %+v", s)
	}
	p := one(w.serve)
	p.network.Patience = 0
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Compare(ctx, p.network, p.target, func(context.Context) (keystore.KeySet, error) { cancel(); return w.stored, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted while the store is read: %v", err)
	}
}

// The store is read after the last answer: whatever was published before is in it.
func TestCompareReadsTheStoreLast(t *testing.T) {
	w := newWorld(t)
	added := newECKey(t)
	w.jwks = append(w.jwks, publicJWK(t, added))
	p := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve})
	before := int64(0)
	s, err := Compare(t.Context(), p.network, p.target, func(context.Context) (keystore.KeySet, error) {
		before = p.dialled.Load()
		return newSet(t, w.signer, added), nil
	})
	check(t, err)
	if len(s.Findings) > 0 || before != 2*3 || p.dialled.Load() != before {
		t.Errorf("%d connections before the store was read, %d in all; %q", before, p.dialled.Load(), codesOf(s))
	}
}
