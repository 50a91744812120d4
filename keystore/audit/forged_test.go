package audit_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/audit"
	"github.com/keypost/keypost/keystore/history"
	"github.com/keypost/keypost/keystore/storetest"
)

// promoted returns a key set of three generations with an active key and the ID of one that is next.
func promoted(t *testing.T) (s keystore.KeySet, active, next keystore.KeyID) {
	t.Helper()
	st := storetest.NewMemStore(t)
	a, b := storetest.Key(t), storetest.Key(t)
	if err := keystore.Create(t.Context(), st.Store, storetest.KeySet(t, "prod-a", a).LinkedTo(keystore.KeySet{})); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error){
		func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) { return s.Add(c, b) },
		func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
			p := s.Policy()
			p.MaxAge = keystore.DurationPtr(time.Minute)
			return s.SetPolicy(c, p)
		},
	} {
		_, err := keystore.Update(t.Context(), st.Store, "prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
			return change(s, storetest.Change(time.Duration(i+1)*time.Hour))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return load(t, st), a.ID(), b.ID()
}

// edited returns s as somebody has left it who edits its document by hand.
func edited(t *testing.T, s keystore.KeySet, edit func(spec map[string]any)) keystore.KeySet {
	t.Helper()
	doc := tree(t, s)
	edit(doc["spec"].(map[string]any)) //nolint:forcetypeassert // the test made it
	return parse(t, doc)
}

// changed returns the generation that keypost makes of s.
func changed(t *testing.T, s keystore.KeySet) keystore.KeySet {
	t.Helper()
	st := storetest.NewMemStore(t)
	if err := keystore.Create(t.Context(), st.Store, s); err != nil {
		t.Fatal(err)
	}
	if _, err := keystore.Update(t.Context(), st.Store, "prod-a", storetest.Mark("x")); err != nil {
		t.Fatal(err)
	}
	return load(t, st)
}

func lines(spec map[string]any) []any { return spec["history"].([]any) } //nolint:forcetypeassert // the test made it

func line(spec map[string]any, i int) map[string]any { return lines(spec)[i].(map[string]any) } //nolint:forcetypeassert // the test made it

func strip(line map[string]any) {
	delete(line, "generation")
	delete(line, "content")
	delete(line, "previous")
}

// Lines that a hand has made look as if they were from before digests, put in front or dropped are noticed, in the document, in
// the one that keypost makes of it, and by who serves or kept the version before. No state of a key rests on them.
func TestLinesThatNobodyWrote(t *testing.T) {
	honest, active, next := promoted(t)
	for name, edit := range map[string]func(spec map[string]any){
		"stripped and rewritten": func(spec map[string]any) {
			strip(line(spec, 0))
			strip(line(spec, 1))
			line(spec, 1)["by"] = "alice"
			line(spec, 1)["keys"] = string(next) + ": new → active"
		},
		"stripped without a state": func(spec map[string]any) {
			for i := range 2 {
				strip(line(spec, i))
				delete(line(spec, i), "keys")
				line(spec, i)["why"] = "forged"
			}
		},
		"put in front": func(spec map[string]any) {
			forged := map[string]any{"at": "2026-01-01T00:00:00Z", "by": "alice", "as": "kubernetes:alice", "what": "approve", "keys": string(next) + ": new → active"}
			spec["history"] = slices.Insert(lines(spec), 0, any(forged))
		},
		"put in front without who": func(spec map[string]any) {
			spec["history"] = slices.Insert(lines(spec), 0, any(map[string]any{"at": "2026-01-01T00:00:00Z", "what": "approve"}))
		},
		"the first dropped":        func(spec map[string]any) { spec["history"] = lines(spec)[1:] },
		"all but the last dropped": func(spec map[string]any) { spec["history"] = lines(spec)[2:] },
	} {
		forged := edited(t, honest, edit)
		if c := audit.ChainOf(forged); c.State != audit.Broken {
			t.Errorf("%s: %+v", name, c)
		}
		after := changed(t, forged)
		if c := audit.ChainOf(after); c.State != audit.Broken {
			t.Errorf("%s, then a change: %+v", name, c)
		}
		if audit.Follow(after, honest.Chained().Head()) == "" {
			t.Errorf("%s, then a change: it counts as descended from the version before", name)
		}
		for _, k := range audit.Of(forged, storetest.Time(5*time.Hour)).Keys {
			if want := map[keystore.KeyID]keystore.State{active: keystore.Active, next: keystore.Next}[k.Kid]; k.State != want {
				t.Errorf("%s: %s is %s, want %s", name, k.Kid, k.State, want)
			}
		}
	}
}

// Digests that a key set must have and has not are missing; what an older keypost wrote is not shown.
func TestDigestsThatVanish(t *testing.T) {
	honest, _, _ := promoted(t)
	for name, edit := range map[string]func(spec map[string]any){
		"no history": func(spec map[string]any) { delete(spec, "history"); spec["generation"] = 9 },
		"no digests, with what only who records them writes": func(spec map[string]any) {
			for i := range lines(spec) {
				strip(line(spec, i))
			}
		},
	} {
		forged := edited(t, honest, edit)
		if c := audit.ChainOf(forged); c.State != audit.Broken || c.Digest != "" || len(c.Findings) != 1 || c.Findings[0].Kind != history.Gap {
			t.Errorf("%s: %+v", name, c)
		}
	}
	old := edited(t, honest, func(spec map[string]any) {
		for i := range lines(spec) {
			strip(line(spec, i))
			delete(line(spec, i), "keys")
		}
	})
	if c := audit.ChainOf(old); c.State != audit.Unrecorded {
		t.Errorf("an older keypost's: %+v", c)
	}
	if c := audit.ChainOf(changed(t, old)); c.State != audit.Whole || c.Since != 4 || c.Earlier != 3 {
		t.Errorf("an older keypost's, then a change: %+v", c)
	}
}

// A member that this keypost does not know may be part of the content that was digested: that is not shown. Lines are checked all
// the same, unless it is in one of them.
func TestMembersThatAreNotKnown(t *testing.T) {
	honest, _, _ := promoted(t)
	for name, tt := range map[string]struct {
		edit func(spec map[string]any)
		want audit.ChainState
	}{
		"alone":                   {func(map[string]any) {}, audit.Unshown},
		"in a line":               {func(spec map[string]any) { line(spec, 0)["x"] = "y" }, audit.Unshown},
		"with a forged line":      {func(spec map[string]any) { line(spec, 0)["why"] = "forged" }, audit.Broken},
		"with another generation": {func(spec map[string]any) { spec["generation"] = 20 }, audit.Broken},
		"without history":         {func(spec map[string]any) { delete(spec, "history") }, audit.Broken},
	} {
		s := edited(t, honest, func(spec map[string]any) { spec["note"] = "x"; tt.edit(spec) })
		c := audit.ChainOf(s)
		if c.State != tt.want || c.Digest != "" || !slices.ContainsFunc(c.Unknown, func(u string) bool { return strings.Contains(u, "spec.note") }) {
			t.Errorf("%s: %+v", name, c)
		}
		r := audit.Of(s, storetest.Time(0))
		r.Expect(s, honest.Chained().Head())
		if r.Chain.State != audit.Broken {
			t.Errorf("%s: it counts as descended: %+v", name, r.Chain)
		}
	}
	newer := edited(t, honest, func(spec map[string]any) { spec["note"] = "x" })
	if m := newer.Chained().Head(); m != honest.Chained().Head() {
		t.Errorf("the digest that its last line has is %v, want %v", m, honest.Chained().Head())
	}
}

// What was before the key set was made is no empty set of keys of which anything is known.
func TestBeforeTheKeySetWasMade(t *testing.T) {
	s, _, _ := promoted(t)
	if r := audit.Of(s, storetest.Time(-time.Hour)); !r.MadeAt.Equal(storetest.Time(0)) || !r.TooEarly() {
		t.Errorf("an hour before: made at %s", r.MadeAt)
	}
	if r := audit.Of(s, storetest.Time(0)); r.TooEarly() || len(r.Keys) != 1 {
		t.Errorf("at that moment: %+v", r)
	}
	// Without that line, the oldest date that is there.
	late := edited(t, s, func(spec map[string]any) { spec["history"] = lines(spec)[2:] })
	if r := audit.Of(late, storetest.Time(-time.Hour)); !r.OldestAt.Equal(storetest.Time(0)) || !r.MadeAt.IsZero() || !r.TooEarly() {
		t.Errorf("without its first line: %+v", r)
	}
}

// The digest that was given is compared with that of the same generation.
func TestAnotherDigestOfTheSameGeneration(t *testing.T) {
	s, _, _ := promoted(t)
	r := audit.Of(s, storetest.Time(5*time.Hour))
	r.Expect(s, history.Head{Generation: 3, Digest: "other"})
	if got := audit.Messages(r.Chain.Findings); got != "the digest that was given is not that of generation 3, as it is here" {
		t.Error(got)
	}
}
