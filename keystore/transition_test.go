package keystore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/gate"
)

// subject is the key whose life the tests of the transitions follow; key 0 stays active beside it.
var subject = testKey(1)

// Days on the tests' calendar: on openDay every gate that only needs time has opened.
var (
	addDay  = t0.Add(24 * time.Hour)
	openDay = t0.Add(30 * 24 * time.Hour)
)

// lives makes a key set in which the subject has come to each place that it can come to.
func lives(t testing.TB) map[string]KeySet {
	t.Helper()
	ok := step(t)
	stopped := Evidence{Minted: map[string]KeyID{"10.0.0.1:6443": testKey(0).ID()}}
	absent := newSet(t, awsPolicy())
	next := ok(absent.Add(change(addDay), subject))
	active := ok(next.Promote(forced(addDay.Add(time.Hour)), subject.ID(), Observed{}))
	retired := ok(active.Retire(change(addDay.Add(2*time.Hour)), subject.ID(), stopped))
	return map[string]KeySet{
		"absent":        absent,
		"next":          next,
		"next, seen":    next,
		"active":        active,
		"retired":       retired,
		"never active":  ok(next.Retire(change(addDay.Add(2*time.Hour)), subject.ID(), stopped)),
		"removed":       ok(retired.Remove(change(openDay), subject.ID(), Removal{})),
		"revoked":       ok(next.Revoke(because(addDay, "lost"), subject.ID(), RevokeOptions{})),
		"tombstone":     ok(retired.Withdraw(forced(openDay))),
		"next, unblest": next,
	}
}

// observedIn is what was seen of the subject in the lives in which somebody looked.
func observedIn() map[string]Observed {
	return map[string]Observed{
		"next, seen":    seen(addDay.Add(time.Hour), openDay.Add(-time.Minute)),
		"next, unblest": {Fresh: openDay.Add(-time.Second), Without: []string{"https://oidc.example.com/prod-a"}},
	}
}

