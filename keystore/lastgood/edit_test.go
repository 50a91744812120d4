package lastgood

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/keypost/keypost/keystore"
)

// editor changes a document as somebody with an editor would, who knows no rule. Publishers must refuse whatever takes
// a key away without a trace or brings one back.
type editor struct {
	t    *testing.T
	rng  *rand.Rand
	was  keystore.KeySet
	dead map[keystore.Fingerprint]bool
}

func TestRandomEditsNeverBringAKeyBack(t *testing.T) {
	taken, refused := 0, map[keystore.Reason]int{}
	for seed := range many(20, 3) {
		e := &editor{t: t, rng: rand.New(rand.NewPCG(seed, 11)), was: must(parseTree("prod-a", doc{name: "prod-a", generation: 1, keys: []int{0}}.tree())), dead: map[keystore.Fingerprint]bool{}}
		for range 150 {
			d := asMap(e.was)
			for range 1 + e.rng.IntN(3) {
				e.edit(d["spec"].(map[string]any)) //nolint:forcetypeassert // a document has one
			}
			is, err := parseTree("prod-a", d)
			if err != nil {
				continue
			}
			before, after := SummaryOf(e.was), SummaryOf(is)
			if r := after.Follows(&before); r != nil {
				refused[r.Reason]++
				continue
			}
			taken++
			e.check(is)
			e.was = is
			if t.Failed() {
				t.Fatalf("seed %d: %s", seed, must(json.Marshal(is)))
			}
		}
	}
	for _, r := range []keystore.Reason{ReasonGoneReturned, ReasonKidMissing, ReasonKeyChanged, ReasonGenerationJump} {
		if refused[r] < int(many(5, 1)) {
			t.Errorf("the edits tell little: %d were refused as %s", refused[r], r)
		}
	}
	if taken < int(many(200, 30)) {
		t.Errorf("the edits tell little: %d were taken over", taken)
	}
}

// entry picks one of a list, nil if it is empty.
func (e *editor) entry(spec map[string]any, list string) (all []any, i int) {
	all, _ = spec[list].([]any)
	if len(all) == 0 {
		return nil, -1
	}
	return all, e.rng.IntN(len(all))
}

func (e *editor) edit(spec map[string]any) {
	spec["generation"] = e.was.Generation() + 1
	if e.rng.IntN(30) == 0 {
		spec["generation"] = e.was.Generation() + e.rng.Int64N(1<<40)
	}
	keys, k := e.entry(spec, "keys")
	gone, g := e.entry(spec, "gone")
	kid := fmt.Sprintf("name-%d", e.rng.IntN(12))
	switch what := e.rng.IntN(10); {
	case what < 3: // a key is added, maybe one that was there before
		fresh := published(e.rng.IntN(12), "")
		if e.rng.IntN(2) == 0 {
			fresh["kid"], fresh["importedKid"] = kid, true
		}
		spec["keys"] = append(keys, fresh)
	case k >= 0 && what == 3: // a key gets another name
		entry := asMap(keys[k])
		entry["kid"], entry["importedKid"] = kid, true
	case k >= 0 && what == 4: // another key gets its name
		entry := asMap(keys[k])
		entry["publicKey"], entry["importedKid"] = publicPEM(e.rng.IntN(12)), true
	case k >= 0 && what < 8: // a key leaves, with a line or without
		entry := asMap(keys[k])
		spec["keys"] = slices.Delete(keys, k, k+1)
		line := map[string]any{"kid": entry["kid"], "at": t0, "why": keystore.Removed}
		if e.rng.IntN(2) == 0 {
			line["fingerprint"] = fingerprintOf(entry["publicKey"])
		}
		if e.rng.IntN(4) != 0 {
			spec["gone"] = append(gone, line)
		}
	case g >= 0 && what == 8: // a line is changed
		line := asMap(gone[g])
		if delete(line, "fingerprint"); e.rng.IntN(2) == 0 {
			line["fingerprint"] = testKey(e.rng.IntN(12)).Fingerprint()
		}
	case g >= 0: // a line vanishes
		spec["gone"] = slices.Delete(gone, g, g+1)
	}
}

// fingerprintOf returns that of a key in a document.
func fingerprintOf(publicKey any) keystore.Fingerprint {
	for n := range 12 {
		if publicPEM(n) == publicKey {
			return testKey(n).Fingerprint()
		}
	}
	panic("no key of the test")
}

// asMap returns an entry as an editor sees it.
func asMap(entry any) map[string]any {
	if m, ok := entry.(map[string]any); ok {
		return m
	}
	var m map[string]any
	if err := json.Unmarshal(must(json.Marshal(entry)), &m); err != nil {
		panic(err)
	}
	return m
}

func (e *editor) check(is keystore.KeySet) {
	gone := map[keystore.Fingerprint]bool{}
	for _, g := range is.Gone() {
		gone[g.Fingerprint], e.dead[g.Fingerprint] = true, true
	}
	for _, k := range is.Keys() {
		if e.dead[k.Fingerprint()] {
			e.t.Errorf("the material of key %s has come back", k.ID())
		}
		revoked, err := is.Revoke(keystore.Change{At: t0, Why: "stolen", Force: true}, k.ID(), keystore.RevokeOptions{LeaveEmpty: true})
		if err != nil || slices.ContainsFunc(revoked.Keys(), func(left keystore.Key) bool { return left.Fingerprint() == k.Fingerprint() }) {
			e.t.Errorf("key %s cannot be revoked: %v", k.ID(), err)
		}
	}
	for _, k := range e.was.Keys() {
		if now, still := is.Key(k.ID()); (!still || now.Fingerprint() != k.Fingerprint()) && !gone[k.Fingerprint()] {
			e.t.Errorf("key %s left without a trace of its material", k.ID())
		}
	}
}
