// Package storetest is the suite that every backend passes: [Run] holds a [keystore.Backend], and the [keystore.Store]
// on top of it, to their contracts. [Memory] is a backend that fails on demand, for tests of what uses stores. Only tests
// link this package.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
)

// Run holds the backends that newBackend makes to the contract of [keystore.Backend], of [keystore.Watcher] if they are
// one, and of the [keystore.Store] on top. Every call of newBackend returns an empty backend that no other test sees.
func Run(t *testing.T, newBackend func(t *testing.T) keystore.Backend) {
	RunBackend(t, newBackend)
	for _, c := range []struct {
		name string
		test func(t *testing.T, st *keystore.Store)
	}{
		{"an empty store lists nothing and finds nothing", emptyStore},
		{"what was created is loaded and listed", created},
		{"creating what exists is a conflict", createTwice},
		{"replacing needs the stored revision", replaceStale},
		{"replacing what does not exist is a conflict", replaceAbsent},
		{"a key set goes under its own name only", otherName},
		{"a revision stays while nothing changes and is new after every change", revisions},
		{"every field comes back as it was", roundTrip},
		{"a large key set comes back", roundTripLarge},
		{"every DNS label is a name", validNames},
		{"other names find nothing", invalidNames},
		{"a listing is complete", listMany},
		{"nothing happens once the context is done", cancelled},
		{"one of many creators wins", oneCreator},
		{"one of many writers with the same revision wins", oneWriter},
		{"no update is lost", noLostUpdate},
		{"a reader sees the old or the new key set and time never runs backwards", neverAMix},
		{"a listing is complete while everything changes", listWhileChanging},
		{"an accept leads back from a generation out of reach", leadBack},
		{"a full key set can be repaired", fullRepaired},
		{"a watch reports changes and ends with its context", watch},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, keystore.NewStore(newBackend(t))) })
	}
}

func emptyStore(t *testing.T, st *keystore.Store) {
	if all := list(t, st); len(all) != 0 {
		t.Errorf("List = %v, want nothing", all)
	}
	wantAbsent(t, st, "prod-a")
}

func created(t *testing.T, st *keystore.Store) {
	s := KeySet(t, "prod-a")
	rev := replace(t, st, "", s)
	if rev == "" {
		t.Error("Replace returned the revision of absence")
	}
	wantStored(t, st, rev, s)
	if all := list(t, st); len(all) != 1 || all["prod-a"] != rev {
		t.Errorf("List = %v, want prod-a at revision %q", all, rev)
	}
	wantAbsent(t, st, "prod-b")
}

func createTwice(t *testing.T, st *keystore.Store) {
	first := KeySet(t, "prod-a")
	rev := replace(t, st, "", first)
	wantConflict(t, st, "", KeySet(t, "prod-a"))
	wantStored(t, st, rev, first)
	if err := keystore.Create(t.Context(), st, KeySet(t, "prod-a")); !errors.Is(err, keystore.ErrConflict) {
		t.Errorf("Create = %v, want ErrConflict", err)
	}
}

func replaceStale(t *testing.T, st *keystore.Store) {
	first := replace(t, st, "", KeySet(t, "prod-a"))
	second := update(t, st, "prod-a", Mark("second"))
	_, rev := load(t, st, "prod-a")
	if rev == first {
		t.Fatalf("the revision is still %q after a change", rev)
	}
	wantConflict(t, st, first, next(t, second, "third"))
	wantConflict(t, st, "", next(t, second, "third"))
	wantConflict(t, st, rev+"x", next(t, second, "third"))
	wantStored(t, st, rev, second)
	third := next(t, second, "third")
	wantStored(t, st, replace(t, st, rev, third), third)
}

func replaceAbsent(t *testing.T, st *keystore.Store) {
	rev := replace(t, st, "", KeySet(t, "prod-a"))
	wantConflict(t, st, rev, KeySet(t, "prod-b"))
	wantConflict(t, st, "nonsense", KeySet(t, "prod-b"))
	wantAbsent(t, st, "prod-b")
}

// write creates a document as it is.
func write(t *testing.T, st *keystore.Store, n keystore.Name, data []byte) (keystore.Revision, error) {
	t.Helper()
	_, doc, err := keystore.ParseDocument(n, data)
	if err != nil {
		return "", err
	}
	return st.Write(t.Context(), doc, "", 0)
}

func otherName(t *testing.T, st *keystore.Store) {
	if _, err := write(t, st, "prod-b", []byte(Text(t, KeySet(t, "prod-a")))); err == nil {
		t.Error("Write stored key set prod-a under prod-b")
	}
	wantAbsent(t, st, "prod-a")
	wantAbsent(t, st, "prod-b")
}

