package keystore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/policy"
)

// rotationOf prints what a rotation does next.
func rotationOf(s KeySet) string {
	r := s.Rotation()
	if r == nil {
		return "none"
	}
	return string(r.Step)
}

func TestARotationFollowsItsKeys(t *testing.T) {
	ok := step(t)
	old, fresh := testKey(0).ID(), subject.ID()
	start := ok(newSet(t, awsPolicy()).StartRotation(change(t0), subject))
	promoted := ok(start.Promote(change(openDay), fresh, seen(t0, openDay)))
	retired := ok(promoted.Retire(change(openDay), old, Evidence{Statement: "seen"}))
	done := ok(retired.Remove(change(openDay.Add(2*time.Hour)), old, Removal{}))
	back := ok(retired.RollBack(change(openDay)))
	for name, tt := range map[string]struct {
		s    KeySet
		step string
	}{
		"started":                {start, "promote"},
		"promoted":               {promoted, "retire"},
		"retired":                {retired, "remove"},
		"removed":                {done, "none"},
		"the new key revoked":    {ok(promoted.Revoke(because(openDay, "lost"), fresh, RevokeOptions{})), "none"},
		"the old key revoked":    {ok(promoted.Revoke(because(openDay, "lost"), old, RevokeOptions{})), "none"},
		"given up while next":    {ok(start.Remove(change(openDay), fresh, Removal{NeverSigned: true})), "none"},
		"withdrawn":              {ok(promoted.Withdraw(forced(openDay))), "none"},
		"another key published":  {ok(promoted.Add(change(openDay), testKey(7))), "retire"},
		"rolled back while next": {ok(start.RollBack(change(openDay))), "retire"},
		"rolled back":            {ok(promoted.RollBack(change(openDay))), "retire"},
		"rolled back when the old key was retired":  {back, "retire"},
		"the new key retired after that":            {ok(back.Retire(change(openDay), fresh, Evidence{Statement: "seen"})), "remove"},
		"rolled back and forward":                   {ok(back.RollBack(change(openDay))), "retire"},
		"the new key retired by hand":               {ok(promoted.Retire(change(openDay), fresh, Evidence{Statement: "slow"})), "none"},
		"the old key promoted by hand after retire": {ok(retired.Promote(change(openDay), old, Observed{})), "retire"},
	} {
		if got := rotationOf(tt.s); got != tt.step {
			t.Errorf("%s: the next step is %s; want %s", name, got, tt.step)
		}
		encode(t, tt.s)
	}
	for what, tt := range map[string]struct {
		s    KeySet
		want bool // in the document
	}{"rotation:": {start, true}, "step: retire": {promoted, true}, "step: remove": {retired, true}, "\n  rotation:": {done, false}} {
		if got := strings.Contains(encode(t, tt.s), what); got != tt.want {
			t.Errorf("the document has %q: %t", what, got)
		}
	}
	if k, _ := back.Key(old); k.State != Active || !k.RetiredAt.IsZero() || back.Rotation().Kid != old || !slices.Equal(back.Rotation().Replaces, []KeyID{fresh}) {
		t.Errorf("rolled back: %+v, %+v", k, back.Rotation())
	}
	if _, err := ok(back.RollBack(change(openDay))).Remove(change(openDay), old, Removal{}); err == nil {
		t.Error("an active key is removed")
	}
}

func TestStartRotationTakesWhatWasPublished(t *testing.T) {
	s := published(t, awsPolicy(), false)
	r := step(t)(s.StartRotation(change(t0.Add(time.Hour)), subject)).Rotation()
	if r == nil || r.Kid != subject.ID() || !slices.Equal(r.Replaces, []KeyID{testKey(0).ID()}) || r.By != "tester" || r.ID != "2026-03-01T13:00:00Z" {
		t.Errorf("%+v", r)
	}
}

// The only key that may sign is not retired before its successor is promoted: else the rotation would go on, and remove it.
func TestRetireBeforePromote(t *testing.T) {
	s, old := step(t)(newSet(t, awsPolicy()).StartRotation(change(t0), subject)), testKey(0).ID()
	if _, err := s.Retire(change(openDay), old, Evidence{Statement: "nothing signs with it"}); err == nil || !strings.Contains(err.Error(), "no other key may sign before the next one is promoted") {
		t.Errorf("error %v", err)
	}
	if _, err := s.Retire(forced(openDay), old, Evidence{Statement: "the cluster is gone"}); err != nil {
		t.Error(err)
	}
}

