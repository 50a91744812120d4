package keystore

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/policy"
)

// many returns how often a random test runs: less by default, since anyone who changes a line waits for it.
func many(long, short uint64) uint64 {
	if os.Getenv("KEYPOST_LONG") != "" {
		return long
	}
	return short
}

// walker takes random steps through the life of one key set and keeps its own books of what must be true.
type walker struct {
	t     *testing.T
	rng   *rand.Rand
	now   time.Time
	s     KeySet
	pool  []VerificationKey
	gone  map[KeyID]bool
	dead  map[Fingerprint]bool // material that is gone
	looks observedRun
	log   []string
	done  map[string]int // successes without force, by what was done
	made  int
	steps []string
}

// walkPolicy has gates that a walk of hours can pass: convergence 75 s, edge 2 min, client 1 min; the floor is 1 h.
func walkPolicy(rng *rand.Rand) Policy {
	minutes := func(from, n int) *Duration { return DurationPtr(time.Duration(from+rng.IntN(n)) * time.Minute) }
	return Policy{MaxAge: minutes(1, 30), StaleWhileRevalidate: minutes(0, 30), StaleIfError: minutes(0, 60), EdgeHold: minutes(0, 90),
		RelyingParties: []string{"vault"}, TokenLifetime: minutes(10, 120)}
}

var ordinarySteps = []string{"add", "observe", "observe", "observe", "promote", "promote", "retire", "remove", "unsigned", "revoke", "policy", "accept", "start rotation", "roll back"}

var repairSteps = []string{"accept", "revoke", "replace", "replace", "replace", "replace", "keep", "bury", "reopen"}

// walkPool returns the keys of a walk, with aliases also the same ones under other names, and others under their names.
func walkPool(aliases bool) (pool []VerificationKey) {
	for n := range 8 {
		k := testKey(n)
		if n%3 == 0 {
			k = must(k.WithID(KeyID(fmt.Sprintf("imported-%d", n)), ""))
		}
		pool = append(pool, k)
	}
	for n := 0; aliases && n < 3; n++ {
		pool = append(pool, must(pool[n].WithID(KeyID(fmt.Sprintf("alias-%d", n)), "")), must(testKey(20+n).WithID(pool[n].ID(), "")))
	}
	return pool
}