// revisions changes as fast as it can, and to documents of equal length: a store that derives revisions from sizes
// and coarse clocks gives itself away.
func revisions(t *testing.T, st *keystore.Store) {
	rev := replace(t, st, "", KeySet(t, "prod-a"))
	other := replace(t, st, "", KeySet(t, "prod-b"))
	seen := map[keystore.Revision]bool{rev: true}
	for i := range 12 {
		update(t, st, "prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.SetPolicy(keystore.Change{At: Time(0)}, keystore.Policy{RelyingParties: []string{fmt.Sprintf("rp-%02d", i)}})
		})
		_, rev := load(t, st, "prod-a")
		if seen[rev] {
			t.Fatalf("change %d has a revision that was there before", i)
		}
		seen[rev] = true
		if all := list(t, st); all["prod-a"] != rev || all["prod-b"] != other {
			t.Fatalf("after change %d of prod-a, List = %v, want prod-a %q and prod-b %q", i, all, rev, other)
		}
	}
}

func roundTrip(t *testing.T, st *keystore.Store) {
	s := Full(t, "full")
	rev := replace(t, st, "", s)
	wantStored(t, st, rev, s)
	back, _ := load(t, st, "full")
	if !back.Gone()[0].At.Equal(time.Date(2025, 12, 31, 23, 59, 59, 999999999, time.UTC)) {
		t.Errorf("a time lost its precision: %v", back.Gone()[0].At)
	}
	withdrawn := update(t, st, "full", func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Withdraw(Change(365 * 24 * time.Hour))
	})
	if back, _ := load(t, st, "full"); !back.Withdrawn() || !back.WithdrawnAt().Equal(withdrawn.WithdrawnAt()) {
		t.Errorf("the tombstone is %v, want %v", back.WithdrawnAt(), withdrawn.WithdrawnAt())
	}
}

func roundTripLarge(t *testing.T, st *keystore.Store) {
	s := large(t, "large")
	rev := replace(t, st, "", s)
	wantStored(t, st, rev, s)
	update(t, st, "large", Mark("x"))
}

func validNames(t *testing.T, st *keystore.Store) {
	names := []keystore.Name{"a", "0", "1e3", "null", "true", "a--b", "xn--80ak6aa92e", "lock", keystore.Name(strings.Repeat("a", 63))}
	for _, n := range names {
		s := KeySet(t, n)
		wantStored(t, st, replace(t, st, "", s), s)
	}
	if all := list(t, st); len(all) != len(names) {
		t.Errorf("List = %v, want %v", all, names)
	}
}

func invalidNames(t *testing.T, st *keystore.Store) {
	replace(t, st, "", KeySet(t, "a"))
	for _, n := range []keystore.Name{"", ".", "..", "../a", "./a", "a/", "/a", "a/../a", "A", "a.yaml", "a\x00", "a\n", "*", "%61", "a b", "é", keystore.Name(strings.Repeat("a", 64)), keystore.Name(strings.Repeat("a", 5000))} {
		if _, rev, err := st.Load(t.Context(), n); !errors.Is(err, keystore.ErrNotFound) || rev != "" {
			t.Errorf("Load(%.80q) = revision %q, %.300v; want none and ErrNotFound", n, rev, err)
		}
		if _, rev, err := st.Backend().Get(t.Context(), n); !errors.Is(err, keystore.ErrNotFound) || rev != "" {
			t.Errorf("Get(%.80q) = revision %q, %.300v; want none and ErrNotFound", n, rev, err)
		}
		if _, err := write(t, st, n, []byte(Text(t, KeySet(t, "a")))); err == nil {
			t.Errorf("Write(%q) stored something", n)
		}
	}
	if all := list(t, st); len(all) != 1 {
		t.Errorf("List = %v, want a", all)
	}
}

func listMany(t *testing.T, st *keystore.Store) {
	want := map[keystore.Name]keystore.Revision{}
	key := Key(t)
	for i := range 100 {
		n := keystore.Name(fmt.Sprintf("prod-%03d", i))
		want[n] = replace(t, st, "", KeySet(t, n, key))
	}
	wantListed(t, st, want)
}

func wantListed(t *testing.T, st *keystore.Store, want map[keystore.Name]keystore.Revision) {
	t.Helper()
	all := list(t, st)
	if len(all) != len(want) {
		t.Errorf("List has %d names, want %d", len(all), len(want))
	}
	for n, rev := range want {
		if all[n] != rev {
			t.Errorf("List has %s at revision %q, want %q", n, all[n], rev)
		}
	}
}

func cancelled(t *testing.T, st *keystore.Store) {
	rev := replace(t, st, "", KeySet(t, "prod-a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := st.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("List = %v, want context.Canceled", err)
	}
	if _, _, err := st.Load(ctx, "prod-a"); !errors.Is(err, context.Canceled) {
		t.Errorf("Load = %v, want context.Canceled", err)
	}
	if _, err := st.Replace(ctx, "", KeySet(t, "prod-b")); !errors.Is(err, context.Canceled) {
		t.Errorf("Replace = %v, want context.Canceled", err)
	}
	if _, err := keystore.Update(ctx, st, "prod-a", Mark("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Update = %v, want context.Canceled", err)
	}
	wantListed(t, st, map[keystore.Name]keystore.Revision{"prod-a": rev})
}