func TestStartRotationRefuses(t *testing.T) {
	ok := step(t)
	one := newSet(t, awsPolicy())
	two := published(t, awsPolicy(), false)
	full := one
	for n := range MaxRotating - 1 {
		full = ok(full.Add(change(t0), testKey(20+n)))
		full = ok(full.Promote(forced(t0), testKey(20+n).ID(), Observed{}))
	}
	idle := ok(one.Retire(change(t0), testKey(0).ID(), Evidence{Statement: "by hand"}))
	renamed := must(subject.WithID("imported", ""))
	for name, tt := range map[string]struct {
		s    KeySet
		k    VerificationKey
		want string
	}{
		"one under way":                            {ok(one.StartRotation(change(t0), subject)), testKey(5), "is under way since 2026-03-01T12:00:00Z (by tester)"},
		"the key that signs":                       {one, testKey(0), "it is active already"},
		"another next key":                         {two, testKey(5), "is next as well"},
		"under another kid":                        {two, renamed, "under another kid"},
		"too many keys":                            {full, subject, "no more than 8"},
		"nothing to replace":                       {idle, subject, "no key of \"prod-a\" is active"},
		"a key that is gone":                       {ok(two.Revoke(because(t0, "lost"), subject.ID(), RevokeOptions{})), subject, "never comes back"},
		"a key set that is ended":                  {ok(one.Withdraw(forced(t0))), subject, "was withdrawn"},
		"to a published key, in one that is ended": {ok(two.Withdraw(forced(t0))), subject, "was withdrawn"},
	} {
		before := tt.s.Digest()
		_, err := tt.s.StartRotation(change(t0.Add(time.Hour)), tt.k)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v; want %q", name, err, tt.want)
		}
		if tt.s.Digest() != before {
			t.Errorf("%s: the key set has changed", name)
		}
	}
	var under *RotationError
	if _, err := ok(one.StartRotation(change(t0), subject)).StartRotation(change(t0), subject); !errors.As(err, &under) || under.Kid != subject.ID() {
		t.Errorf("the same again: error %v", err)
	}
	full = ok(full.Add(change(t0), subject)) // published before: it takes no further place
	if _, err := full.StartRotation(change(t0), subject); err != nil {
		t.Errorf("a key that is one of many: %v", err)
	}
}

func TestRollBackRefuses(t *testing.T) {
	ok := step(t)
	done := ok(ok(ok(newSet(t, awsPolicy()).StartRotation(change(t0), subject)).Promote(forced(t0), subject.ID(), Observed{})).Revoke(because(t0, "lost"), testKey(0).ID(), RevokeOptions{}))
	start := ok(newSet(t, awsPolicy()).StartRotation(change(t0), subject))
	for name, tt := range map[string]struct {
		s    KeySet
		want string
	}{
		"no rotation": {newSet(t, awsPolicy()), "no rotation of \"prod-a\" is under way"},
		"over":        {done, "no rotation of \"prod-a\" is under way"},
		"ended":       {ok(start.Withdraw(forced(t0))), "was withdrawn"},
		"back before it was promoted, and forward": {ok(start.RollBack(change(t0))), "none of the keys that " + string(testKey(0).ID()) + " replaces has signed"},
	} {
		before := tt.s.Digest()
		if n, err := tt.s.RollBack(change(t0)); err == nil || !strings.Contains(err.Error(), tt.want) || n.Generation() != 0 {
			t.Errorf("%s: error %v", name, err)
		}
		if tt.s.Digest() != before {
			t.Errorf("%s: the key set has changed", name)
		}
	}
}

// The step in a document may be anything; what happens next depends on the keys.
func TestTheStepOfADocumentIsNotBelieved(t *testing.T) {
	start := step(t)(newSet(t, awsPolicy()).StartRotation(change(t0), subject))
	doc := encode(t, start)
	for _, crafted := range []string{"retire", "remove", "", "observe"} {
		s, err := Parse("prod-a", []byte(strings.Replace(doc, "step: promote", "step: \""+crafted+"\"", 1)))
		if err != nil {
			t.Fatal(err)
		}
		if got := rotationOf(s); got != "promote" {
			t.Errorf("step %q in the document: the next step is %s", crafted, got)
		}
	}
}

// Of several keys that sign, all are replaced, all come back, and all are replaced again.
func TestSeveralKeysAreReplaced(t *testing.T) {
	ok := step(t)
	a, b := testKey(0).ID(), testKey(7).ID()
	s := ok(ok(newSet(t, awsPolicy()).Add(change(t0), testKey(7))).Promote(forced(t0.Add(time.Hour)), b, Observed{}))
	s = ok(ok(s.StartRotation(change(addDay), subject)).Promote(forced(addDay), subject.ID(), Observed{}))
	s = ok(s.Retire(change(addDay), a, Evidence{Statement: "seen"}))
	if got := rotationOf(s); got != "retire" {
		t.Errorf("one of two retired: the next step is %s", got)
	}
	s = ok(s.Retire(change(addDay), b, Evidence{Statement: "seen"}))
	back := ok(s.RollBack(change(addDay.Add(time.Minute))))
	r := back.Rotation()
	if r.Kid != b || !slices.Equal(r.Replaces, []KeyID{subject.ID()}) || !slices.Equal(r.Stays, []KeyID{a}) || r.By != "tester" {
		t.Errorf("turned around: %+v", r)
	}
	for _, id := range []KeyID{a, b} {
		if k, _ := back.Key(id); k.State != Active || !k.PromotedAt.Equal(addDay.Add(time.Minute)) || !k.RetiredAt.IsZero() {
			t.Errorf("%s came back as %+v", id, k)
		}
	}
	again := ok(back.RollBack(change(addDay.Add(time.Hour)))).Rotation()
	if again.Kid != subject.ID() || !slices.Equal(slices.Sorted(slices.Values(again.Replaces)), slices.Sorted(slices.Values([]KeyID{a, b}))) || len(again.Stays) != 0 {
		t.Errorf("turned around twice: %+v", again)
	}
}

