package keystore

import (
	"encoding/json"
	"errors"
	"strings"
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

// Nested members, as who may write one key set of a Kubernetes store can make them, do not become megabytes of indentation.
func TestSortedYAMLOfNestedMembers(t *testing.T) {
	nested := strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)
	if got, err := manifest.SortedYAML([]byte(nested)); err != nil || string(got) != nested {
		t.Errorf("%d bytes of %d, %v", len(got), len(nested), err)
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

func TestPrivateMaterialInCommentsIsRefused(t *testing.T) {
	t.Parallel()
	doc := encode(t, newSet(t, Policy{}))
	for _, form := range []string{"OpenPGP", "SSH.COM", "PuTTY"} { // PEM is among the broken documents
		if _, err := Parse("prod-a", []byte(doc+"\n# "+strings.ReplaceAll(secrets()[form], "\n", "\n# ")+"\n")); !errors.Is(err, ErrPrivateKey) {
			t.Errorf("%s in a comment: error %v", form, err)
		}
	}
	if _, err := Parse("prod-a", []byte("# the private key is in the safe; its kid: see below, kty: EC\n"+doc)); err != nil {
		t.Errorf("a comment that speaks of keys: %v", err)
	}
}
