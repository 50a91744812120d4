package issuer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/keypost/keypost/internal/ownlook"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// asks sends a request and returns when each issuer URL of the key set b is reported to have been asked for last.
func (b *bench) asks(method, url string, more http.Header) map[string]time.Time {
	r := httptest.NewRequest(method, url, nil)
	for name, values := range more {
		r.Header[name] = values
	}
	b.http.ServeHTTP(httptest.NewRecorder(), r)
	for _, s := range b.Report().Issuers {
		if s.Name == "b" {
			return s.Asked
		}
	}
	b.t.Fatal("no key set b")
	return nil
}

func TestLastAsked(t *testing.T) {
	const old, moved = urlB, "https://b.oidc.example.com"
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		put := func(generation int64) {
			b.put(doc{name: "b", generation: generation, keys: []keystore.VerificationKey{key(t, 3)}, issuers: []string{old, moved}})
			b.poll()
		}
		put(1)
		began := time.Now()
		if since := b.Report().Since; !since.Equal(began) {
			t.Errorf("since %v, want %v", since, began)
		}
		look := http.Header{}
		ownlook.Claim(look)
		for what, asked := range map[string]map[string]time.Time{
			"nobody":          b.asks("GET", "https://oidc.example.com/nobody"+JWKSPath, nil),
			"no document":     b.asks("GET", old, nil),
			"a refused one":   b.asks("POST", old+JWKSPath, nil),
			"keypost's looks": b.asks("GET", old+JWKSPath, look),
		} {
			if len(asked) > 0 {
				t.Errorf("%s counts as asked for: %v", what, asked)
			}
		}
		check := func(what string, got map[string]time.Time, want map[string]time.Duration) {
			t.Helper()
			at := map[string]time.Duration{}
			for u, when := range got {
				at[u] = when.Sub(began)
			}
			if fmt.Sprint(at) != fmt.Sprint(want) {
				t.Errorf("%s: asked for at %v, want %v", what, at, want)
			}
		}
		time.Sleep(time.Minute)
		check("JWKS", b.asks("GET", old+JWKSPath, nil), map[string]time.Duration{old: time.Minute})
		time.Sleep(time.Minute)
		check("discovery of the other", b.asks("HEAD", moved+DiscoveryPath, nil), map[string]time.Duration{old: time.Minute, moved: 2 * time.Minute})
		put(2) // a new version goes on with the times
		time.Sleep(time.Minute)
		etag := http.Header{"If-None-Match": {"*"}}
		check("unchanged", b.asks("GET", old+JWKSAliasPath, etag), map[string]time.Duration{old: 3 * time.Minute, moved: 2 * time.Minute})
	})
}

// The page of metrics does not grow with the store for ever, and what it leaves out is what nobody looks for.
func TestNamedSeriesAreBounded(t *testing.T) {
	b := newBench(t)
	const many = MostNamed + 30
	for i := range many {
		b.put(doc{name: fmt.Sprintf("n%04d", i), generation: 1, keys: []keystore.VerificationKey{key(t, 1)}, issuers: []string{fmt.Sprintf("https://oidc.example.com/n%04d", i)}})
	}
	b.poll()
	for i := range 20 { // those that are in use are left out first
		b.ask("https://oidc.example.com/" + fmt.Sprintf("n%04d", i) + JWKSPath)
	}
	asked := 0
	for d, all := range b.named() {
		if len(all) > MostNamed {
			t.Errorf("%v has %d series", d, len(all))
		}
		if d == askedDesc {
			for _, s := range all {
				if s.value != 0 {
					asked++
				}
			}
		}
	}
	if n := testutil.CollectAndCount(b.Publisher, "keypost_issuer_last_asked_timestamp_seconds"); n != MostNamed || asked != 0 {
		t.Errorf("%d series, %d of them of issuers in use", n, asked)
	}
}

func (b *bench) ask(url string) {
	b.http.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, url, nil))
}

// values returns the series of a metric that the publisher makes, by their labels.
func (b *bench) values(name string) string {
	var got []string
	registry, page := prometheus.NewRegistry(), httptest.NewRecorder()
	registry.MustRegister(b.Publisher)
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if series, is := strings.CutPrefix(strings.TrimSpace(line), name); is {
			labels, value, _ := strings.Cut(series, " ")
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s %d", labels, int64(f)))
		}
	}
	return strings.Join(got, "\n")
}

func TestMetricsOfKeySets(t *testing.T) {
	b := troubled(t)
	first := storetest.Time(0).Unix()
	for name, want := range map[string]string{
		"keypost_key_set_rejected":                            `{key_set="b",reason="missing"} 1` + "\n" + `{key_set="c",reason="older_generation"} 1` + "\n" + `{key_set="d",reason="broken"} 1`,
		"keypost_key_set_oldest_active_key_timestamp_seconds": fmt.Sprintf("{key_set=%q} %d\n{key_set=%q} %d\n{key_set=%q} %d", "a", first, "b", first, "c", first),
		"keypost_key_set_forced_promotion_timestamp_seconds":  "",
		"keypost_issuer_last_asked_timestamp_seconds":         `{issuer="https://b.oidc.example.com",key_set="b"} 0` + "\n" + `{issuer="https://oidc.example.com/a",key_set="a"} 0` + "\n" + `{issuer="https://oidc.example.com/b",key_set="b"} 0` + "\n" + `{issuer="https://oidc.example.com/c",key_set="c"} 0`,
	} {
		if got := b.values(name); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// Who writes a document by hand dates it as he likes: what a process has seen change counts as well.
func TestWhenKeysChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const changed, forced = "keypost_key_set_keys_changed_timestamp_seconds", "keypost_key_set_forced_promotion_timestamp_seconds"
		b := newBench(t)
		check := func(what, metric string, want time.Time) {
			t.Helper()
			if got := b.values(metric); got != fmt.Sprintf("{key_set=\"a\"} %d", want.Unix()) {
				t.Errorf("%s: %s%s, want %d", what, metric, got, want.Unix())
			}
		}
		time.Sleep(time.Until(storetest.Time(0))) // the bubble begins in 2000
		put := func(d doc) time.Time {
			time.Sleep(time.Hour)
			d.name = "a"
			b.put(d)
			b.poll()
			return time.Now()
		}
		two := []keystore.VerificationKey{key(t, 1), key(t, 2)}
		put(doc{generation: 1, keys: two[:1]})
		check("as dated at the start", changed, storetest.Time(0))
		put(doc{generation: 2, keys: two[:1], policy: map[string]any{"maxAge": "2m"}})
		check("no key has changed", changed, storetest.Time(0))
		added := put(doc{generation: 3, keys: two, states: []keystore.State{keystore.Active, keystore.Next}})
		check("a key that is dated back", changed, added)
		put(doc{generation: 4, keys: two, states: []keystore.State{keystore.Active, keystore.Next}, policy: map[string]any{"maxAge": "3m"}})
		check("no key has changed since", changed, added)
		swapped := put(doc{generation: 5, keys: two, states: []keystore.State{keystore.Next, keystore.Active}, history: []keystore.Event{
			{At: storetest.Time(time.Hour), By: "x", What: "promote key y", Forced: true}, {At: storetest.Time(2 * time.Hour), By: "x", What: "retire key y", Forced: true},
			{At: storetest.Time(3 * time.Hour), By: "x", What: "promote key y"},
		}})
		check("as many keys of each state as before", changed, swapped)
		check("the only forced promotion", forced, storetest.Time(time.Hour))
	})
}
