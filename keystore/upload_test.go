package keystore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/policy"
	"github.com/keypost/keypost/test/golden"
)

const (
	oneUpload   = "gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"
	otherUpload = "gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/other"
	newerUpload = "newer-upload:org/1" // of a kind that this version does not know
)

// readBack is what was read of an upload at a time, which had the keys since then.
func readBack(party string, at time.Time, keys ...VerificationKey) gate.ReadBack {
	r := gate.ReadBack{Upload: party, At: at}
	for _, k := range keys {
		r.Keys = append(r.Keys, gate.ReadKey{ID: k.ID(), Fingerprint: k.Fingerprint(), Since: at})
	}
	return r
}

// againAt is r read again, with the same keys.
func againAt(r gate.ReadBack, at time.Time) gate.ReadBack {
	r.At = at
	return r
}

func TestReach(t *testing.T) {
	for _, tt := range []struct {
		p       Policy
		refused string
	}{
		{Policy{RelyingParties: []string{oneUpload}, Reach: ReachCopies}, ""},
		{Policy{RelyingParties: []string{oneUpload, "aws"}}, ""},
		{Policy{Reach: ReachCopies}, "holds an upload, such as gcp-upload:"},
		{Policy{RelyingParties: []string{oneUpload, "aws"}, Reach: ReachCopies}, "holds an upload, such as gcp-upload:"},
		{Policy{RelyingParties: []string{oneUpload}, Reach: "private"}, `reach is "private"`},
	} {
		if err := tt.p.Check(false); (err == nil) != (tt.refused == "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
			t.Errorf("%+v: %v; want %q", tt.p, err, tt.refused)
		}
	}
}

// copiesPolicy has fast gates in public, or none where nobody reads the documents.
func copiesPolicy(reach policy.Reach, uploads ...string) Policy {
	p := Policy{MaxAge: DurationPtr(time.Minute), StaleWhileRevalidate: DurationPtr(0), StaleIfError: DurationPtr(0), RelyingParties: uploads, Reach: reach, TokenLifetime: DurationPtr(time.Hour)}
	if reach == "" {
		p.RelyingParties = append(p.RelyingParties, "vault")
	}
	return p
}

// TestPromoteWaitsForCopies is the arithmetic of copies: read back with the key + what the relying party may go on by + clocks
// (1 min each), and a reading of the last 15 minutes.
func TestPromoteWaitsForCopies(t *testing.T) {
	const opens = time.Hour + 2*time.Minute
	for _, reach := range []policy.Reach{ReachCopies, ""} {
		s := published(t, copiesPolicy(reach, oneUpload, otherUpload), false)
		at := func(after time.Duration) time.Time { return t0.Add(after) }
		ask := func(now time.Time, u ...gate.ReadBack) *NotYetError {
			return promoteAt(t, s, now, Observed{Since: t0.Add(-24 * time.Hour), Uploads: u})
		}
		one, other := readBack(oneUpload, at(0), testKey(0), subject), readBack(otherUpload, at(time.Hour), subject)
		later := at(time.Hour + opens)
		for _, tt := range []struct {
			name string
			got  *NotYetError
			gate gate.Gate
			says string
		}{
			{"nothing was read back", ask(later), gate.GateCopies, oneUpload + ", which nobody has read back here and " + otherUpload},
			{"of one nothing was read back", ask(later, againAt(one, later)), gate.GateCopies, otherUpload + ", which nobody has read back here"},
			{"one does not have the key", ask(later, againAt(one, later), readBack(otherUpload, later, testKey(0))), gate.GateCopies, otherUpload + ", read back at " + stamp(later) + ", without " + string(subject.ID())},
			{"one has another key under the kid", ask(later, againAt(one, later), readBack(otherUpload, later, must(testKey(5).WithID(subject.ID(), "")))), gate.GateCopies, "without " + string(subject.ID())},
			{"a second too early", ask(later.Add(-time.Second), againAt(one, later), againAt(other, later)), gate.GateCopies, "possible from " + stamp(later) + " (upload 1h + clocks 2m)"},
			{"one was read long ago", ask(later, againAt(one, later), againAt(other, later.Add(-16*time.Minute))), gate.GateCopies, otherUpload + " at "},
			{"read in the future", ask(later, againAt(one, later), againAt(other, later.Add(2*time.Minute))), gate.GateClock, "lies in the future"},
			{"a clock that is wrong", ask(later, againAt(one, later), func() gate.ReadBack { r := againAt(other, later); r.ClockAhead = Duration(-2 * time.Minute); return r }()), gate.GateClock, "is 2m behind the server"},
		} {
			if tt.got == nil || tt.got.Gate != tt.gate || !strings.Contains(tt.got.Error(), tt.says) {
				t.Errorf("reach %q, %s: %v; want %s, %q", reach, tt.name, tt.got, tt.gate, tt.says)
			}
		}
		if e := ask(later, againAt(one, later.Add(-14*time.Minute)), againAt(other, later)); e != nil {
			t.Errorf("reach %q: closed when it was to open: %v", reach, e)
		}
		n, err := s.Promote(change(later), subject.ID(), Observed{Since: t0.Add(-24 * time.Hour), Fresh: later, Uploads: gate.Uploads{againAt(one, later), againAt(other, later)}})
		if err != nil {
			t.Fatal(err)
		}
		if k, _ := n.Key(subject.ID()); !k.ObservedAt.Equal(at(time.Hour)) {
			t.Errorf("reach %q: recorded as observed at %v; want when the last copy had it", reach, k.ObservedAt)
		}
		listed, ok := s.Key(subject.ID())
		earliest := s.Gates().EarliestPromotion(listed, Observed{Since: t0.Add(-24 * time.Hour), Uploads: gate.Uploads{one, other}})
		if want := at(time.Hour + opens); !ok || !earliest.Equal(want) {
			t.Errorf("reach %q: earliest %v; want %v", reach, earliest, want)
		}
	}
}

