package keystore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// walker takes random steps through the life of one key set and keeps its own books of what must be true.
type walker struct {
	t    *testing.T
	rng  *rand.Rand
	now  time.Time
	s    KeySet
	pool []Public
	gone map[KeyID]bool
	log  []string
	done map[string]int // successes without force, by what was done
}

// walkPolicy has gates that a walk of hours can pass: convergence 75 s, edge 2 min, client 1 min; the floor is 1 h.
func walkPolicy(rng *rand.Rand) Policy {
	minutes := func(from, n int) *Duration { return D(time.Duration(from+rng.IntN(n)) * time.Minute) }
	return Policy{MaxAge: minutes(1, 30), StaleWhileRevalidate: minutes(0, 30), StaleIfError: minutes(0, 60), EdgeHold: minutes(0, 90),
		RelyingParties: []string{"vault"}, TokenLifetime: minutes(10, 120)}
}

func TestRandomWalksKeepTheInvariants(t *testing.T) {
	done := map[string]int{}
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 7))
		w := &walker{t: t, rng: rng, now: t0, gone: map[KeyID]bool{}, done: done}
		for n := range 8 {
			k := testKey(n)
			if n%3 == 0 {
				k = must(k.as(KeyID(fmt.Sprintf("imported-%d", n)), ""))
			}
			w.pool = append(w.pool, k)
		}
		s, err := New(change(t0), Spec{Name: "prod-a", Issuers: []string{"https://oidc.example.com/prod-a"}, Keys: w.pool[:1], Policy: walkPolicy(rng)})
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
	for _, name := range []string{"add", "observe", "promote next", "promote retired", "retire", "remove", "unsigned", "revoke", "policy", "accept"} {
		if done[name] < 4 {
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
	if err != nil && notYet != nil && notYet.Gate == GateCaches && w.rng.IntN(2) == 0 {
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
func (w *walker) wait(c Change, k Public, opens time.Time) (string, KeySet, error) {
	w.now = opens
	c.At = opens
	s, err := w.s.Observe(c, seen(w.s))
	if err != nil {
		return "", KeySet{}, err
	}
	w.checkStep(c, "observe", s)
	w.s = s
	got, err := s.Promote(c, k.ID())
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
func (w *walker) transition(c Change, k Public) (string, KeySet, error) {
	var name string
	var got KeySet
	var err error
	switch name = []string{"add", "observe", "observe", "observe", "promote", "promote", "retire", "remove", "unsigned", "revoke", "policy", "accept"}[w.rng.IntN(12)]; name {
	case "add":
		got, err = w.s.Add(c, k)
	case "observe":
		c.Force = false
		got, err = w.s.Observe(c, w.look())
	case "promote":
		got, err = w.s.Promote(c, k.ID())
	case "retire":
		got, err = w.s.Retire(c, k.ID(), Evidence{Statement: "the walker says so"})
	case "remove":
		got, err = w.s.Remove(c, k.ID(), false)
	case "unsigned":
		got, err = w.s.Remove(c, k.ID(), true)
	case "revoke":
		got, err = w.s.Revoke(c, k.ID(), Last{})
	case "policy":
		got, err = w.s.SetPolicy(c, walkPolicy(w.rng))
	case "accept":
		got, err = w.s.Accept(c, w.s.Generation()+int64(w.rng.IntN(3))-1, nil)
	}
	return name + " " + string(k.ID()), got, err
}

// look sees most keys most of the time.
func (w *walker) look() Observation {
	o := Observation{Complete: w.rng.IntN(20) != 0, MaxAge: Duration(w.rng.IntN(40)) * Duration(time.Minute)}
	for _, k := range w.s.Keys() {
		if w.rng.IntN(30) != 0 {
			o.Kids = append(o.Kids, k.ID())
		}
	}
	return o
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
	}
	for _, was := range w.s.Keys() {
		if _, still := got.Key(was.ID()); !still && !w.gone[was.ID()] {
			w.t.Errorf("%s: key %s vanished without a line in gone", name, was.ID())
		}
	}
	for _, k := range got.Keys() {
		w.checkKey(c, name, got, k)
	}
}

func (w *walker) checkKey(c Change, name string, got KeySet, k Key) {
	if w.gone[k.ID()] {
		w.t.Errorf("%s: key %s has come back", name, k.ID())
	}
	was, there := w.s.Key(k.ID())
	if !there && k.State != Next {
		w.t.Errorf("%s: key %s begins as %s", name, k.ID(), k.State)
	}
	// By the book: seen without a gap since ObservedAt, and everything declared now and an hour passed since.
	if k.State == Active && was.State != Active && was.PromotedAt.IsZero() && !c.Force {
		p := got.Policy()
		opens := was.ObservedAt.Add(max(promoteFloor, convergence+p.edge(0)+p.client(0)))
		if was.ObservedAt.IsZero() || w.now.Before(opens) {
			w.t.Errorf("%s: key %s, seen since %v, may sign at %v already", name, k.ID(), was.ObservedAt, w.now)
		}
	}
}

// stored gives what the walk has come to the next generation, as Update would, and now and then writes it and reads it
// back.
func (w *walker) stored(got KeySet) {
	was := w.s.Generation()
	served := was + got.skip
	got.generation, got.skip = served+1, 0
	if got.Generation() <= was {
		w.t.Errorf("the generation went from %d to %d", was, got.Generation())
	}
	w.s = got
	if w.rng.IntN(20) != 0 {
		return
	}
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
