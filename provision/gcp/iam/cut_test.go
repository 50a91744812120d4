package iam

import (
	"strings"
	"testing"
)

// Limits are of bytes, and what is cut stays text: half a letter becomes U+FFFD in JSON, which is longer.
func TestCut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		s     string
		limit int
		want  string
	}{{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aéé", 4, "aé"}, {"aéé", 5, "aéé"}} {
		if got := cut(tt.s, tt.limit); got != tt.want {
			t.Errorf("%q cut to %d bytes is %q, want %q", tt.s, tt.limit, got, tt.want)
		}
	}
}

// By these names ccoctl finds what it has made, and Google takes no longer ones.
func TestNamesAreCutAsCcoctlsAre(t *testing.T) {
	t.Parallel()
	p, r := strings.Repeat("p", 60), strings.Repeat("r", 60)
	for _, tt := range []struct{ got, want string }{
		{displayName(p, r), p[:50] + "-" + r[:49]}, {displayName(p[:50], r[:49]), p[:50] + "-" + r[:49]},
		{roleTitle(p, r), p[:50] + "-" + r[:49]}, {roleTitle(p[:50], r[:49]), p[:50] + "-" + r[:49]},
		{Account{Request: r}.RoleID(p), p[:32] + "_" + r[:31]}, {Account{Request: "openshift-a.b"}.RoleID("my-project"), "myproject_openshiftab"},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
}

// Whatever a description says, its new owner takes it afterwards, no other installation does, and Google has room for it. What it said stays
// as far as there is room, but for whose it was.
func TestDescribe(t *testing.T) {
	t.Parallel()
	for _, o := range []Owner{OwnedBy("demo"), OwnedByKeypost(), {}} {
		for _, said := range []string{"", "é", made, made + "; installation other", "; installation other", "x; installation other; installation other"} {
			for n := range 300 {
				text := cut(said+strings.Repeat("x", n), 256) // as long as any that Google shows
				got := o.describe(text)
				if len(got) > 256 || !o.takes(got) || o.describe(got) != got || OwnedBy("other").owns(got) {
					t.Fatalf("%+v: of %q it makes %q", o, text, got)
				}
				kept := text
				if !o.owns(text) && o.suffix != "" {
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
		{made + "; installation other", OwnedBy("demo"), made + "; installation demo"},
		{made + "; keypost, for a workload", OwnedBy("demo"), made + "; installation demo"},
		{made + "; installation other", OwnedByKeypost(), made + "; keypost, for a workload"},
		{"mine; installation of pipes", OwnedBy("demo"), "mine, of of pipes; installation demo"},
	} {
		got := tt.by.describe(tt.said)
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
	for _, said := range []string{"", "é", made, made + "; keys of evil", "; keys of evil; keys of evil", made + "; keys of evil; installation other", "; keys of evil; installation demo",
		made + "; keys of other; installation demo", made + "; installation demo"} {
		for _, keySet := range []string{"", "demo", "moved", strings.Repeat("m", 63)} {
			for n := range 300 {
				text := o.describe(cut(strings.Repeat("x", n)+said, 256))
				got := o.marked(text, keySet)
				holder := keySet
				if holder == "" {
					holder = "demo"
				}
				if len(got) > 256 || !o.owns(got) || o.marked(got, keySet) != got || !o.owns(o.marked(o.describe(made), keySet)) {
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
	for text, want := range map[string]bool{made: true, made + "; keys of demo": true, "x; keys of demo": false, "; keys of demo; installation other": true} {
		if o.holds("demo", text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}