// Copies do not stand for the public addresses, nor these for copies.
func TestPublicAndCopies(t *testing.T) {
	later := t0.Add(100 * time.Hour)
	held := gate.Uploads{againAt(readBack(oneUpload, t0, subject), later)}
	public := published(t, copiesPolicy("", oneUpload), false)
	if e := promoteAt(t, public, later, Observed{Uploads: held}); e == nil || e.Gate != gate.GateObserved {
		t.Errorf("with a copy and no look in public: %v", e)
	}
	if e := promoteAt(t, public, later, Observed{Since: t0}); e == nil || e.Gate != gate.GateCopies {
		t.Errorf("with a look in public and no copy: %v", e)
	}
	alone := published(t, copiesPolicy(ReachCopies, oneUpload), false)
	if e := promoteAt(t, alone, later, Observed{Uploads: held, SharedCache: "Via", ClockAhead: Duration(time.Hour)}); e != nil {
		t.Errorf("nobody reads the documents, and what is seen of them counts: %v", e)
	}
	unknown := published(t, copiesPolicy("", newerUpload), false)
	r := readBack(newerUpload, t0, subject)
	if e := promoteAt(t, unknown, t0.Add(25*time.Hour), Observed{Since: t0, Uploads: gate.Uploads{againAt(r, t0.Add(25*time.Hour))}}); e != nil {
		t.Errorf("an unknown kind counts for 24h: %v", e)
	}
	if e := promoteAt(t, unknown, t0.Add(24*time.Hour), Observed{Since: t0, Uploads: gate.Uploads{againAt(r, t0.Add(24*time.Hour))}}); e == nil {
		t.Error("an unknown kind counts for less than 24h")
	}
}

// TestRemoveWaitsForCopies: an old key stays until every copy has the keys that sign. That a copy still has the old one is not a
// reason to keep it.
func TestRemoveWaitsForCopies(t *testing.T) {
	s := published(t, copiesPolicy(ReachCopies, oneUpload), false)
	s = must(s.Promote(Change{At: t0, Force: true, Why: "test"}, subject.ID(), Observed{}))
	s = must(s.Retire(change(t0), testKey(0).ID(), Evidence{Statement: "by hand"}))
	expired := t0.Add(time.Hour + policy.ClockSkew)
	remove := func(now time.Time, u ...gate.ReadBack) string {
		_, err := s.Remove(change(now), testKey(0).ID(), Removal{Uploads: u})
		if err == nil {
			return ""
		}
		return err.Error()
	}
	long := t0.Add(-24 * time.Hour)
	behind, ready := readBack(oneUpload, long, testKey(0)), readBack(oneUpload, long, testKey(0), subject)
	for _, tt := range []struct{ name, got, want string }{
		{"a forgotten copy", remove(expired), "nobody has read back"},
		{"a copy that is behind, long before the tokens have expired", remove(t0, againAt(behind, t0)), "without " + string(subject.ID())},
		{"a copy that is behind", remove(expired, againAt(behind, expired)), "without " + string(subject.ID())},
		{"tokens are left", remove(expired.Add(-time.Second), againAt(ready, expired)), "tokens that it signed may still be valid"},
		{"a reading of long ago", remove(expired, againAt(ready, expired.Add(-time.Hour))), "read back last more than 15m ago"},
		{"uploaded just now", remove(expired, readBack(oneUpload, expired, testKey(0), subject)), "may still go by what it held before"},
	} {
		if !strings.Contains(tt.got, tt.want) {
			t.Errorf("%s: %q; want %q", tt.name, tt.got, tt.want)
		}
	}
	if got := remove(expired, againAt(ready, expired)); got != "" {
		t.Errorf("every copy has the key that signs, and yet: %s", got)
	}
	if got := remove(expired, againAt(readBack(oneUpload, long, subject), expired)); got != "" {
		t.Errorf("a copy that does not have the old key already keeps it: %s", got)
	}
}

// A key set with copies is read as it was written, and one without has the form that it always had.
func TestUploadsInDocuments(t *testing.T) {
	s := published(t, copiesPolicy(ReachCopies, oneUpload), false)
	data, err := Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	golden.Same(t, "testdata/copies.yaml", string(data))
	back, err := Parse("prod-a", data)
	if err != nil || back.Digest() != s.Digest() || fmt.Sprint(back.Policy().RelyingParties) != fmt.Sprint(s.Policy().RelyingParties) {
		t.Errorf("read back: %v", err)
	}
	without := published(t, copiesPolicy("", "aws"), false)
	if data, err := Encode(without); err != nil || strings.Contains(string(data), "reach") {
		t.Errorf("%s, %v", data, err)
	}
}