func TestRandomWalksKeepTheInvariants(t *testing.T) {
	done := map[string]int{}
	for seed := range many(75, 24) {
		rng := rand.New(rand.NewPCG(seed, 7))
		w := &walker{t: t, rng: rng, now: t0, gone: map[KeyID]bool{}, dead: map[Fingerprint]bool{}, done: done}
		w.pool, w.steps = walkPool(seed%3 == 2), ordinarySteps
		if seed%3 == 2 {
			w.steps = append(slices.Clone(ordinarySteps), repairSteps...)
		}
		s, err := New(change(t0), Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com/prod-a"), Keys: w.pool[:1], Policy: walkPolicy(rng)})
		if err != nil {
			t.Fatal(err)
		}
		w.s = s
		for range 120 {
			w.step()
			if t.Failed() {
				t.Fatalf("seed %d, the last steps: %q", seed, w.log[max(0, len(w.log)-12):])
			}
		}
	}
	for _, name := range []string{"add", "observe", "promote next", "promote retired", "retire", "remove", "unsigned", "revoke", "replace", "policy", "accept", "keep", "bury", "reopen", "start", "roll"} {
		if os.Getenv("KEYPOST_LONG") != "" && done[name] < 4 || done[name] == 0 {
			t.Errorf("the walks tell little: %s came to pass %d times", name, done[name])
		}
	}
}

func (w *walker) step() {
	w.now = w.now.Add(time.Duration(w.rng.IntN(40*60)) * time.Second)
	c := Change{At: w.now, By: "walker", Why: "walking", Force: w.rng.IntN(12) == 0}
	k := w.pool[w.rng.IntN(len(w.pool))]
	name, got, err := w.transition(c, k)
	outcome := "ok"
	if err != nil {
		outcome = err.Error()
	}
	w.log = append(w.log, fmt.Sprintf("%v %s force=%v: %s", w.now.Sub(t0), name, c.Force, outcome))
	var notYet *NotYetError
	if errors.As(err, &notYet) && (c.Force || !notYet.Opens.IsZero() && !notYet.Opens.After(w.now)) {
		w.t.Errorf("refused with an open gate: %v", err)
	}
	if err != nil && notYet != nil && notYet.Gate == gate.GateCaches && w.rng.IntN(2) == 0 {
		name, got, err = w.wait(c, k, notYet.Opens)
	}
	if err != nil {
		return
	}
	w.checkStep(c, name, got)
	w.count(c, k.ID(), name)
	w.stored(got)
}

// wait does what a refused rotation does: it looks again when the gate opens, and promotes.
func (w *walker) wait(c Change, k VerificationKey, opens time.Time) (string, KeySet, error) {
	w.now = opens
	c.At = opens
	w.look(true, math.MaxInt)
	got, err := w.s.Promote(c, k.ID(), w.observed(k.ID()))
	return "promote " + string(k.ID()), got, err
}

func (w *walker) count(c Change, id KeyID, name string) {
	name, _, _ = strings.Cut(name, " ")
	if was, _ := w.s.Key(id); name == "promote" {
		name += " " + string(was.State)
	}
	if !c.Force {
		w.done[name]++
	}
}

// transition tries one that suits the moment or does not.
func (w *walker) transition(c Change, k VerificationKey) (string, KeySet, error) {
	var name string
	var got KeySet
	var err error
	switch name = w.steps[w.rng.IntN(len(w.steps))]; name {
	case "add":
		got, err = w.s.Add(c, k)
	case "observe":
		w.look(w.rng.IntN(20) != 0, 30)
		w.done["observe"]++
		return name, KeySet{}, errNothingChanges
	case "promote":
		got, err = w.s.Promote(c, k.ID(), w.observed(k.ID()))
	case "retire":
		got, err = w.s.Retire(c, k.ID(), Evidence{Statement: "the walker says so"})
	case "remove":
		got, err = w.s.Remove(c, k.ID(), Removal{})
	case "unsigned":
		got, err = w.s.Remove(c, k.ID(), Removal{NeverSigned: true})
	case "revoke":
		got, err = w.s.Revoke(c, k.ID(), RevokeOptions{})
	case "replace":
		r := w.pool[w.rng.IntN(len(w.pool))]
		got, err = w.s.Revoke(c, k.ID(), RevokeOptions{Replacement: &r})
	case "keep", "bury":
		if have, ok := w.s.Key(k.ID()); ok && !have.SameMaterial(k) && name == "keep" {
			return name, KeySet{}, errors.New("not walked: it says that what is served is another key than what is stored")
		}
		got, err = w.s.Accept(c, 0, []Decision{{Key: k, Keep: name == "keep"}})
	case "reopen":
		if got, err = w.s.Withdraw(Change{At: c.At, Why: "walking", Force: true}); err == nil {
			w.checkStep(c, "withdraw", got)
			w.stored(got)
			got, err = w.s.Reopen(c, Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com/prod-a"), Keys: []VerificationKey{k}, Policy: walkPolicy(w.rng)})
		}
		if err != nil && w.s.Withdrawn() { // the walk ends here
			got, err = w.s.Reopen(c, Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com/prod-a"), Keys: []VerificationKey{w.fresh()}, Policy: walkPolicy(w.rng)})
		}
	case "start rotation":
		got, err = w.s.StartRotation(c, k)
	case "roll back":
		got, err = w.s.RollBack(c)
	case "policy":
		got, err = w.s.SetPolicy(c, walkPolicy(w.rng))
	case "accept":
		got, err = w.s.Accept(c, w.s.Generation()+int64(w.rng.IntN(3))-1, nil)
	}
	return name + " " + string(k.ID()), got, err
}

// fresh is a key that never was.
func (w *walker) fresh() VerificationKey {
	w.made++
	return testKey(1000 + w.made)
}

// observedRun is what an observer keeps, as package keystore/observation does.
type observedRun struct {
	since map[Fingerprint]time.Time // of the keys that every look has found since a complete one
	fresh time.Time                 // of the last complete look
	cache Cache                     // the longest seen
}

var errNothingChanges = errors.New("a look changes no key set")

// look sees each key but one in misses.
func (w *walker) look(complete bool, misses int) {
	was := w.looks.since
	w.looks.since = map[Fingerprint]time.Time{}
	for _, k := range w.s.Keys() {
		since, before := was[k.Fingerprint()]
		switch {
		case w.rng.IntN(misses) == 0:
		case before:
			w.looks.since[k.Fingerprint()] = since
		case complete:
			w.looks.since[k.Fingerprint()] = w.now
		}
	}
	if complete {
		w.looks.fresh = w.now
	}
	some := func() time.Duration { return time.Duration(w.rng.IntN(40)) * time.Minute }
	w.looks.cache = w.looks.cache.Longest(Cache{MaxAge: some(), StaleWhileRevalidate: some(), StaleIfError: some()})
}

// observed is what was seen of the published key with that ID.
func (w *walker) observed(id KeyID) Observed {
	k, _ := w.s.Key(id)
	return Observed{Since: w.looks.since[k.Fingerprint()], Fresh: w.looks.fresh, Cache: w.looks.cache}
}

func (w *walker) checkStep(c Change, name string, got KeySet) {
	if err := got.check(); err != nil {
		w.t.Errorf("%s: %v", name, err)
	}
	if !slices.IsSortedFunc(got.Keys(), func(a, b Key) int { return slices.Compare([]byte(a.ID()), []byte(b.ID())) }) {
		w.t.Errorf("%s: the keys are not in order: %v", name, ids(got))
	}
	if was, is := w.s.Gone(), got.Gone(); len(is) < len(was) || !slices.Equal(is[:len(was)], was) {
		w.t.Errorf("%s: gone was %v and is %v", name, was, is)
	}
	for _, g := range got.Gone() {
		w.gone[g.ID] = true
		if g.Fingerprint == "" {
			w.t.Errorf("%s: the line of %s has no fingerprint", name, g.ID)
		}
		w.dead[g.Fingerprint] = true
	}
	for _, was := range w.s.Keys() {
		if is, still := got.Key(was.ID()); still && !is.SameMaterial(was.VerificationKey) {
			w.t.Errorf("%s: key %s is another one", name, was.ID())
		} else if !still && (!w.gone[was.ID()] || !w.dead[was.Fingerprint()]) {
			w.t.Errorf("%s: key %s vanished without a line in gone", name, was.ID())
		}
	}
	names := map[Fingerprint]KeyID{}
	for _, k := range got.Keys() {
		w.checkKey(c, name, got, k)
		if twin, twice := names[k.Fingerprint()]; twice {
			w.t.Errorf("%s: keys %s and %s are the same", name, twin, k.ID())
		}
		names[k.Fingerprint()] = k.ID()
	}
}

// checkFollows: publishers take over whatever a transition has made.
func (w *walker) checkFollows(was, is KeySet) { follows(w.t, "walk", is, &was) }

// checkRevocable: every published key can be revoked at any moment.
func (w *walker) checkRevocable() {
	for _, k := range w.s.Keys() {
		got, err := w.s.Revoke(Change{At: w.now, Why: "stolen", Force: true}, k.ID(), RevokeOptions{LeaveEmpty: true})
		if err != nil && !w.s.Withdrawn() {
			w.t.Errorf("key %s cannot be revoked: %v", k.ID(), err)
			continue
		}
		if err == nil {
			got.generation++
			w.checkFollows(w.s, got)
		}
	}
}

func (w *walker) checkKey(c Change, name string, got KeySet, k Key) {
	if w.gone[k.ID()] || w.dead[k.Fingerprint()] {
		w.t.Errorf("%s: key %s has come back", name, k.ID())
	}
	was, there := w.s.Key(k.ID())
	decided, _, _ := strings.Cut(name, " ") // what publishes or activates a key by the operator's word
	if slices.Contains([]string{"replace", "keep", "reopen"}, decided) {
		return
	}
	if !there && k.State != Next {
		w.t.Errorf("%s: key %s begins as %s", name, k.ID(), k.State)
	}
	// By the book: seen without a gap since then, and everything declared now or seen, and an hour passed since.
	if k.State == Active && was.State != Active && was.PromotedAt.IsZero() && !c.Force {
		p := got.Policy()
		since, seen := w.looks.since[k.Fingerprint()]
		opens := since.Add(max(promoteFloor, policy.Convergence+p.Edge(w.looks.cache)+p.Client(w.looks.cache)))
		if !seen || w.now.Before(opens) || w.now.Sub(w.looks.fresh) > gate.ObservationFresh || k.ObservedAt.Before(since.Truncate(time.Second)) {
			w.t.Errorf("%s: key %s, seen since %v and recorded since %v, may sign at %v already", name, k.ID(), since, k.ObservedAt, w.now)
		}
	}
}

// stored gives what the walk has come to the next generation, as Update would, and now and then writes it and reads it
// back.
func (w *walker) stored(got KeySet) {
	was := w.s.Generation()
	if got.generation == was {
		got.generation++
	}
	if got.Generation() <= was {
		w.t.Errorf("the generation went from %d to %d", was, got.Generation())
	}
	w.checkFollows(w.s, got)
	w.s = got
	if w.rng.IntN(20) != 0 {
		return
	}
	w.checkRevocable()
	data, err := Encode(got)
	if err != nil {
		w.t.Errorf("it cannot be written: %v", err)
		return
	}
	back, err := Parse("prod-a", data)
	if err != nil || back.Digest() != got.Digest() {
		w.t.Errorf("it does not read back the same (error %v)", err)
	}
	w.s = back
}