// TestStateMachine has a line for every pair of place and transition, tried on a day when time by itself closes no gate.
func TestStateMachine(t *testing.T) {
	stopped := Evidence{Minted: map[string]KeyID{"10.0.0.1:6443": testKey(0).ID()}}
	c := because(openDay, "planned")
	transitions := map[string]func(KeySet, Observed) (KeySet, error){
		"add":     func(s KeySet, _ Observed) (KeySet, error) { return s.Add(c, subject) },
		"promote": func(s KeySet, o Observed) (KeySet, error) { return s.Promote(c, subject.ID(), o) },
		"retire":  func(s KeySet, _ Observed) (KeySet, error) { return s.Retire(c, subject.ID(), stopped) },
		"remove":  func(s KeySet, _ Observed) (KeySet, error) { return s.Remove(c, subject.ID(), Removal{}) },
		"remove, never signed": func(s KeySet, _ Observed) (KeySet, error) {
			return s.Remove(c, subject.ID(), Removal{NeverSigned: true})
		},
		"revoke": func(s KeySet, _ Observed) (KeySet, error) { return s.Revoke(c, subject.ID(), RevokeOptions{}) },
	}
	const ( // what comes of it: a state, a reason for gone, a gate (not yet), or a part of the refusal
		there    = `publishes it already`
		absent   = `has no such key`
		removed  = `it is gone (removed at`
		revoked  = `it is gone (revoked at`
		withdraw = `was withdrawn at`
	)
	table := map[string]map[string]string{
		"absent":        {"add": "next", "promote": absent, "retire": absent, "remove": absent, "remove, never signed": absent, "revoke": absent},
		"next":          {"add": there, "promote": "gate observed", "retire": "retired", "remove": "gate signing", "remove, never signed": "removed", "revoke": "revoked"},
		"next, seen":    {"add": there, "promote": "active", "retire": "retired", "remove": "gate signing", "remove, never signed": "removed", "revoke": "revoked"},
		"next, unblest": {"add": there, "promote": "gate observed", "retire": "retired", "remove": "gate signing", "remove, never signed": "removed", "revoke": "revoked"},
		"active":        {"add": there, "promote": "it is active already", "retire": "retired", "remove": "gate signing", "remove, never signed": "gate signing", "revoke": "revoked"},
		"retired":       {"add": there, "promote": "active", "retire": "it is retired already", "remove": "removed", "remove, never signed": "removed", "revoke": "revoked"},
		"never active":  {"add": there, "promote": "gate observed", "retire": "it is retired already", "remove": "removed", "remove, never signed": "removed", "revoke": "revoked"},
		"removed":       {"add": removed, "promote": removed, "retire": removed, "remove": removed, "remove, never signed": removed, "revoke": removed},
		"revoked":       {"add": revoked, "promote": revoked, "retire": revoked, "remove": revoked, "remove, never signed": revoked, "revoke": revoked},
		"tombstone":     {"add": withdraw, "promote": withdraw, "retire": withdraw, "remove": withdraw, "remove, never signed": withdraw, "revoke": withdraw},
	}
	for place, s := range lives(t) {
		for name, transition := range transitions {
			want, planned := table[place][name]
			if !planned {
				t.Errorf("the table has no line for %s of a key that is %s", name, place)
			}
			before := s.Digest()
			got, err := transition(s, observedIn()[place])
			if outcome := outcomeFor(got, err); outcome != want && (err == nil || strings.HasPrefix(outcome, "gate ") || !strings.Contains(outcome, want)) {
				t.Errorf("%s of a key that is %s: %s; want %s", name, place, outcome, want)
			}
			if s.Digest() != before {
				t.Errorf("%s changed the key set that it was called on", name)
			}
			if err == nil {
				encode(t, got)
				if last := got.History()[len(got.History())-1]; !last.At.Equal(openDay) || last.By != "tester" || !strings.HasPrefix(last.Why, "planned") || last.Forced {
					t.Errorf("%s left the history line %+v", name, last)
				}
			}
		}
	}
}

func outcomeFor(s KeySet, err error) string {
	var notYet *NotYetError
	switch {
	case errors.As(err, &notYet):
		return "gate " + string(notYet.Gate)
	case err != nil:
		return err.Error()
	}
	if k, ok := s.Key(subject.ID()); ok {
		return string(k.State)
	}
	g, _ := s.GoneLine(subject)
	return string(g.Why)
}

func TestForcePassesGatesNeedsAReasonAndIsRecorded(t *testing.T) {
	id := subject.ID()
	for _, tt := range []struct {
		place, name string
		do          func(s KeySet, c Change) (KeySet, error)
		want        string
	}{
		{"next", "promote", func(s KeySet, c Change) (KeySet, error) { return s.Promote(c, id, Observed{}) }, "active"},
		{"never active", "promote", func(s KeySet, c Change) (KeySet, error) { return s.Promote(c, id, Observed{}) }, "active"},
		{"active", "retire", func(s KeySet, c Change) (KeySet, error) { return s.Retire(c, id, Evidence{}) }, "retired"},
		{"next", "remove", func(s KeySet, c Change) (KeySet, error) { return s.Remove(c, id, Removal{}) }, "removed"},
		{"active", "remove", func(s KeySet, c Change) (KeySet, error) { return s.Remove(c, id, Removal{}) }, "removed"},
	} {
		s := lives(t)[tt.place]
		if _, err := tt.do(s, change(openDay)); !errors.As(err, new(*NotYetError)) {
			t.Errorf("%s: error %v; want the gate closed", tt.name, err)
		}
		if _, err := tt.do(s, Change{At: openDay, Force: true}); err == nil || !strings.Contains(err.Error(), "to pass a closed gate a reason is needed") {
			t.Errorf("%s: error %v; want it to ask for a reason", tt.name, err)
		}
		got, err := tt.do(s, forced(openDay))
		if outcomeFor(got, err) != tt.want {
			t.Errorf("forced %s: %s; want %s", tt.name, outcomeFor(got, err), tt.want)
			continue
		}
		if last := got.History()[len(got.History())-1]; !last.Forced || last.Why != "a test" {
			t.Errorf("forced %s left the history line %+v", tt.name, last)
		}
	}
	for _, place := range []string{"removed", "revoked", "tombstone"} {
		if _, err := lives(t)[place].Promote(forced(openDay), id, Observed{}); err == nil {
			t.Errorf("force promotes a key that is %s", place)
		}
	}
}

