package keystore

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
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
		got, err := Parse("prod-a", SortedYAML(must(json.Marshal(d))))
		if err != nil || got.Digest() != want.Digest() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What who may write one key set of a Kubernetes store can make of it neither takes the memory of all nor ends a reading of all: it is
// a document that is broken, or one with a member that this version does not know.
func TestSortedYAMLOfTenants(t *testing.T) {
	for name, text := range map[string]string{"nested": strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000), "DEL": "\"a\x7fb\"", "U+FFFE": "\"a\uFFFEb\""} {
		if got := SortedYAML([]byte(text)); string(got) != text {
			t.Errorf("%s: %d bytes of %d", name, len(got), len(text))
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
