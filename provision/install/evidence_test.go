package install

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/storetest"
)

var (
	published = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	here      = netip.MustParseAddr("192.0.2.1")
)

func keySet(t *testing.T, dev bool, p keystore.Policy) (keystore.KeySet, keystore.VerificationKey) {
	t.Helper()
	key := storetest.Key(t)
	spec := keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, "https://oidc.example.com/prod-a"), Keys: []keystore.VerificationKey{key}, Dev: dev, Policy: p}
	s, err := keystore.New(keystore.Change{At: published}, spec)
	if err != nil {
		t.Fatal(err)
	}
	return s, key
}

// sightAt is a look without fault that ended some time after the publication.
func sightAt(key keystore.VerificationKey, after time.Duration, whole bool) sight {
	ahead := observation.Offset(0)
	return sight{whole: whole, failed: map[string]error{}, Look: observation.Look{
		Start: published.Add(after - time.Second), End: published.Add(after), Addresses: []string{"192.0.2.1:443"}, Answers: 2,
		Keys: []observation.Key{seenKey(key)}, ClockAhead: &ahead,
	}}
}

// sound is evidence that nothing is said against: brief, whole, brief.
func sound(t *testing.T) evidence {
	t.Helper()
	s, key := keySet(t, false, keystore.Policy{})
	return evidence{set: s, keys: []keystore.VerificationKey{key}, inDir: true, own: []netip.Addr{here}, looks: []sight{
		sightAt(key, 2*time.Second, false), sightAt(key, 14*time.Second, true), sightAt(key, 15*time.Second, false),
	}}
}

const usual = 135 * time.Second // convergence of the servers (75 s), and what answers "not found" for 60 s

// Without evidence the wait is as long as ever, from when the key was seen: how long it lay in the store says nothing, since
// what serves the store may have been slow.
func TestWithoutEvidence(t *testing.T) {
	for _, tt := range []struct {
		name   string
		dev    bool
		maxAge time.Duration
		seen   time.Duration // after it was published
		later  bool          // an earlier look found nothing
		want   time.Duration // after it was seen
	}{
		{"served from the beginning", false, 5 * time.Minute, time.Second, false, usual},
		{"published an hour ago", false, 5 * time.Minute, time.Hour, false, usual},
		{"published a year ago", false, 5 * time.Minute, 365 * 24 * time.Hour, false, usual},
		{"served only now", false, 5 * time.Minute, time.Hour, true, usual},
		{"published by a clock that is ahead", false, 5 * time.Minute, -time.Hour, false, usual},
		{"short max-age: an answer 404 has its own", false, time.Minute, 0, false, usual},
		{"long max-age: nothing was there to be kept", false, time.Hour, 0, false, usual},
		{"development", true, time.Second, 10 * time.Second, true, time.Second},
		{"development, at the first look", true, time.Second, 10 * time.Second, false, time.Second},
		{"development, with a long max-age", true, time.Hour, 0, false, 5 * time.Second},
	} {
		s, key := keySet(t, tt.dev, keystore.Policy{MaxAge: keystore.DurationPtr(tt.maxAge)})
		e := evidence{set: s, keys: []keystore.VerificationKey{key}, looks: []sight{sightAt(key, tt.seen, false)}}
		if tt.later {
			none := sightAt(key, tt.seen-time.Second, false)
			none.Keys = nil
			e.looks = slices.Insert(e.looks, 0, none)
		}
		if v := e.judge(); v.until.Sub(published) != tt.seen+tt.want || v.evident || !v.served || v.why == "" {
			t.Errorf("%s: %+v after %v, want %v", tt.name, v, v.until.Sub(published), tt.seen+tt.want)
		}
	}
}