func TestRetireNeedsEvidence(t *testing.T) {
	ok := step(t)
	s := lives(t)["active"]
	other, next := testKey(0).ID(), testKey(2)
	s = ok(s.Add(change(openDay), next))
	minted := func(kids ...KeyID) Evidence {
		ev := Evidence{Minted: map[string]KeyID{}}
		for i, kid := range kids {
			ev.Minted["10.0.0."+string(rune('1'+i))+":6443"] = kid
		}
		return ev
	}
	stated := minted(other, subject.ID())
	stated.Statement = "I looked"
	for _, tt := range []struct {
		name    string
		ev      Evidence
		refused string
		why     string
	}{
		{name: "every server signs with another active key", ev: minted(other, other), why: "10.0.0.1:6443 signs with " + string(other) + "; 10.0.0.2:6443 signs with " + string(other)},
		{name: "the operator's word", ev: Evidence{Statement: "all three were restarted"}, why: "all three were restarted"},
		{name: "nothing", refused: "nothing shows that no kube-apiserver signs with it"},
		{name: "one server signs with it still", ev: minted(other, subject.ID()), refused: "the kube-apiserver 10.0.0.2:6443 signs with it"},
		{name: "a word against what a server does", ev: stated, refused: "the kube-apiserver 10.0.0.2:6443 signs with it"},
		{name: "a server signs with a key that nobody knows", ev: minted("unknown"), refused: "signs with key unknown, which is not an active key"},
		{name: "a server signs with a key that may not sign yet", ev: minted(next.ID()), refused: "is not an active key"},
	} {
		got, err := s.Retire(change(openDay), subject.ID(), tt.ev)
		if tt.refused != "" {
			var notYet *NotYetError
			if !errors.As(err, &notYet) || notYet.Gate != gate.GateSigning || notYet.Key != subject.ID() || !notYet.Opens.IsZero() || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%s: error %v; want %q", tt.name, err, tt.refused)
			}
			continue
		}
		if k, _ := got.Key(subject.ID()); err != nil || k.State != Retired || !k.RetiredAt.Equal(openDay) {
			t.Errorf("%s: %+v, error %v", tt.name, k, err)
			continue
		}
		if h := got.History(); h[len(h)-1].Why != tt.why {
			t.Errorf("%s: recorded %q; want %q", tt.name, h[len(h)-1].Why, tt.why)
		}
	}
}

