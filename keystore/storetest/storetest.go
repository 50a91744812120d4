// Package storetest is the suite that every backend passes: [Run] holds a [keystore.Backend], and the [keystore.Store]
// on top of it, to their contracts. [Memory] is a backend that fails on demand, for tests of what uses stores. Only tests
// link this package.
package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
)

// Run holds the backends that newBackend makes to the contract of [keystore.Backend], of [keystore.Watcher] if they are
// one, and of the [keystore.Store] on top. Every call of newBackend returns an empty backend that no other test sees.
// The cases named in except do not run: a fake need not be like its model in everything.
func Run(t *testing.T, newBackend func(t *testing.T) keystore.Backend, except ...string) {
	for _, c := range []struct {
		name string
		test func(x *suite)
	}{
		{"an empty store lists nothing and finds nothing", emptyStore},
		{"what was created is loaded and listed", created},
		{"a document comes back byte for byte", withBothWriters(comesBack)},
		{"a large document comes back byte for byte", largeComesBack},
		{"every field comes back as it was", everyField},
		{"documents of other versions come back byte for byte", otherVersions},
		{"what a caller does to its bytes afterwards changes nothing", bytesAreCopied},
		{"writing needs the stored revision", withBothWriters(staleRefused)},
		{"a key set goes under its own name only", otherName},
		{"a revision stays while nothing changes and is new after every change", revisions},
		{"every DNS label is a name", validNames},
		{"other names find nothing", invalidNames},
		{"a listing is complete", listMany},
		{"nothing happens once the context is done", cancelled},
		{"one of many writers at once wins", withBothWriters(oneWinner)},
		{"no update is lost", noLostUpdate},
		{"a reader sees the old or the new key set and time never runs backwards", neverAMix},
		{"a listing is complete while everything changes", listWhileChanging},
		{"an accept leads back from a generation out of reach", leadBack},
		{"a watch reports changes and ends with its context", watch},
	} {
		if !slices.Contains(except, c.name) {
			t.Run(c.name, func(t *testing.T) { c.test(&suite{t, keystore.NewStore(newBackend(t))}) })
		}
	}
}

func emptyStore(x *suite) {
	if all := x.list(); len(all) != 0 {
		x.Errorf("List = %v, want nothing", all)
	}
	x.wantAbsent("prod-a")
}

func created(x *suite) {
	s := KeySet(x, "prod-a")
	rev := x.replace("", s)
	if rev == "" {
		x.Error("Replace returned the revision of absence")
	}
	x.wantStored(rev, s)
	if all := x.list(); len(all) != 1 || all["prod-a"] != rev {
		x.Errorf("List = %v, want prod-a at revision %q", all, rev)
	}
	if err := keystore.Create(x.Context(), x.Store, KeySet(x, "prod-a")); !errors.Is(err, keystore.ErrConflict) {
		x.Errorf("Create = %v, want ErrConflict", err)
	}
	x.wantStored(rev, s)
	x.wantAbsent("prod-b")
}

func otherName(x *suite) {
	if _, err := x.create("prod-b", []byte(Text(x, KeySet(x, "prod-a")))); err == nil {
		x.Error("Write stored key set prod-a under prod-b")
	}
	x.wantAbsent("prod-a")
	x.wantAbsent("prod-b")
}

// revisions changes as fast as it can, and to documents of equal length: a store that derives revisions from sizes
// and coarse clocks gives itself away.
func revisions(x *suite) {
	rev := x.replace("", KeySet(x, "prod-a"))
	other := x.replace("", KeySet(x, "prod-b"))
	seen := map[keystore.Revision]bool{rev: true}
	for i := range 12 {
		x.update("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.SetPolicy(keystore.Change{At: Time(0)}, keystore.Policy{RelyingParties: []string{fmt.Sprintf("rp-%02d", i)}})
		})
		_, rev := x.load("prod-a")
		if seen[rev] {
			x.Fatalf("change %d has a revision that was there before", i)
		}
		seen[rev] = true
		if all := x.list(); all["prod-a"] != rev || all["prod-b"] != other {
			x.Fatalf("after change %d of prod-a, List = %v, want prod-a %q and prod-b %q", i, all, rev, other)
		}
	}
}

func validNames(x *suite) {
	names := []keystore.Name{"a", "0", "1e3", "null", "true", "a--b", "xn--80ak6aa92e", "lock", keystore.Name(strings.Repeat("a", 63))}
	for _, n := range names {
		s := KeySet(x, n)
		x.wantStored(x.replace("", s), s)
	}
	if all := x.list(); len(all) != len(names) {
		x.Errorf("List = %v, want %v", all, names)
	}
}

func invalidNames(x *suite) {
	x.replace("", KeySet(x, "a"))
	for _, n := range []keystore.Name{"b", "aa", "", ".", "..", "../a", "./a", "a/", "/a", "a/../a", "A", "a.yaml", "a\x00", "a\n", "*", "%61", "a b", "é", keystore.Name(strings.Repeat("a", 64)), keystore.Name(strings.Repeat("a", 5000))} {
		if _, rev, err := x.Load(x.Context(), n); !errors.Is(err, keystore.ErrNotFound) || rev != "" {
			x.Errorf("Load(%.80q) = revision %q, %.300v; want none and ErrNotFound", n, rev, err)
		}
		if doc, rev, err := x.Backend().Get(x.Context(), n); !errors.Is(err, keystore.ErrNotFound) || rev != "" || doc != nil {
			x.Errorf("Get(%.80q) = %q, revision %q, %.300v; want ErrNotFound", n, doc, rev, err)
		}
		if _, err := x.create(n, []byte(Text(x, KeySet(x, "a")))); err == nil {
			x.Errorf("Write(%q) stored something", n)
		}
	}
	if all := x.list(); len(all) != 1 {
		x.Errorf("List = %v, want a", all)
	}
}

func listMany(x *suite) {
	want := map[keystore.Name]keystore.Revision{}
	key := Key(x)
	for i := range 100 {
		n := keystore.Name(fmt.Sprintf("prod-%03d", i))
		want[n] = x.replace("", KeySet(x, n, key))
	}
	x.wantListed(want)
}

func (x *suite) wantListed(want map[keystore.Name]keystore.Revision) {
	x.Helper()
	all := x.list()
	if len(all) != len(want) {
		x.Errorf("List has %d names, want %d", len(all), len(want))
	}
	for n, rev := range want {
		if all[n] != rev {
			x.Errorf("List has %s at revision %q, want %q", n, all[n], rev)
		}
	}
}