// What counts from before the run is what somebody saw, not what somebody stored.
func TestRunsOut(t *testing.T) {
	const seen = time.Hour // all of these are after the publication
	for _, tt := range []struct {
		name              string
		observed, trusted time.Duration // negative for never
		earlier           bool          // the provider was there before the key
		want              time.Duration
	}{
		{name: "nothing is known", observed: -1, trusted: -1, want: seen + usual},
		{name: "observed long before", observed: time.Minute, trusted: -1, want: time.Minute + usual},
		{name: "observed a minute before", observed: seen - time.Minute, trusted: -1, want: seen - time.Minute + usual},
		{name: "observed by a clock that is ahead", observed: 2 * seen, trusted: -1, want: seen + usual},
		{name: "trusted since a run that went on by evidence", observed: -1, trusted: 15 * time.Second, want: 15 * time.Second},
		{name: "trusted a moment ago", observed: -1, trusted: seen - time.Second, want: seen - time.Second},
		{name: "trusted since before the key: that was another", observed: -1, trusted: time.Hour, earlier: true, want: seen + usual},
		{name: "trusted since before the key, which was observed", observed: time.Minute, trusted: time.Hour, earlier: true, want: time.Minute + usual},
		{name: "trusted and observed", observed: seen - time.Minute, trusted: time.Minute, want: time.Minute},
		{name: "trusted by a clock that is ahead", observed: -1, trusted: 2 * seen, want: seen},
	} {
		k := keystore.Key{PublishedAt: published}
		var trusted time.Time
		if tt.observed >= 0 {
			k.ObservedAt = published.Add(tt.observed)
		}
		switch {
		case tt.earlier:
			trusted = published.Add(-tt.trusted)
		case tt.trusted >= 0:
			trusted = published.Add(tt.trusted)
		}
		if got := runsOut(k, published.Add(seen), trusted, usual).Sub(published); got != tt.want {
			t.Errorf("%s: %v after the publication, want %v", tt.name, got, tt.want)
		}
	}
}

// A provider that is there ends the wait, unless a look of the run did not find the key: then it is gone through once more.
func TestTrustedAlready(t *testing.T) {
	s, key := keySet(t, false, keystore.Policy{EdgeHold: keystore.DurationPtr(time.Hour), ObserveFrom: []string{"eu"}})
	e := evidence{set: s, keys: []keystore.VerificationKey{key}, trusted: published.Add(usual), looks: []sight{sightAt(key, time.Hour, false)}}
	if v := e.judge(); !v.served || v.why != "" || v.evident || v.until.After(e.looks[0].End) {
		t.Errorf("the second run waits: %+v", v)
	}
	none := sightAt(key, time.Hour-time.Second, false)
	none.Keys = nil
	e.looks = slices.Insert(e.looks, 0, none)
	if v := e.judge(); v.until.Sub(published) != time.Hour+usual {
		t.Errorf("after an answer without the key: %+v", v)
	}
}

// A run that makes nothing sends nobody to the issuer: that the keys are served is enough, unless the cluster has a next one.
func TestSettledIsNotWaitedFor(t *testing.T) {
	s, key := keySet(t, false, keystore.Policy{EdgeHold: keystore.DurationPtr(time.Hour)})
	e := evidence{set: s, keys: []keystore.VerificationKey{key}, settled: true, looks: []sight{sightAt(key, time.Minute, false)}}
	if v := e.judge(); !v.served || v.why != "" || v.until.After(e.looks[0].End) {
		t.Errorf("it waits: %+v", v)
	}
	none := sightAt(key, time.Minute-time.Second, false)
	none.Keys = nil
	e.looks = slices.Insert(e.looks, 0, none)
	if v := e.judge(); v.until.Sub(published) != time.Minute+usual {
		t.Errorf("after an answer without the key: %+v", v)
	}
	next := storetest.SyntheticRSA(t, 7)
	s, err := s.Add(keystore.Change{At: published.Add(time.Second)}, next)
	if err != nil {
		t.Fatal(err)
	}
	e.set, e.keys, e.looks = s, []keystore.VerificationKey{next}, []sight{sightAt(next, time.Minute, false)}
	if v := e.judge(); v.until.Sub(published) != time.Minute+usual {
		t.Errorf("with a next key: %+v", v)
	}
}