func TestRevokeTheLastKey(t *testing.T) {
	s, id := newSet(t, awsPolicy()), testKey(0).ID()
	with := func(p VerificationKey) RevokeOptions { return RevokeOptions{Replacement: &p} }
	for _, tt := range []struct {
		name    string
		last    RevokeOptions
		why     string
		refused string
		keys    []KeyID
	}{
		{name: "without a reason", last: RevokeOptions{LeaveEmpty: true}, refused: "a reason is needed; it is recorded"},
		{name: "with nothing said", why: "lost", refused: "it is the last key of \"prod-a\""},
		{name: "leaving it empty", why: "lost", last: RevokeOptions{LeaveEmpty: true}, keys: nil},
		{name: "with a replacement", why: "lost", last: with(testKey(3)), keys: []KeyID{testKey(3).ID()}},
		{name: "with itself", why: "lost", last: with(testKey(0)), refused: "the replacement is the same key"},
		{name: "with itself under another name", why: "lost", last: with(must(testKey(0).WithID("other", ""))), refused: "the replacement is the same key"},
		{name: "with nothing for a key", why: "lost", last: with(VerificationKey{}), refused: "its key 1 is empty"},
	} {
		got, err := s.Revoke(because(t0, tt.why), id, tt.last)
		if tt.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%s: error %v; want %q", tt.name, err, tt.refused)
			}
			continue
		}
		g, _ := got.GoneLine(testKey(0))
		if err != nil || !slices.Equal(ids(got), tt.keys) || g.Why != Revoked || !g.At.Equal(t0) {
			t.Errorf("%s: keys %v, gone %+v, error %v", tt.name, ids(got), g, err)
		}
		for _, k := range got.Keys() {
			if k.State != Active || k.PromotedAt.IsZero() {
				t.Errorf("%s: the replacement is %s", tt.name, k.State)
			}
		}
	}
}

func ids(s KeySet) []KeyID {
	var all []KeyID
	for _, k := range s.Keys() {
		all = append(all, k.ID())
	}
	return all
}

func TestRevokeWithAReplacementThatIsThereAlreadyMakesItActive(t *testing.T) {
	r := subject
	for _, place := range []string{"next", "active", "retired", "never active"} {
		got, err := lives(t)[place].Revoke(because(openDay, "lost"), testKey(0).ID(), RevokeOptions{Replacement: &r})
		if k, _ := got.Key(subject.ID()); err != nil || k.State != Active || len(got.Keys()) != 1 {
			t.Errorf("%s: %+v, error %v", place, k, err)
		}
	}
	if _, err := lives(t)["revoked"].Revoke(because(openDay, "lost"), testKey(0).ID(), RevokeOptions{Replacement: &r}); err == nil || !strings.Contains(err.Error(), "make a new key") {
		t.Errorf("a revoked key as replacement: error %v", err)
	}
}

func TestAGoneKeyDoesNotComeBackUnderAnotherName(t *testing.T) {
	renamed := must(subject.WithID("fresh-looking", ""))
	for _, place := range []string{"removed", "revoked"} {
		s := lives(t)[place]
		if _, err := s.Add(change(openDay), renamed); err == nil || !strings.Contains(err.Error(), "never comes back") {
			t.Errorf("add of a key that is %s: error %v", place, err)
		}
		if _, err := s.Revoke(because(openDay, "lost"), testKey(0).ID(), RevokeOptions{Replacement: &renamed}); err == nil {
			t.Errorf("a key that is %s replaces another", place)
		}
		if _, err := s.Accept(because(openDay, "x"), 0, Decided{Keep: []VerificationKey{renamed}}); err == nil || !strings.Contains(err.Error(), "never comes back") {
			t.Errorf("accept of a key that is %s: error %v", place, err)
		}
	}
}

