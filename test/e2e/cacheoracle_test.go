//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/internal/caching"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/policy"
	"github.com/keypost/keypost/keystore/storetest"
	programs "github.com/keypost/keypost/test/process"
)

// copied is a case: what a key set's policy is, and the headers with which a cache, or the relying party behind it, gets the
// keys in the end.
type copied struct {
	name   string
	set    keystore.KeySet
	header http.Header
	looked bool // an observer has seen these headers; else the gate goes only by the policy
}

// seen is what an observer makes of the headers, as package verify does.
func (c copied) seen(at time.Time) keystore.Cache {
	if !c.looked {
		return keystore.Cache{}
	}
	whileRevalidate, ifError := caching.Stale(c.header)
	return keystore.Cache{MaxAge: caching.Longest(c.header, at), StaleWhileRevalidate: whileRevalidate, StaleIfError: ifError}
}

// lifetime is what the oracle says.
type lifetime struct{ Fresh, Held float64 }

// cacheOracle asks npm http-cache-semantics how long answers with these headers may be handed out, by caches of one kind.
func cacheOracle(t *testing.T, shared bool, headers []http.Header) []lifetime {
	t.Helper()
	var asked []map[string]any
	for _, h := range headers {
		lower := map[string]string{}
		for name, values := range h {
			lower[strings.ToLower(name)] = strings.Join(values, ", ")
		}
		asked = append(asked, map[string]any{"headers": lower, "shared": shared})
	}
	text, err := json.Marshal(asked)
	must(t, err)
	var all []lifetime
	must(t, json.Unmarshal([]byte(command(t, nil, string(text), "node", filepath.Join(os.Getenv("KEYPOST_E2E_NPM"), "cache.mjs")).ok(t)), &all))
	if len(all) != len(headers) {
		t.Fatalf("%d answers to %d questions", len(all), len(headers))
	}
	return all
}

// cacheArithmetic is how long a copy may last, by somebody's reckoning.
type cacheArithmetic func(c copied, at time.Time) time.Duration

// gateArithmetic is the product's: what the gate of promotion counts beside the convergence of the servers and the clocks.
func gateArithmetic(c copied, at time.Time) time.Duration {
	return c.set.Gates().CopiesUntil(at, c.seen(at)).Sub(at) - policy.Convergence
}

// mutants are formulas that are too short. The oracle must find each of them out.
func mutants() map[string]cacheArithmetic {
	by := func(sum func(maxAge, whileRevalidate, ifError time.Duration) time.Duration) cacheArithmetic {
		return func(c copied, at time.Time) time.Duration {
			p := c.set.Policy()
			l := p.Cache(keystore.DefaultCache()).Longest(c.seen(at))
			return sum(l.MaxAge, l.StaleWhileRevalidate, l.StaleIfError)
		}
	}
	return map[string]cacheArithmetic{
		"without stale-if-error":         by(func(m, w, _ time.Duration) time.Duration { return m + w + m }),
		"without stale-while-revalidate": by(func(m, _, e time.Duration) time.Duration { return m + e + m }),
		"without the edge":               by(func(m, _, _ time.Duration) time.Duration { return m }),
		"without the relying party":      by(func(m, w, e time.Duration) time.Duration { return m + w + e }),
		"the longest and not the sum":    by(func(m, w, e time.Duration) time.Duration { return max(m, w, e) + m }),
		"only the policy": func(c copied, at time.Time) time.Duration {
			c.looked = false
			return gateArithmetic(c, at)
		},
	}
}

