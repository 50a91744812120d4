package install

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/storetest"
)

var published = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

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

// sightOf is a look without fault.
func sightOf(keys ...keystore.VerificationKey) sight {
	l := sight{failed: map[string]error{}, Look: observation.Look{Addresses: []string{"192.0.2.1:443"}, Answers: 2}}
	for _, k := range keys {
		l.Keys = append(l.Keys, seenKey(k))
	}
	return l
}

const usual = 135 * time.Second // convergence of the servers (75 s), and what answers "not found" for 60 s

// The wait counts from when the key was seen: how long it lay in the store says nothing, since what serves the store may have been slow.
func TestTheWaitBeginsWhereTheKeyIsSeen(t *testing.T) {
	for _, tt := range []struct {
		name   string
		dev    bool
		maxAge time.Duration
		seen   time.Duration // after it was published
		later  bool          // an earlier look found nothing
		want   time.Duration // after it was seen
	}{
		{"served from the beginning", false, 5 * time.Minute, time.Second, false, usual},
		{"published a year ago", false, 5 * time.Minute, 365 * 24 * time.Hour, false, usual},
		{"served only now", false, 5 * time.Minute, time.Hour, true, usual},
		{"published by a clock that is ahead", false, 5 * time.Minute, -time.Hour, false, usual},
		{"short max-age: an answer 404 has its own", false, time.Minute, 0, false, usual},
		{"long max-age: nothing was there to be kept", false, time.Hour, 0, false, usual},
		{"development", true, time.Second, 10 * time.Second, true, time.Second},
		{"development, with a long max-age", true, time.Hour, 0, false, time.Second},
	} {
		s, key := keySet(t, tt.dev, keystore.Policy{MaxAge: keystore.DurationPtr(tt.maxAge)})
		a := awaited{set: s, keys: []keystore.VerificationKey{key}}
		if got := a.propagated(published.Add(tt.seen), !tt.later).Sub(published); got != tt.seen+tt.want {
			t.Errorf("%s: until %v after it was published, want %v", tt.name, got, tt.seen+tt.want)
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
		{name: "trusted since before", observed: -1, trusted: 15 * time.Second, want: 15 * time.Second},
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

// A provider that is there ends the wait, and so does a run that makes nothing, unless a look of the run did not find the key: then it is
// gone through once more. The cluster's next key is waited for in any case.
func TestTrustedAlready(t *testing.T) {
	s, key := keySet(t, false, keystore.Policy{})
	seen := published.Add(time.Hour)
	for name, a := range map[string]awaited{
		"trusted": {set: s, keys: []keystore.VerificationKey{key}, trusted: published.Add(usual)},
		"settled": {set: s, keys: []keystore.VerificationKey{key}, settled: true},
	} {
		if until := a.propagated(seen, true); until.After(seen) {
			t.Errorf("%s: the second run waits until %v", name, until)
		}
		if until := a.propagated(seen, false); until != seen.Add(usual) {
			t.Errorf("%s: after an answer without the key: %v", name, until)
		}
	}
	next := storetest.SyntheticRSA(t, 7)
	s, err := s.Add(keystore.Change{At: published.Add(time.Second)}, next)
	if err != nil {
		t.Fatal(err)
	}
	a := awaited{set: s, keys: []keystore.VerificationKey{next}, settled: true}
	if until := a.propagated(seen, true); until != seen.Add(usual) {
		t.Errorf("with a next key: %v", until)
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
	a := awaited{set: s, keys: []keystore.VerificationKey{second, key}, trusted: published.Add(time.Second)} // since before the second
	if a.serves(sightOf(key)) || !a.serves(sightOf(key, second)) {
		t.Error("a key of two is enough, or both are not")
	}
	seen := published.Add(2 * time.Minute)
	if until := a.propagated(seen, true); until != seen.Add(usual) {
		t.Errorf("until %v after the first publication", until.Sub(published))
	}
	a.trusted = published.Add(time.Minute)
	if until := a.propagated(seen, true); until != a.trusted {
		t.Errorf("until %v after the first publication", until.Sub(published))
	}
}

func dialError(errno syscall.Errno) error {
	return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}
}

// A key of the name with other material is not the key; and a machine without IPv6 does not wait for what it cannot see.
func TestServes(t *testing.T) {
	s, key := keySet(t, false, keystore.Policy{})
	a := awaited{set: s, keys: []keystore.VerificationKey{key}}
	const v4, v6 = "192.0.2.1:443", "[2001:db8::1]:443"
	other := sightOf(key)
	other.Keys[0].Fingerprint = "x"
	for _, tt := range []struct {
		name string
		look sight
		fail map[string]error
		want bool
	}{
		{"the key", sightOf(key), nil, true},
		{"no key", sightOf(), nil, false},
		{"another key of that name", other, nil, false},
		{"an address that answers otherwise", sightOf(key), map[string]error{v4: errors.New("answers 404")}, false},
		{"no route to IPv6", sightOf(key), map[string]error{v6: dialError(syscall.ENETUNREACH)}, true},
		{"nobody at IPv6", sightOf(key), map[string]error{v6: dialError(syscall.ECONNREFUSED)}, false},
		{"no route to IPv4", sightOf(key), map[string]error{v4: dialError(syscall.ENETUNREACH)}, false},
	} {
		if tt.fail != nil {
			tt.look.failed = tt.fail
		}
		if got := a.serves(tt.look); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// A development issuer is waited for as long as time may help: not at a server with another certificate or without TLS.
func TestOtherServer(t *testing.T) {
	for _, tt := range []struct {
		name      string
		err       error
		dev, want bool
	}{
		{"a certificate of another CA", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, true, true},
		{"a certificate for another host", &tls.CertificateVerificationError{Err: x509.HostnameError{}}, true, true},
		{"no TLS", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, true, true},
		{"plain HTTP", fmt.Errorf("fetch: %w", http.ErrSchemeMismatch), true, true},
		{"a certificate of another CA, of a public issuer", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, false, false},
		{"nothing listens", dialError(syscall.ECONNREFUSED), true, false},
		{"no such name", &net.DNSError{IsNotFound: true}, true, false},
		{"not there", errors.New("answers 404"), true, false},
	} {
		s, _ := keySet(t, tt.dev, keystore.Policy{})
		if got := (awaited{set: s}).otherServer(tt.err); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
