package federation

import (
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/gcp/rest"
)

// Whatever a description says, its new owner takes it afterwards, no other installation does, and Google has room for it. What it said stays
// as far as there is room, but for whose it was.
func TestDescribe(t *testing.T) {
	t.Parallel()
	for _, o := range []Owner{OwnedBy("demo"), OwnedByKeypost(), {}} {
		for _, said := range []string{"", "é", Made, Made + "; installation other", "; installation other", "x; installation other; installation other"} {
			for n := range 300 {
				text := rest.Cut(said+strings.Repeat("x", n), 256) // as long as any that Google shows
				got := o.Describe(text)
				if len(got) > 256 || !o.Takes(got) || o.Describe(got) != got || OwnedBy("other").Owns(got) {
					t.Fatalf("%+v: of %q it makes %q", o, text, got)
				}
				kept := text
				if !o.Owns(text) && o.suffix != "" {
					kept = unmarked(text)
				}
				if len(kept) > 250 && len(got) != 256 && got != kept || o.suffix != "" && len(kept)+len(o.suffix) <= 256 && got != kept+o.suffix {
					t.Fatalf("%+v: of %q it keeps %q", o, text, got)
				}
			}
		}
	}
}

// Who adopts a thing is put in the place of whose it was, so that the description says one owner, and there is always room for the next.
func TestDescribeSaysOneOwner(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		said string
		by   Owner
		want string
	}{
		{Made + "; installation other", OwnedBy("demo"), Made + "; installation demo"},
		{Made + "; keypost, for a workload", OwnedBy("demo"), Made + "; installation demo"},
		{Made + "; installation other", OwnedByKeypost(), Made + "; keypost, for a workload"},
		{"mine; installation of pipes", OwnedBy("demo"), "mine, of of pipes; installation demo"},
	} {
		got := tt.by.Describe(tt.said)
		if _, of := markOf(got); got != tt.want || of != tt.by.name {
			t.Errorf("%q of %q is %q, of installation %q; want %q", tt.said, tt.by.suffix, got, of, tt.want)
		}
	}
}

// A provider has the keys of the key set that its description names, and else of that of the installation's name. Whatever the description
// said before, and however it is cut, it names no other afterwards, and stays the installation's.
func TestMarked(t *testing.T) {
	t.Parallel()
	o := OwnedBy("demo")
	for _, said := range []string{"", "é", Made, Made + "; keys of evil", "; keys of evil; keys of evil", Made + "; keys of evil; installation other", "; keys of evil; installation demo",
		Made + "; keys of other; installation demo", Made + "; installation demo"} {
		for _, keySet := range []string{"", "demo", "moved", strings.Repeat("m", 63)} {
			for n := range 300 {
				text := o.Describe(rest.Cut(strings.Repeat("x", n)+said, 256))
				got := o.marked(text, keySet)
				holder := keySet
				if holder == "" {
					holder = "demo"
				}
				if len(got) > 256 || !o.Owns(got) || o.marked(got, keySet) != got || !o.Owns(o.marked(o.Describe(Made), keySet)) {
					t.Fatalf("of %q it makes %q", text, got)
				}
				for _, name := range []string{"demo", "moved", "evil", "other", "xevil", strings.Repeat("m", 63)} {
					if got := OwnedBy(name).holds("second", got); got != (name == holder) {
						t.Fatalf("%q for %q: that %s holds its keys is %t", text, keySet, name, got)
					}
				}
				if strings.Contains(got, "; keys of evil; installation demo") {
					t.Fatalf("of %q it makes %q", text, got)
				}
			}
		}
	}
	for text, want := range map[string]bool{Made: true, Made + "; keys of demo": true, "x; keys of demo": false, "; keys of demo; installation other": true} {
		if o.holds("demo", text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}