// Of two keys one may have been there for longer.
func TestTheLatestKeyCounts(t *testing.T) {
	s, key := keySet(t, false, keystore.Policy{})
	second := storetest.SyntheticRSA(t, 7)
	s, err := s.Add(keystore.Change{At: published.Add(time.Minute)}, second)
	if err != nil {
		t.Fatal(err)
	}
	l := sightAt(key, 2*time.Minute, false)
	e := evidence{set: s, keys: []keystore.VerificationKey{second, key}, looks: []sight{l}}
	if v := e.judge(); v.served {
		t.Errorf("a key of two is enough: %+v", v)
	}
	e.looks[0].Keys = append(e.looks[0].Keys, seenKey(second))
	e.trusted = published.Add(time.Second) // since before the second
	if v := e.judge(); v.until.Sub(published) != 2*time.Minute+usual {
		t.Errorf("until %v after the first publication", v.until.Sub(published))
	}
	e.trusted = published.Add(time.Minute)
	if v := e.judge(); v.until.Sub(published) != time.Minute {
		t.Errorf("until %v after the first publication", v.until.Sub(published))
	}
}

func TestEvidence(t *testing.T) {
	e := sound(t)
	if v := e.judge(); !v.served || !v.evident || v.why != "" || v.until.Sub(published) != 15*time.Second {
		t.Errorf("%+v", v)
	}
	e.looks = e.looks[1:] // two are enough
	if v := e.judge(); !v.evident {
		t.Errorf("%+v", v)
	}
	e = sound(t) // by the policy: whatever the store and the addresses are
	e.set, _ = keySet(t, false, keystore.Policy{Origins: []string{"a.example.net", "b.example.net"}})
	e.inDir, e.own = false, nil
	if v := e.judge(); !v.evident {
		t.Errorf("every origin was asked: %+v", v)
	}
	e = sound(t) // nobody was there when it was looked at first
	e.looks[0].failed["192.0.2.1:443"], e.looks[0].Answers, e.looks[0].Keys, e.looks[0].Gaps = dialError(syscall.ECONNREFUSED), 0, nil, []string{"refused"}
	if v := e.judge(); !v.evident {
		t.Errorf("before it was started: %+v", v)
	}
	for _, status := range []int{500, 503, 504} { // a server with no key set yet, or in trouble: no cache keeps that
		e = sound(t)
		e.looks = slices.Insert(e.looks, 0, sightAt(e.keys[0], time.Second, false))
		e.looks[0].Answers, e.looks[0].Keys = 0, nil
		e.looks[0].failed["192.0.2.1:443"] = fmt.Errorf("at it: %w", &fetch.StatusError{Status: status})
		if v := e.judge(); !v.evident {
			t.Errorf("after an answer %d: %+v", status, v)
		}
	}
	e = sound(t) // what was seen in time was not needed
	e.looks = append(e.looks, sightAt(e.keys[0], time.Hour, false))
	if v := e.judge(); v.evident || v.why != "" || v.until.Sub(published) != 2*time.Second+usual {
		t.Errorf("an hour later: %+v", v)
	}
}

// Looks alone are missing: it is worth while to make them.
func TestMoreLooks(t *testing.T) {
	for n, want := range []bool{1: true, 2: true, 3: false} {
		if n == 0 {
			continue
		}
		e := sound(t)
		e.looks = e.looks[:n]
		v := e.judge()
		if v.more != want || v.evident == want || !v.until.After(e.looks[n-1].End) == want {
			t.Errorf("after %d looks: %+v", n, v)
		}
	}
}

func dialError(errno syscall.Errno) error {
	return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}
}

// flaw is one thing that could hide somebody who answers otherwise.
type flaw struct {
	spoil func(t *testing.T, e *evidence, at int) // at: which look
	why   string
	once  bool // it is about no look in particular
	any   bool // in a look of before it was served too
}

