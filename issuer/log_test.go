package issuer

import (
	"fmt"
	"reflect"
	"strings"
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

// The line that tells of a change says which keys are trusted from now on, who did it and why, also when this process
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
		"bob\u202e\n", "it \x1b[31mleaked "+strings.Repeat("x", 1000))
	b.poll()
	got = b.fields("key set published")
	if got["previous_generation"] != int64(1) || got["generation"] != int64(3) || !reflect.DeepEqual(got["kids_added"], []any{string(key(t, 2).ID())}) ||
		!reflect.DeepEqual(got["kids_removed"], []any{string(key(t, 3).ID())}) {
		t.Errorf("two generations at once: %v", got)
	}
	changes, _ := got["changes"].([]any)
	if len(changes) != 2 {
		t.Fatalf("changes %v, want those of both generations", got["changes"])
	}
	if one := changes[0].(map[string]any); one["by"] != "alice" || one["why"] != "rotation" || one["what"] == "" {
		t.Errorf("the first change: %v", one)
	}
	two := changes[1].(map[string]any)
	why := two["why"].(string)
	if two["by"] != "bob?" || !strings.HasPrefix(why, "it ?[31mleaked x") || len([]rune(why)) != maxText+1 || two["forced"] != true {
		t.Errorf("the second change: %q", two)
	}
}

// What a writer puts into a history does not fill the log.
func TestLogIsBounded(t *testing.T) {
	var history []keystore.Event
	for i := range 50 {
		history = append(history, keystore.Event{At: storetest.Time(time.Duration(i)), What: fmt.Sprint(i)})
	}
	for _, tc := range []struct {
		last uint64
		want int
	}{{0, maxEvents}, {eventDigest(history[49]), 0}, {eventDigest(history[47]), 2}, {eventDigest(history[3]), maxEvents}} {
		if got := newEvents(history, tc.last); len(got) != tc.want {
			t.Errorf("%d lines, want %d", len(got), tc.want)
		}
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
