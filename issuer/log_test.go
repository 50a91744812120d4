package issuer

import (
	"fmt"
	"reflect"
	"regexp"
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

// A version that was not made from the served one, or whose history is not whole, is served all the same: the line that tells of it
// says so, and the metric and the report do until it is settled.
func TestHistoryThatIsNotWhole(t *testing.T) {
	b := newBench(t)
	b.put(doc{name: "d", generation: 1})
	b.poll()
	first := storetest.KeySet(t, "a", key(t, 3)).LinkedTo(keystore.KeySet{})
	if err := keystore.Create(t.Context(), b.store.Store, first); err != nil {
		t.Fatal(err)
	}
	b.poll()
	descent := b.fields("key set published")["descent"]
	if m := first.Chained().Head(); descent != fmt.Sprintf("1:%s", m.Digest) {
		t.Errorf("descent %v of %v", descent, m)
	}
	broken := func() (metric int, report string) {
		t.Helper()
		for _, s := range b.everyNamed()[keySetHistoryDesc] {
			metric += int(s.value)
		}
		return metric, b.Report().Issuers[0].History
	}
	update := func() {
		t.Helper()
		if _, err := keystore.Update(t.Context(), b.store.Store, "a", storetest.Mark("x")); err != nil {
			t.Fatal(err)
		}
		b.poll()
	}
	update()
	const message = "the history of a key set is not whole; it is served all the same"
	if n, report := broken(); n != 0 || report != "" || b.logs.FilterMessage(message).Len() > 0 {
		t.Fatalf("a whole history: %d, %s", n, report)
	}
	// A sibling of the served version, made from an edited first one.
	other := storetest.NewMemStore(t)
	text := strings.Replace(storetest.Text(t, first), "by: storetest", "by: mallory", 1)
	other.Set("a", []byte(text))
	for range 2 {
		if _, err := keystore.Update(t.Context(), other.Store, "a", storetest.Mark("y")); err != nil {
			t.Fatal(err)
		}
	}
	doc, _, err := other.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	b.store.Set("a", doc)
	b.poll()
	got := b.fields(message)
	if what, _ := got["message"].(string); got["generation"] != int64(3) || !strings.Contains(what, "was made from") || b.fields("key set published")["generation"] != int64(3) {
		t.Errorf("%v", got)
	}
	if n, report := broken(); n != 1 || report == "" {
		t.Errorf("metric %d, report %q", n, report)
	}
	if n := b.logs.FilterMessage(message).Len(); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// A version without a digest, after one that had them, is no version from before digests were recorded; nor is the next one.
func TestHistoryThatHasLostItsDigests(t *testing.T) {
	b := newBench(t)
	first := storetest.KeySet(t, "a", key(t, 3))
	before := regexp.MustCompile(`(?m)^ +keys: .+\n`).ReplaceAllString(storetest.Text(t, first), "") // older programs left no such member in a line
	unrecorded := func(generation int) {
		t.Helper()
		b.store.Set("a", []byte(strings.Replace(before, "generation: 1", fmt.Sprintf("generation: %d", generation), 1)))
		b.poll()
	}
	broken := func() string { return b.Report().Issuers[0].History }
	unrecorded(1)
	unrecorded(2)
	if said := broken(); said != "" {
		t.Fatalf("no version had digests: %s", said)
	}
	update := func() {
		t.Helper()
		if _, err := keystore.Update(t.Context(), b.store.Store, "a", storetest.Mark("x")); err != nil {
			t.Fatal(err)
		}
		b.poll()
	}
	update()
	if said := broken(); said != "" {
		t.Fatalf("digests begin: %s", said)
	}
	for generation := 4; generation < 6; generation++ {
		unrecorded(generation)
		if said := broken(); !strings.Contains(said, "digests") {
			t.Errorf("generation %d: they are gone: %q", generation, said)
		}
	}
	update()
	if said := broken(); said != "" {
		t.Errorf("they begin anew: %s", said)
	}
}

// A member that this keypost does not know keeps nobody from seeing that history is broken, and settles nothing.
func TestHistoryWithMembersThatAreNotKnown(t *testing.T) {
	b := newBench(t)
	first := storetest.KeySet(t, "a", key(t, 3)).LinkedTo(keystore.KeySet{})
	text := storetest.Text(t, first)
	put := func(edit ...string) string {
		t.Helper()
		b.store.Set("a", []byte(strings.NewReplacer(edit...).Replace(text)))
		b.poll()
		if r := b.Report().Issuers[0]; r.Rejected != "" {
			t.Fatalf("%+v", r)
		}
		return b.Report().Issuers[0].History
	}
	if said := put(); said != "" {
		t.Fatal(said)
	}
	if said := put("spec:\n  generation: 1", "spec:\n  note: x\n  generation: 2"); !strings.Contains(said, "generation 2 has no line of history") {
		t.Errorf("a generation without a line: %q", said)
	}
	if said := put("spec:\n  generation: 1", "spec:\n  note: x\n  generation: 3", "    content: ", "    x: q\n    content: "); !strings.Contains(said, "generation 3 has no line of history") {
		t.Errorf("with such a member in a line: %q", said)
	}
	// One that could be whole, if its content were known.
	if said := put("spec:\n  generation: 1", "spec:\n  note: x\n  generation: 4", "    generation: 1", "    generation: 4\n    previous: p"); !strings.Contains(said, "generation 3 has no line of history") {
		t.Errorf("nothing shows that it is whole again: %q", said)
	}
	if b.fields("key set published")["descent"] == nil {
		t.Error("a version with a member that is not known is named by the digest that its line has")
	}
}

// Lines that were put in front or dropped, and then an honest change: the next version does not descend from the served one.
func TestHistoryWithOtherLines(t *testing.T) {
	for name, edit := range map[string]func(text string) string{
		"in front": func(text string) string {
			return strings.Replace(text, "  history:\n", "  history:\n  - at: \"2025-01-01T00:00:00Z\"\n    by: alice\n    what: approve\n", 1)
		},
		"dropped": func(text string) string {
			return regexp.MustCompile(`(?s)  history:\n  - at:.*?\n  - at:`).ReplaceAllString(text, "  history:\n  - at:")
		},
	} {
		b := newBench(t)
		s := storetest.KeySet(t, "a", key(t, 3)).LinkedTo(keystore.KeySet{})
		if err := keystore.Create(t.Context(), b.store.Store, s); err != nil {
			t.Fatal(err)
		}
		update := func() (s keystore.KeySet) {
			t.Helper()
			s, err := keystore.Update(t.Context(), b.store.Store, "a", storetest.Mark("x"))
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		honest := storetest.Text(t, update())
		b.poll()
		forged := edit(honest)
		if forged == honest {
			t.Fatalf("%s: nothing was edited in\n%s", name, honest)
		}
		b.store.Set("a", []byte(forged))
		update()
		b.poll()
		if said := b.Report().Issuers[0].History; !strings.Contains(said, "was made from") {
			t.Errorf("%s: %q", name, said)
		}
	}
}