func flaws() map[string]flaw {
	withPolicy := func(p keystore.Policy) func(*testing.T, *evidence, int) {
		return func(t *testing.T, e *evidence, _ int) { t.Helper(); e.set, _ = keySet(t, false, p) }
	}
	fail := func(err error) func(*testing.T, *evidence, int) {
		return func(_ *testing.T, e *evidence, at int) {
			e.looks[at].failed["192.0.2.1:443"], e.looks[at].Gaps = err, []string{"at 192.0.2.1:443: x"}
		}
	}
	ahead := func(d time.Duration) func(*testing.T, *evidence, int) {
		return func(_ *testing.T, e *evidence, at int) { o := observation.Offset(d); e.looks[at].ClockAhead = &o }
	}
	return map[string]flaw{
		"a proxy":                {func(_ *testing.T, e *evidence, _ int) { e.looks[len(e.looks)-1].proxied = true }, "proxy", true, false},
		"several vantages":       {withPolicy(keystore.Policy{ObserveFrom: []string{"eu"}}), "observeFrom", true, false},
		"a declared cache":       {withPolicy(keystore.Policy{EdgeHold: keystore.DurationPtr(time.Hour), Origins: []string{"a.example.net"}}), "edgeHold", true, false},
		"a cache":                {func(_ *testing.T, e *evidence, at int) { e.looks[at].SharedCache = "Age: 3" }, "Age: 3", false, true},
		"a 404 at one address":   {func(_ *testing.T, e *evidence, at int) { e.looks[at].Keys = nil }, "without the key", false, true},
		"a 404 of the discovery": {fail(errors.New("answers 404")), "without the key", false, true},
		"trouble":                {fail(&net.OpError{Op: "read", Err: syscall.ECONNRESET}), "without the key", false, true},
		"another key of that name": {func(_ *testing.T, e *evidence, at int) {
			e.looks[at].Keys = []observation.Key{{ID: e.keys[0].ID(), Fingerprint: "x"}}
		}, "without the key", false, true},
		"DNS changes": {func(_ *testing.T, e *evidence, at int) { e.looks[at].Addresses = []string{"192.0.2.9:443"} }, "addresses changed", false, true},
		"DNS brings one more": {func(_ *testing.T, e *evidence, at int) {
			e.looks[at].Addresses = append(e.looks[at].Addresses, "192.0.2.9:443")
		}, "addresses changed", false, true},
		"DNS fails": {func(_ *testing.T, e *evidence, at int) {
			e.looks[at] = sight{failed: map[string]error{"oidc.example.com": &net.DNSError{}}}
		}, "addresses changed", false, true},
		"a gap":                    {func(_ *testing.T, e *evidence, at int) { e.looks[at].Gaps = []string{"10.0.0.1:443 is not public"} }, "not public", false, false},
		"a cache, by Date alone":   {ahead(3 * time.Second), "Date", false, false},
		"a clock that is behind":   {ahead(-3 * time.Second), "Date", false, false},
		"no Date":                  {func(_ *testing.T, e *evidence, at int) { e.looks[at].ClockAhead = nil }, "Date", false, false},
		"a store that others read": {func(_ *testing.T, e *evidence, _ int) { e.inDir = false }, "any number of servers may read the store", true, false},
		"an address elsewhere":     {func(_ *testing.T, e *evidence, _ int) { e.own = []netip.Addr{netip.MustParseAddr("192.0.2.2")} }, "192.0.2.1:443 is not an address of this machine", true, false},
		"one of two is elsewhere":  {twoAddresses, "[2001:db8::1]:443 is not an address of this machine", true, false},
		"an address of no known form": {func(_ *testing.T, e *evidence, _ int) {
			for i := range e.looks {
				e.looks[i].Addresses = []string{"localhost:443"}
			}
		}, "localhost:443 is not an address of this machine", true, false},
		"no whole look":            {func(_ *testing.T, e *evidence, _ int) { e.looks[1].whole = false }, "long enough", true, false},
		"no look after the whole":  {func(_ *testing.T, e *evidence, _ int) { e.looks = e.looks[:2] }, "long enough", true, false},
		"only briefly after whole": {func(_ *testing.T, e *evidence, _ int) { e.looks = append(e.looks, e.looks[2]) }, "long enough", true, false},
	}
}