// TestCacheOracle holds the arithmetic of the gate against a reading of RFC 9111 and 5861 by others: a shared cache that has just got
// the keys without the new one, at whatever age, and then a relying party behind it that was not told that age, have it no longer
// than the gate says.
func TestCacheOracle(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	cases := copiedCases(t, now)
	var atEdge, atParty []http.Header
	for _, c := range cases {
		atEdge = append(atEdge, c.header)
		hidden := c.header.Clone()
		hidden.Del("Age")
		hidden.Set("Date", now.Format(http.TimeFormat))
		atParty = append(atParty, hidden)
	}
	edges, parties := cacheOracle(t, true, atEdge), cacheOracle(t, false, atParty)
	last := func(i int) time.Duration {
		age, _ := strconv.Atoi(cases[i].header.Get("Age"))
		return time.Duration((float64(max(0, age)) + edges[i].Held + parties[i].Fresh) * float64(time.Second))
	}
	const rounding = 2 * time.Second // the oracle counts from when it is asked, and Date has whole seconds
	short := func(a cacheArithmetic) (names []string) {
		for i, c := range cases {
			if bound := a(c, now); last(i) > bound+rounding {
				names = append(names, fmt.Sprintf("%s: the last copy is %v old, and %v are counted", c.name, last(i).Round(time.Second), bound))
			}
		}
		return names
	}
	longest := 0.0
	for i, c := range cases {
		longest = max(longest, last(i).Seconds()/gateArithmetic(c, now).Seconds())
	}
	t.Logf("%d cases; the last copy is given away after at most %.0f %% of what the gate counts", len(cases), 100*longest)
	for _, s := range short(gateArithmetic) {
		t.Error(s)
	}
	for name, mutant := range mutants() {
		found := short(mutant)
		t.Logf("%s: %d cases are longer", name, len(found))
		if len(found) == 0 {
			t.Errorf("an arithmetic %s is not found out", name)
		}
	}
}

// copiedCases are what a keypostd serves for several policies, and what caches make of it.
func copiedCases(t *testing.T, now time.Time) []copied {
	t.Helper()
	dir := t.TempDir()
	backend, err := filestore.Create(dir)
	must(t, err)
	var all []copied
	d, day := keystore.DurationPtr, 24*time.Hour
	for i, p := range []keystore.Policy{
		{}, // what keypostd serves by itself
		{MaxAge: d(time.Minute), StaleWhileRevalidate: d(0), StaleIfError: d(0)},
		{MaxAge: d(time.Minute), StaleIfError: d(time.Hour)},
		{StaleWhileRevalidate: d(0)},
		{MaxAge: d(time.Hour), StaleWhileRevalidate: d(day), StaleIfError: d(time.Hour)},
		{MaxAge: d(day), StaleWhileRevalidate: d(7 * day), StaleIfError: d(7 * day)},
		{EdgeHold: d(2 * day)},
	} {
		p.RelyingParties = []string{"vault"} // which keeps a copy for as long as its headers say
		key, err := keystore.NewPublic(newECKey(t).Public())
		must(t, err)
		set, err := keystore.New(keystore.Change{At: now.Add(-10 * day), By: "e2e"}, keystore.Spec{
			Name: keystore.Name(fmt.Sprintf("p%d", i)), Issuers: storetest.URLs(t, fmt.Sprintf("https://%s/p%d", cdnHost, i)),
			Keys: []keystore.VerificationKey{key}, Policy: p,
		})
		must(t, err)
		must(t, keystore.Create(t.Context(), keystore.NewStore(backend), set))
		all = append(all, copied{name: string(set.Name()), set: set})
	}
	client, url := servedFrom(t, dir)
	var more []copied
	for i := range all {
		res, err := client.Get(url + "/" + string(all[i].set.Name()) + "/keys.json")
		must(t, err)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatal(res.Status)
		}
		all[i].header = res.Header
		all[i].name += " (" + res.Header.Get("Cache-Control") + ")"
		more = append(more, all[i].aged()...)
		more = append(more, all[i].rewritten(now)...)
	}
	return append(all, more...)
}

