package verify

import (
	"bytes"
	"compress/gzip"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	check(t, err)
	check(t, z.Close())
	return b.Bytes()
}

// variants answers packed to whoever asks for gzip, as gzip data, and plain to all others.
func variants(plain http.HandlerFunc, packed []byte) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			plain(rw, r)
			return
		}
		rw.Header().Set("Cache-Control", "public, max-age=300")
		rw.Header().Set("Content-Encoding", "gzip")
		_, _ = rw.Write(packed)
	}
}

// unasked says that it is packed, and is not.
func unasked(body string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Encoding", "br")
		_, _ = rw.Write([]byte(body))
	}
}

// A cache may keep a copy for each Accept-Encoding, and Go's clients ask for gzip.
func TestObserveAsksForGzipToo(t *testing.T) {
	w := newWorld(t)
	k := public(t, w.signer)
	good, empty := jwksJSON(t, w.jwks...), `{"keys":[]}`
	zip := func(text string) []byte { return gzipped(t, text) }
	const other = "at 192.0.2.2:443: " + testIssuer + keysPath + inGzip + " has other keys than without: a cache keeps a copy for each"
	const where = testIssuer + keysPath + inGzip
	corrupt := zip(good)
	corrupt[len(corrupt)-8]++ // the checksum
	for name, tt := range map[string]struct {
		h    http.HandlerFunc // at one path of the second address
		seen bool
		gap  string // in part; empty: complete
	}{
		"the same packed":             {variants(jsonOf(good), zip(good)), true, ""},
		"an old copy packed":          {variants(jsonOf(good), zip(empty)), false, other},
		"an old copy unpacked":        {variants(jsonOf(empty), zip(good)), false, other},
		"both, as the key comes":      {once(variants(jsonOf(empty), nil), variants(jsonOf(good), zip(good))), false, ""},
		"data that is no gzip":        {variants(jsonOf(good), []byte(good)), false, where + " cannot be unpacked: its Content-Encoding is gzip"},
		"gzip that is broken":         {variants(jsonOf(good), corrupt), false, where + " cannot be unpacked"},
		"packed though nobody asked":  {unasked(good), false, testIssuer + keysPath + " cannot be unpacked: its Content-Encoding is br"},
		"one that grows out of hand":  {variants(jsonOf(good), zip(strings.Repeat(" ", 64<<20)+good)), false, "larger than"},
		"one that grows up to bounds": {variants(jsonOf(good), zip(strings.Repeat(" ", maxBody-len(good))+good)), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := w.with(map[string]http.HandlerFunc{keysPath: tt.h})
			l := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.serve, "192.0.2.2": h}).observe(t)
			seen := slices.Contains(l.Keys, observation.Key{ID: k.ID(), Fingerprint: k.Fingerprint()})
			if gaps := strings.Join(l.Gaps, "\n"); seen != tt.seen || l.Complete() != (tt.gap == "") || !strings.Contains(gaps, tt.gap) {
				t.Errorf("seen %t, gaps %q; want %t, %q", seen, l.Gaps, tt.seen, tt.gap)
			}
		})
	}
}

// Two replicas that take turns are no copies for each encoding: each of them is asked both ways.
func TestGzipDoesNotKeepUpWithReplicas(t *testing.T) {
	w := newWorld(t)
	var asked [2][2]atomic.Int64 // of replica, packed
	var n atomic.Int64
	turns := func(rw http.ResponseWriter, r *http.Request) {
		replica, packed := n.Add(1)%2, 0
		if r.Header.Get("Accept-Encoding") == "gzip" {
			packed = 1
		}
		asked[replica][packed].Add(1)
		jsonOf([]string{jwksJSON(t, w.jwks...), `{"keys":[]}`}[replica])(rw, r)
	}
	l := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.with(map[string]http.HandlerFunc{keysPath: turns})}).observe(t)
	if len(l.Keys) != 0 || len(l.Gaps) != 0 {
		t.Errorf("keys %v, gaps %q", l.Keys, l.Gaps)
	}
	for i := range 4 {
		if asked[i/2][i%2].Load() != rounds/4 {
			t.Errorf("replica %d, gzip %t: asked %d times", i/2, i%2 == 1, asked[i/2][i%2].Load())
		}
	}
}

// A revoked key that is left in one variant alone is named with it, by the look after a revocation and by verify.
func TestARevokedKeyThatIsLeftInGzip(t *testing.T) {
	w := newWorld(t)
	stays := newECKey(t)
	both, one := jwksJSON(t, w.jwks[0], publicJWK(t, stays)), jwksJSON(t, publicJWK(t, stays))
	set, err := newSet(t, w.signer, stays).Revoke(keystore.Change{At: time.Now().Add(-10 * time.Minute), Why: "stolen"}, public(t, w.signer).ID(), keystore.RevokeOptions{})
	check(t, err)
	for name, tt := range map[string]struct {
		h     http.HandlerFunc
		codes int // with the key
		names bool
	}{
		"in gzip":      {variants(jsonOf(one), gzipped(t, both)), 1, true},
		"in the other": {variants(jsonOf(both), gzipped(t, one)), 1, false},
		"in both":      {variants(jsonOf(both), gzipped(t, both)), 1, false},
		"in neither":   {variants(jsonOf(one), gzipped(t, one)), 0, false},
	} {
		s := newPlaces(t, w, map[string]http.HandlerFunc{"192.0.2.1": w.with(map[string]http.HandlerFunc{keysPath: tt.h, aliasPath: jsonOf(one)})}).compare(t, set, nil)
		if len(s.Findings) != tt.codes || tt.codes > 0 && (s.Findings[0].Code != "key-not-withdrawn" || strings.Contains(s.Findings[0].Evidence, inGzip) != tt.names) {
			t.Errorf("%s: %+v", name, s.Findings)
		}
	}
	w.jwks = []member{publicJWK(t, stays)}
	w.options.Stored = func(context.Context) (keystore.KeySet, error) { return set, nil }
	w.replace["/prod-a"+keysPath] = func(rw http.ResponseWriter, r *http.Request) {
		plain := httptest.NewRecorder()
		w.write(plain, []byte(one))
		for name, values := range plain.Header() {
			rw.Header()[name] = values
		}
		variants(jsonOf(one), gzipped(t, both))(rw, r)
	}
	found := w.visit(t)
	stale := slices.IndexFunc(found, func(f finding.Finding) bool { return f.Code == "replica-stale" })
	still := slices.IndexFunc(found, func(f finding.Finding) bool { return f.Code == "key-not-withdrawn" })
	if stale < 0 || still < 0 || !strings.Contains(found[stale].Evidence, "which are all that were asked for with Accept-Encoding: gzip") || !strings.Contains(found[still].Evidence, inGzip) {
		t.Errorf("%+v", found)
	}
}