func twoAddresses(_ *testing.T, e *evidence, _ int) {
	for i := range e.looks {
		e.looks[i].Addresses = []string{"192.0.2.1:443", "[2001:db8::1]:443"}
	}
}

// Each flaw alone, in whichever look, ends in the old bound; an answer without the key in that for which it may be kept. One in the last look may mean that it is not served at all.
func TestEachFlawAloneIsEnough(t *testing.T) {
	for name, f := range flaws() {
		for at := range 3 {
			e := sound(t)
			f.spoil(t, &e, at)
			v := e.judge()
			last := e.looks[len(e.looks)-1]
			switch {
			case v.evident:
				t.Errorf("%s, look %d: %+v", name, at, v)
			case at == 2 && !e.serves(last) && !v.served:
			case f.why == "without the key": // which a cache may keep for a minute
				if !v.served || v.until.Before(e.looks[at].End.Add(time.Minute)) || at != 1 && v.until.After(published.Add(75*time.Second)) {
					t.Errorf("%s, look %d: %+v", name, at, v)
				}
			case !v.served || !strings.Contains(v.why, f.why) || v.until.Before(published.Add(usual)) || v.more != (f.why == "long enough"):
				t.Errorf("%s, look %d: %+v; want a reason with %q and no sooner than after %v", name, at, v, f.why, usual)
			}
			if f.once {
				break
			}
		}
		if !f.any {
			continue
		}
		e := sound(t) // long before it was served
		e.looks = slices.Insert(e.looks, 0, sightAt(e.keys[0], time.Second, false), sightAt(e.keys[0], time.Second, false))
		e.looks[1].failed["192.0.2.1:443"], e.looks[1].Answers = dialError(syscall.ECONNREFUSED), 0
		f.spoil(t, &e, 0)
		if v := e.judge(); v.evident || !strings.Contains(v.why, f.why) {
			t.Errorf("%s, before it was served: %+v", name, v)
		}
	}
}

// A machine without IPv6 waits for what it cannot see, but it does not wait for ever.
func TestNoRouteToIPv6(t *testing.T) {
	e := sound(t)
	twoAddresses(t, &e, 0)
	e.own = append(e.own, netip.MustParseAddr("2001:db8::1"))
	if v := e.judge(); !v.evident {
		t.Errorf("both addresses are this machine's: %+v", v)
	}
	for i := range e.looks {
		e.looks[i].failed["[2001:db8::1]:443"] = dialError(syscall.ENETUNREACH)
		e.looks[i].Gaps = []string{"at [2001:db8::1]:443: network is unreachable"}
	}
	if v := e.judge(); !v.served || v.evident || v.until.Sub(published) != 2*time.Second+usual || !strings.Contains(v.why, "network is unreachable") {
		t.Errorf("no route: %+v", v)
	}
	e.looks[2].failed["[2001:db8::1]:443"] = dialError(syscall.ECONNREFUSED)
	if v := e.judge(); v.served {
		t.Errorf("refused: %+v", v)
	}
	e = sound(t)
	e.looks[2].failed["192.0.2.1:443"] = dialError(syscall.ENETUNREACH)
	if v := e.judge(); v.served {
		t.Errorf("no route to IPv4: %+v", v)
	}
}

// Whatever is wrong, and in how many ways: only what has no flaw goes on early, nothing waits longer than without evidence,
// and a further flaw of what is evidence never shortens the wait.
func TestEvidenceNeverHurts(t *testing.T) {
	all := flaws()
	names := make([]string, 0, len(all))
	for n := range all {
		names = append(names, n)
	}
	slices.Sort(names)
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		e, used := sound(t), []string(nil)
		before := e.judge()
		for range r.IntN(4) {
			n := names[r.IntN(len(names))]
			if len(e.looks) < 3 {
				break // a flaw took one away
			}
			used = append(used, n)
			all[n].spoil(t, &e, r.IntN(3))
			now := e.judge()
			if now.served && now.until.Before(before.until) && all[n].why != "without the key" { // such a look is no evidence, whatever else is wrong with it
				t.Fatalf("seed %d: %v: the wait is shorter than without the last: %+v, %+v", seed, used, before, now)
			}
			if now.served {
				before = now
			}
		}
		v := e.judge()
		if v.evident && len(used) > 0 || v.served && !v.evident && v.until.Before(published.Add(time.Minute)) {
			t.Fatalf("seed %d: %v: %+v", seed, used, v)
		}
	}
}

