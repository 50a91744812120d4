package audit_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/audit"
	"github.com/keypost/keypost/keystore/history"
	"github.com/keypost/keypost/keystore/storetest"
)

// walk makes generations of a key set by random transitions, and returns each as it was stored.
func walk(t *testing.T, r *rand.Rand, steps int) (all []keystore.KeySet) {
	t.Helper()
	st := storetest.NewMemStore(t)
	first := storetest.KeySet(t, "prod-a").LinkedTo(keystore.KeySet{})
	if err := keystore.Create(t.Context(), st.Store, first); err != nil {
		t.Fatal(err)
	}
	all = append(all, load(t, st))
	for len(all) < steps {
		n := len(all)
		_, err := keystore.Update(t.Context(), st.Store, "prod-a", func(s keystore.KeySet) (keystore.KeySet, error) { return random(t, r, s, n) })
		if err != nil {
			continue // a transition that this state does not allow
		}
		all = append(all, load(t, st))
	}
	return all
}

func load(t *testing.T, st *storetest.MemStore) keystore.KeySet {
	t.Helper()
	s, _, err := st.Load(t.Context(), "prod-a")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// random makes the n-th change.
func random(t *testing.T, r *rand.Rand, s keystore.KeySet, n int) (keystore.KeySet, error) {
	c := storetest.Change(time.Duration(n) * time.Hour)
	c.Why, c.As = fmt.Sprintf("reason %d", r.IntN(3)), []string{"", "kubernetes:ci"}[r.IntN(2)]
	var id keystore.KeyID
	if keys := s.Keys(); len(keys) > 0 {
		id = keys[r.IntN(len(keys))].ID()
	}
	replacement := storetest.Key(t)
	switch r.IntN(10) {
	case 0:
		return s.Promote(c, id, keystore.Observed{})
	case 1:
		return s.Retire(c, id, keystore.Evidence{Statement: "stated"})
	case 2:
		return s.Remove(c, id, keystore.Removal{NeverSigned: true})
	case 3:
		return s.Revoke(c, id, keystore.RevokeOptions{Replacement: &replacement})
	case 4:
		return s.StartRotation(c, replacement)
	case 5:
		return s.RollBack(c)
	case 6:
		return s.Accept(c, s.Generation()+int64(r.IntN(5)), nil)
	case 7:
		if !s.Withdrawn() {
			return s.Withdraw(c)
		}
		return s.Reopen(c, keystore.Spec{Name: "prod-a", Issuers: s.Issuers(), Keys: []keystore.VerificationKey{replacement}})
	case 8:
		p := s.Policy()
		p.MaxAge = keystore.DurationPtr(time.Duration(1+r.IntN(50)) * time.Minute)
		return s.SetPolicy(c, p)
	}
	return s.Add(c, replacement)
}

// Any sequence of transitions yields a whole chain, and each generation descends from every earlier one that its lines go back to.
func TestTransitionsYieldAWholeChain(t *testing.T) {
	for seed := range uint64(2) {
		all := walk(t, rand.New(rand.NewPCG(seed, 1)), 65)
		for i, s := range all {
			if c := audit.ChainOf(s); c.State != audit.Whole || len(s.History()) < 45 && c.Since != 1 {
				t.Fatalf("seed %d: generation %d: %+v", seed, s.Generation(), c)
			}
			for j := max(0, i-60); j <= i; j++ {
				if why := audit.Follow(s, all[j].Chained().Head()); why != "" && !skipped(all[j:i+1]) {
					t.Fatalf("seed %d: generation %d after %d: %s", seed, s.Generation(), all[j].Generation(), why)
				}
			}
		}
	}
}

// skipped reports whether an accept has left out generations, behind which nothing shows a descent.
func skipped(all []keystore.KeySet) bool {
	return all[len(all)-1].Generation()-all[0].Generation() != int64(len(all)-1)
}

// Any generation that is removed from the lines, changed or moved is noticed, by a hand that does not make the chain anew.
func TestTamperingIsNoticed(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	last := walk(t, r, 18)[17]
	groups := groupsOf(last.History())
	if len(groups) < 12 {
		t.Fatalf("only %d generations", len(groups))
	}
	changes := map[string]func(e *history.Event){
		"why":        func(e *history.Event) { e.Why += "!" },
		"who":        func(e *history.Event) { e.By = "mallory" },
		"as":         func(e *history.Event) { e.As = "kubernetes:admin" },
		"what":       func(e *history.Event) { e.What += "?" },
		"keys":       func(e *history.Event) { e.Keys += "x" },
		"when":       func(e *history.Event) { e.At = e.At.Add(time.Second) },
		"forced":     func(e *history.Event) { e.Forced = !e.Forced },
		"generation": func(e *history.Event) { e.Generation += 1000 },
		"content":    func(e *history.Event) { e.Content = "x" },
		"previous":   func(e *history.Event) { e.Previous = "x" },
		"no digest":  func(e *history.Event) { e.Generation, e.Content, e.Previous = 0, "", "" },
	}
	for i := range groups {
		for name, change := range changes {
			for line := range groups[i] {
				noticed(t, fmt.Sprintf("%s of generation %d", name, i), last, func() [][]history.Event {
					all := cloned(groups)
					change(&all[i][line])
					return all
				})
			}
		}
		for j := range i {
			noticed(t, fmt.Sprintf("generation %d and %d exchanged", j, i), last, func() [][]history.Event {
				all := cloned(groups)
				all[i], all[j] = all[j], all[i]
				return all
			})
		}
		noticed(t, fmt.Sprintf("generation %d removed", i), last, func() [][]history.Event { return slices.Delete(cloned(groups), i, i+1) })
		noticed(t, fmt.Sprintf("generation %d twice", i), last, func() [][]history.Event { return slices.Insert(cloned(groups), i, groups[i]) })
	}
}

// noticed fails the test if the chain of a key set with other lines of history counts as whole, and shows that they differ.
func noticed(t *testing.T, what string, s keystore.KeySet, lines func() [][]history.Event) {
	t.Helper()
	doc := tree(t, s)
	doc["spec"].(map[string]any)["history"] = slices.Concat(lines()...) //nolint:forcetypeassert // the test made it
	forged := parse(t, doc)
	if c := audit.ChainOf(forged); c.State != audit.Broken {
		t.Errorf("%s: %+v", what, c)
	}
}

func groupsOf(lines []history.Event) (all [][]history.Event) {
	for i, e := range lines {
		if i == 0 || lines[i-1].Generation != e.Generation {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], e)
	}
	return all
}