func TestAddTakesAKeyOnce(t *testing.T) {
	s := lives(t)["next"]
	for name, k := range map[string]VerificationKey{
		"the same":                   subject,
		"the same under a name":      must(subject.WithID("other", "")),
		"another under the same kid": must(testKey(5).WithID(subject.ID(), "")),
	} {
		if _, err := s.Add(change(openDay), k); err == nil || !strings.Contains(err.Error(), "publishes it already (next, kid "+string(subject.ID())) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := s.Add(change(openDay), VerificationKey{}); err == nil {
		t.Error("nothing was added as a key")
	}
}

func TestRemoveKeepsTheLastKey(t *testing.T) {
	ok := step(t)
	s := newSet(t, awsPolicy())
	s = ok(s.Retire(change(t0), testKey(0).ID(), Evidence{Statement: "the cluster is gone"}))
	if _, err := s.Remove(change(openDay), testKey(0).ID(), Removal{}); err == nil || !strings.Contains(err.Error(), "it is the last key") {
		t.Errorf("error %v", err)
	}
	if s := ok(s.Remove(forced(openDay), testKey(0).ID(), Removal{})); len(s.Keys()) != 0 {
		t.Errorf("keys %v", ids(s))
	}
}

func TestHistoryIsBounded(t *testing.T) {
	ok := step(t)
	s := newSet(t, awsPolicy())
	for i := range 3 * KeptHistory {
		at := t0.Add(time.Duration(i) * time.Minute)
		s = ok(s.SetPolicy(because(at, at.String()), awsPolicy()))
	}
	h := s.History()
	if end := t0.Add((3*KeptHistory - 1) * time.Minute); len(h) != KeptHistory || h[len(h)-1].Why != end.String() {
		t.Errorf("%d lines of history; the newest is %+v", len(h), h[len(h)-1])
	}
}

// A clock that runs behind would open gates too late, one that runs ahead too early: what is recorded shows either.
func TestAClockInThePastIsRefused(t *testing.T) {
	latest := openDay.Add(-time.Minute)
	s := step(t)(lives(t)["next"].Add(change(latest), testKey(6)))
	other := subject
	all := map[string]func(c Change) (KeySet, error){
		"add": func(c Change) (KeySet, error) { return s.Add(c, testKey(5)) },
		"promote": func(c Change) (KeySet, error) {
			return s.Promote(c, subject.ID(), seen(addDay, latest.Add(-2*time.Minute)))
		},
		"retire": func(c Change) (KeySet, error) { return s.Retire(c, subject.ID(), Evidence{Statement: "x"}) },
		"remove": func(c Change) (KeySet, error) { return s.Remove(c, subject.ID(), Removal{NeverSigned: true}) },
		"revoke": func(c Change) (KeySet, error) {
			return s.Revoke(c, testKey(0).ID(), RevokeOptions{Replacement: &other})
		},
		"set policy": func(c Change) (KeySet, error) { return s.SetPolicy(c, awsPolicy()) },
		"withdraw":   func(c Change) (KeySet, error) { return s.Withdraw(c) },
		"accept":     func(c Change) (KeySet, error) { return s.Accept(c, 1, Decided{}) },
	}
	for name, do := range all {
		_, err := do(because(latest.Add(-61*time.Second), "x"))
		var notYet *NotYetError
		if !errors.As(err, &notYet) || notYet.Gate != gate.GateClock || !notYet.Opens.Equal(latest.Add(-time.Minute)) || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s 61 s before the latest time on record: error %v", name, err)
		}
		if _, err := do(because(notYet.Opens, "x")); errors.As(err, &notYet) && notYet.Gate == gate.GateClock {
			t.Errorf("%s a minute before the latest time on record: error %v", name, err)
		}
		if _, err := do(forced(t0)); errors.As(err, &notYet) {
			t.Errorf("%s by force: error %v", name, err)
		}
	}
}

func TestWhatAKeySetGivesAwayIsACopy(t *testing.T) {
	s := fullSet(t)
	before := s.Digest()
	s.Keys()[0].State = "spoilt"
	s.Gone()[0].Why = "spoilt"
	s.Issuers()[0] = IssuerURL{}
	s.History()[0].What = "spoilt"
	s.Rotation().Step = "spoilt"
	p := s.Policy()
	*p.MaxAge, p.RelyingParties[0], p.Origins[0], p.ObserveFrom[0], p.HeldUntil[0].Edge = 1, "spoilt", "spoilt", "spoilt", 1
	if s.Digest() != before {
		t.Error("a caller can change a key set behind the transitions' back")
	}
	mine := awsPolicy()
	s = step(t)(s.SetPolicy(change(openDay), mine))
	before = s.Digest()
	*mine.TokenLifetime, mine.RelyingParties[0] = 0, "spoilt"
	if s.Digest() != before {
		t.Error("a caller can change a policy after setting it")
	}
}