// Of the keys that come back, the one that was promoted last is to sign, whatever their kids; keys apart stay as they are.
func TestRollBackTakesTheLastPromoted(t *testing.T) {
	ok := step(t)
	for _, first := range []int{0, 7} {
		second := 7 - first
		s := must(New(change(t0), Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com/prod-a"), Keys: []VerificationKey{testKey(first)}, Policy: awsPolicy()}))
		s = ok(ok(s.Add(change(t0), testKey(second))).Promote(forced(t0.Add(time.Hour)), testKey(second).ID(), Observed{}))
		s = ok(ok(s.Add(change(t0.Add(time.Hour)), testKey(5))).Promote(forced(t0.Add(2*time.Hour)), testKey(5).ID(), Observed{}))
		s = ok(s.Retire(change(t0.Add(2*time.Hour)), testKey(5).ID(), Evidence{Statement: "seen"})) // apart, promoted last of all
		s = ok(s.StartRotation(change(addDay), subject))
		started := s.Rotation()
		if slices.Contains(started.Replaces, testKey(5).ID()) || len(started.Replaces) != 2 {
			t.Fatalf("replaces %v", started.Replaces)
		}
		back := ok(s.RollBack(change(addDay)))
		r := back.Rotation()
		if r == nil || r.Kid != testKey(second).ID() || !slices.Equal(r.Stays, []KeyID{testKey(first).ID()}) || !slices.Equal(r.Replaces, []KeyID{subject.ID()}) || r.ID != started.ID {
			t.Errorf("first %d: turned around to %+v", first, r)
		}
		if k, _ := back.Key(testKey(5).ID()); k.State != Retired {
			t.Errorf("the key apart is %s", k.State)
		}
		for _, n := range []int{first, second} { // they were active all the time
			k, _ := back.Key(testKey(n).ID())
			if was, _ := s.Key(k.ID()); k.State != Active || !k.PromotedAt.Equal(was.PromotedAt) {
				t.Errorf("key %d has become %+v", n, k)
			}
		}
	}
}

// A retired key that something signs with is again what it was, whatever else the rotation has come to, and counts anew.
func TestResume(t *testing.T) {
	ok := step(t)
	old, fresh := testKey(0).ID(), subject.ID()
	promoted := ok(ok(newSet(t, awsPolicy()).StartRotation(change(t0), subject)).Promote(change(openDay), fresh, seen(t0, openDay)))
	retired := ok(promoted.Retire(change(openDay), old, Evidence{Statement: "seen"}))
	later := openDay.Add(30 * time.Minute)
	resumed := ok(retired.Resume(because(later, "it signs"), old))
	if k, _ := resumed.Key(old); k.State != Active || !k.RetiredAt.IsZero() || !k.PromotedAt.Equal(t0) || rotationOf(resumed) != "retire" {
		t.Errorf("%+v, next %s", k, rotationOf(resumed))
	}
	again := ok(resumed.Retire(change(later), old, Evidence{Statement: "seen"}))
	k, _ := again.Key(old)
	if until, _ := again.Gates().TrustedUntil(k, later); !until.Equal(later.Add(time.Hour + policy.ClockSkew)) {
		t.Errorf("trusted until %v", until)
	}
	unused := ok(ok(newSet(t, awsPolicy()).Add(change(t0), subject)).Retire(change(t0), fresh, Evidence{Statement: "by mistake"}))
	if k, _ := ok(unused.Resume(because(later, "it signs"), fresh)).Key(fresh); k.State != Next {
		t.Errorf("a key that was never promoted is %s", k.State)
	}
	for what, try := range map[string]func() (KeySet, error){
		"without a reason":   func() (KeySet, error) { return retired.Resume(change(later), old) },
		"one that is active": func() (KeySet, error) { return promoted.Resume(because(later, "it signs"), old) },
	} {
		if _, err := try(); err == nil {
			t.Errorf("%s: it is taken", what)
		}
	}
}

// The servers of a rotation stay with it, also when it is turned around, and leave with it.
func TestTheServersOfARotation(t *testing.T) {
	ok := step(t)
	s := newSet(t, awsPolicy())
	if _, err := s.SetServers(change(t0), []string{"a"}); err == nil {
		t.Error("without a rotation they are taken")
	}
	s = ok(ok(s.StartRotation(change(t0), subject)).SetServers(change(t0), []string{"b", "a"}))
	if got := ok(s.RollBack(change(t0))).Rotation().Servers; !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("rolled back: %q", got)
	}
	s.Rotation().Servers[0] = "x"
	if got := s.Rotation().Servers[0]; got != "a" {
		t.Errorf("what was returned is not a copy: %q", got)
	}
}