func cloned(groups [][]history.Event) (all [][]history.Event) {
	for _, g := range groups {
		all = append(all, slices.Clone(g))
	}
	return all
}

func tree(t *testing.T, s keystore.KeySet) map[string]any {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func parse(t *testing.T, doc map[string]any) keystore.KeySet {
	t.Helper()
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := keystore.Parse("prod-a", data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every edit of a stored document by hand is noticed, in the document itself and in the generation that is made from it.
func TestEditsByHandAreNoticed(t *testing.T) {
	before := storetest.KeySet(t, "prod-a").LinkedTo(keystore.KeySet{})
	for name, edit := range map[string]func(spec map[string]any){
		"the policy":              func(spec map[string]any) { spec["policy"] = map[string]any{"tokenLifetime": "1h"} },
		"a date":                  func(spec map[string]any) { key(spec)["publishedAt"] = "2020-01-01T00:00:00Z" },
		"a state":                 func(spec map[string]any) { key(spec)["state"] = "next" },
		"a generation on its own": func(spec map[string]any) { spec["generation"] = 2 },
	} {
		doc := tree(t, before)
		edit(doc["spec"].(map[string]any)) //nolint:forcetypeassert // the test made it
		edited := parse(t, doc)
		st := storetest.NewMemStore(t)
		if err := keystore.Create(t.Context(), st.Store, edited); err != nil {
			t.Fatal(err)
		}
		after, err := keystore.Update(t.Context(), st.Store, "prod-a", storetest.Mark("x"))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []keystore.KeySet{edited, after} {
			if c := audit.ChainOf(s); c.State != audit.Broken || len(c.Findings) != 1 || audit.Messages(c.Findings) == "" {
				t.Errorf("%s: generation %d: %+v", name, s.Generation(), c)
			}
		}
		if audit.Follow(after, before.Chained().Head()) == "" {
			t.Errorf("%s: it counts as descended from the version before the edit", name)
		}
	}
	// Layout, labels and annotations are nobody's keys.
	doc := tree(t, before)
	doc["metadata"].(map[string]any)["labels"] = map[string]any{"team": "a"} //nolint:forcetypeassert // the test made it
	if c := audit.ChainOf(parse(t, doc)); c.State != audit.Whole {
		t.Errorf("a label: %+v", c)
	}
}

func key(spec map[string]any) map[string]any {
	return spec["keys"].([]any)[0].(map[string]any) //nolint:forcetypeassert // the test made it
}

// A key set from before digests has no chain, and begins one with its next change. What a newer program wrote is not judged.
func TestChainsThatAreNotRecorded(t *testing.T) {
	old := edited(t, storetest.KeySet(t, "prod-a"), func(spec map[string]any) { delete(line(spec, 0), "keys") })
	if c := audit.ChainOf(old); c.State != audit.Unrecorded || len(c.Findings) > 0 || c.Digest != "" {
		t.Errorf("%+v", c)
	}
	st := storetest.NewMemStore(t)
	if err := keystore.Create(t.Context(), st.Store, old); err != nil {
		t.Fatal(err)
	}
	next, err := keystore.Update(t.Context(), st.Store, "prod-a", storetest.Mark("x"))
	if err != nil {
		t.Fatal(err)
	}
	if c := audit.ChainOf(next); c.State != audit.Whole || c.Since != 2 {
		t.Errorf("%+v", c)
	}
	if why := audit.Follow(next, old.Chained().Head()); why != "" {
		t.Error(why)
	}
	if why := audit.Follow(old, next.Chained().Head()); why != "" {
		t.Errorf("one without digests: %s", why)
	}
	doc := tree(t, next)
	doc["spec"].(map[string]any)["policy"].(map[string]any)["fromTheFuture"] = true //nolint:forcetypeassert // the test made it
	if c := audit.ChainOf(parse(t, doc)); c.State != audit.Unshown {
		t.Errorf("a newer program's: %+v", c)
	}
}

// Which keys were trusted when, through the life of two keys.
func TestTrustedKeys(t *testing.T) {
	a, b := storetest.Key(t), storetest.Key(t)
	must := func(s keystore.KeySet, err error) keystore.KeySet {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	hour := func(n int) keystore.Change { return storetest.Change(time.Duration(n) * time.Hour) }
	s := storetest.KeySet(t, "prod-a", a)
	s = must(s.Add(hour(10), b))
	s = must(s.Promote(hour(20), b.ID(), keystore.Observed{}))
	s = must(s.Retire(hour(30), a.ID(), keystore.Evidence{Statement: "x"}))
	s = must(s.Promote(hour(40), a.ID(), keystore.Observed{})) // a rollback, which overwrites dates
	s = must(s.Retire(hour(50), a.ID(), keystore.Evidence{Statement: "x"}))
	s = must(s.Remove(hour(60), a.ID(), keystore.Removal{})).LinkedTo(keystore.KeySet{})
	withdrawn := must(s.Withdraw(hour(200))).LinkedTo(keystore.KeySet{})
	for _, tt := range []struct {
		set  keystore.KeySet
		hour float64
		want string
	}{
		{s, -1, ""},
		{s, 0, "a:active"},
		{s, 9.5, "a:active"},
		{s, 10, "a:active b:next"},
		{s, 25, "a:active b:active"},
		{s, 35, "a:retired b:active"},
		{s, 45, "a:active b:active"},
		{s, 59.9, "a:retired b:active"},
		{s, 60, "a:left b:active"},
		{s, 150, "b:active"},
		{withdrawn, 199, "b:active"},
		{withdrawn, 200, "b:left"},
		{withdrawn, 400, ""},
	} {
		r := audit.Of(tt.set, storetest.Time(time.Duration(tt.hour*float64(time.Hour))))
		var got []string
		for _, v := range []keystore.VerificationKey{a, b} {
			for _, k := range r.Keys {
				if k.Kid != v.ID() {
					continue
				}
				state := string(k.State)
				if !k.Listed {
					state = "left"
				}
				if k.Fingerprint != v.Fingerprint() || k.Listed && k.LeftAt.IsZero() && k.PublicKey == "" {
					t.Errorf("%v: %+v", tt.hour, k)
				}
				got = append(got, map[keystore.KeyID]string{a.ID(): "a", b.ID(): "b"}[k.Kid]+":"+state)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("at hour %v: %q, want %q", tt.hour, got, tt.want)
		}
	}
}