// A development issuer is waited for as long as time may help: a server that is not started yet, one that starts, a name that is not in
// DNS yet; not a server with another certificate, without TLS, or without this key set after each listing of its directory.
func TestOtherServer(t *testing.T) {
	const address = "192.0.2.1:443"
	none := func(err error) func(*sight) {
		return func(l *sight) { l.Answers, l.Keys, l.failed = 0, nil, map[string]error{address: err} }
	}
	absent := func(l *sight) { l.Keys, l.failed = nil, map[string]error{address: errors.New("answers 404")} }
	untrusted := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	for _, tt := range []struct {
		name         string
		looks        []func(*sight) // two seconds apart
		repeat       int            // of the last
		public, afar bool
		want         bool
	}{
		{name: "a certificate of another CA", looks: []func(*sight){none(untrusted)}, want: true},
		{name: "a certificate for another host", looks: []func(*sight){none(&tls.CertificateVerificationError{Err: x509.HostnameError{}})}, want: true},
		{name: "no TLS", looks: []func(*sight){none(tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"})}, want: true},
		{name: "plain HTTP", looks: []func(*sight){none(fmt.Errorf("fetch: %w", http.ErrSchemeMismatch))}, want: true},
		{name: "a certificate of another CA, of a public issuer", looks: []func(*sight){none(untrusted)}, public: true},
		{name: "nothing listens", looks: []func(*sight){none(dialError(syscall.ECONNREFUSED))}, repeat: 100},
		{name: "no such name", looks: []func(*sight){func(l *sight) { none(&net.DNSError{IsNotFound: true})(l); l.Addresses = nil }}, repeat: 100},
		{name: "a server that serves nothing, for 16 seconds", looks: []func(*sight){none(errors.New("answers 503"))}, repeat: 8},
		{name: "a server that serves nothing, for 18 seconds", looks: []func(*sight){none(errors.New("answers 503"))}, repeat: 9, want: true},
		{name: "not there at the first look", looks: []func(*sight){absent}},
		{name: "not there for 16 seconds", looks: []func(*sight){absent}, repeat: 8},
		{name: "not there for 18 seconds", looks: []func(*sight){absent}, repeat: 9, want: true},
		{name: "not there for 18 seconds, of a public issuer", looks: []func(*sight){absent}, repeat: 9, public: true},
		{name: "not there for 18 seconds, of a store elsewhere", looks: []func(*sight){absent}, repeat: 9, afar: true},
		{name: "started a moment ago", looks: []func(*sight){absent, none(dialError(syscall.ECONNREFUSED)), absent}, repeat: 8},
	} {
		s, key := keySet(t, !tt.public, keystore.Policy{})
		e := evidence{set: s, keys: []keystore.VerificationKey{key}, inDir: !tt.afar}
		for i := range len(tt.looks) + tt.repeat {
			l := sightAt(key, time.Duration(i)*2*time.Second, false)
			tt.looks[min(i, len(tt.looks)-1)](&l)
			e.looks = append(e.looks, l)
		}
		if got := e.otherServer(e.looks[len(e.looks)-1]); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// Addresses that interfaces have in common with other machines' are not this machine's own: balanced servers have theirs at
// the loopback.
func TestOwnAddresses(t *testing.T) {
	all := ownAddresses()
	if !slices.Contains(all, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("%v lacks the loopback address", all)
	}
	for _, a := range all {
		if a.Is4In6() || a.Zone() != "" {
			t.Errorf("%v would equal no address that was asked", a)
		}
	}
}
