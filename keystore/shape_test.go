package keystore

import (
	"encoding/json"
	"testing"

	"github.com/keypost/keypost/keystore/manifest"
)

// JSON may have a number, and text, that YAML has in two readings: what is read is written so that it can be read again.
func TestSortedYAMLCanBeRead(t *testing.T) {
	for name, value := range map[string]any{"a large number": 1e21, "words": []string{"on", "y", "1e3", "<<", "x,\nno\n"}, "names": map[string]int{"<<": 1, "no": 2, "010": 3}} {
		d := tree(t, newSet(t, Policy{}))
		specOf(d)["fromTheFuture"] = value
		want, err := parseTree(d)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := Parse("prod-a", must(manifest.SortedYAML(must(json.Marshal(d)))))
		if err != nil || got.Digest() != want.Digest() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What cannot be read again is not written.
func TestEncodeRefusesWhatYAMLHasNot(t *testing.T) {
	for _, why := range []string{"a\x7fb", "a\uFFFEb"} {
		s, err := newSet(t, Policy{}).SetPolicy(Change{At: t0, Why: why}, Policy{RelyingParties: []string{"aws"}})
		if err == nil {
			_, err = Encode(s)
		}
		if err == nil {
			t.Errorf("%q is written", why)
		}
	}
}
