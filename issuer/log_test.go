package issuer

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// fields returns what the last line with that message says beside it.
func (b *bench) fields(message string) map[string]any {
	b.t.Helper()
	lines := b.logs.FilterMessage(message).All()
	if len(lines) == 0 {
		b.t.Fatalf("no line says %q", message)
	}
	return lines[len(lines)-1].ContextMap()
}

// The line that tells of a change says which keys are trusted from now on, also when this process
// has not seen a generation in between.
func TestLogOfAChange(t *testing.T) {
	b := newBench(t)
	b.put(doc{name: "d", generation: 1})
	b.poll()
	update := func(change func(keystore.Change, keystore.KeySet) (keystore.KeySet, error), by, why string) keystore.KeySet {
		t.Helper()
		s, err := keystore.Update(t.Context(), b.store.Store, "a", func(s keystore.KeySet) (keystore.KeySet, error) {
			return change(keystore.Change{At: storetest.Time(time.Hour), By: by, Why: why, Force: true}, s)
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := storetest.KeySet(t, "a", key(t, 3))
	if err := keystore.Create(t.Context(), b.store.Store, first); err != nil {
		t.Fatal(err)
	}
	b.poll()
	got := b.fields("key set published")
	if want := []any{string(key(t, 3).ID())}; !reflect.DeepEqual(got["kids_added"], want) || got["previous_generation"] != nil || got["generation"] != int64(1) {
		t.Errorf("a new key set: %v", got)
	}

	update(func(c keystore.Change, s keystore.KeySet) (keystore.KeySet, error) { return s.Add(c, key(t, 2)) }, "alice", "rotation")
	update(func(c keystore.Change, s keystore.KeySet) (keystore.KeySet, error) {
		return s.Revoke(c, key(t, 3).ID(), keystore.RevokeOptions{})
	},
		"bob", "it leaked")
	b.poll()
	got = b.fields("key set published")
	if got["previous_generation"] != int64(1) || got["generation"] != int64(3) || !reflect.DeepEqual(got["kids_added"], []any{string(key(t, 2).ID())}) ||
		!reflect.DeepEqual(got["kids_removed"], []any{string(key(t, 3).ID())}) {
		t.Errorf("two generations at once: %v", got)
	}
}

// At the start one line tells how much is served.
func TestLogOfTheStart(t *testing.T) {
	b := newBench(t)
	for i := range 20 {
		b.put(doc{name: fmt.Sprintf("n%d", i), generation: 1, keys: []keystore.VerificationKey{key(t, 3), key(t, 2)}})
	}
	b.poll()
	got := b.fields("ready: every key set of a complete listing has been read")
	if got["issuers"] != int64(20) || got["key_sets"] != int64(20) || got["keys"] != int64(40) || got["unserved"] != int64(0) {
		t.Errorf("%v", got)
	}
	b.saidOnce("info ready")
}