// servedFrom starts a keypostd without TLS for a directory.
func servedFrom(t *testing.T, dir string) (client *http.Client, url string) {
	t.Helper()
	address, admin := programs.FreeAddress(t), programs.FreeAddress(t)
	config := filepath.Join(t.TempDir(), "keypostd.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `dir: %s
issuerURLs: ["https://%s/{name}"]
listen: {address: %q, drainDelay: 0s, tls: {mode: "off"}}
admin: {address: %q}
`, dir, cdnHost, address, admin), 0o600))
	p := start(t, "keypostd-"+admin[strings.LastIndexByte(admin, ':')+1:], binary("keypostd"), "--config", config)
	p.await(t, "ready", func(ctx context.Context) error { return expect(ctx, http.DefaultClient, "http://"+admin+"/readyz", "") })
	return impatient(address, newAuthority(t)), "http://" + cdnHost
}

// aged are answers that come from another cache, which says how old they are, up to as old as it may hand them out.
func (c copied) aged() (all []copied) {
	l := c.set.Policy()
	k := l.Cache(keystore.DefaultCache())
	for _, age := range []time.Duration{time.Second, k.MaxAge / 2, k.MaxAge, k.MaxAge + k.StaleWhileRevalidate, k.MaxAge + max(k.StaleWhileRevalidate, k.StaleIfError)} {
		aged := copied{c.name + ", Age " + age.String(), c.set, c.header.Clone(), false}
		aged.header.Set("Age", strconv.Itoa(int(age.Seconds())))
		all = append(all, aged)
	}
	return all
}

// rewritten are answers whose headers a cache has changed, and which an observer has seen.
func (c copied) rewritten(now time.Time) (all []copied) {
	served := c.header.Get("Cache-Control")
	for name, control := range map[string][]string{
		"upper case": {strings.ToUpper(served)}, "two lines": strings.SplitN(served, ", ", 2),
		"a longer max-age": {"public, max-age=172800"}, "a longer max-age first": {"max-age=172800", served},
		"s-maxage": {served + ", s-maxage=172800"}, "a shorter s-maxage": {served + ", s-maxage=1"}, "quotes": {`max-age="172800"`},
		"a longer stale-if-error": {"max-age=60, stale-if-error=2592000"}, "a longer stale-while-revalidate": {"max-age=60, stale-while-revalidate=2592000"},
		"must-revalidate": {served + ", must-revalidate"}, "no-cache": {served + ", no-cache"}, "no-store": {served + ", no-store"}, "private": {"private, max-age=60"},
		"immutable": {served + ", immutable"}, "beyond 32 bits": {"max-age=99999999999"}, "nonsense": {"max-age=x, stale-if-error=-1"},
	} {
		changed := copied{c.name + ", " + name, c.set, c.header.Clone(), true}
		changed.header["Cache-Control"] = control
		all = append(all, changed)
	}
	for name, set := range map[string]map[string]string{
		"Expires beside it":  {"Expires": now.Add(720 * time.Hour).Format(http.TimeFormat)},
		"only Expires":       {"Expires": now.Add(720 * time.Hour).Format(http.TimeFormat), "Cache-Control": ""},
		"Expires, Date off":  {"Expires": now.Add(720 * time.Hour).Format(http.TimeFormat), "Date": now.Add(-time.Hour).Format(http.TimeFormat), "Cache-Control": ""},
		"Date in the past":   {"Date": now.Add(-time.Hour).Format(http.TimeFormat)},
		"Date in the future": {"Date": now.Add(time.Hour).Format(http.TimeFormat)},
		// A negative one is left out: it is none (RFC 9111, section 5.1), but the oracle adds it up.
		"Age that is none":  {"Age": "x"},
		"Pragma":            {"Pragma": "no-cache"},
		"Surrogate-Control": {"Surrogate-Control": "max-age=172800"},
	} {
		changed := copied{c.name + ", " + name, c.set, c.header.Clone(), true}
		for _, field := range slices.Sorted(maps.Keys(set)) {
			if changed.header.Set(field, set[field]); set[field] == "" {
				changed.header.Del(field)
			}
		}
		all = append(all, changed)
	}
	return all
}
