package catalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// storeWith returns a store with the given key sets and, under the name "broken", one document that cannot be read.
func storeWith(t *testing.T, broken bool, sets ...keystore.KeySet) *keystore.Store {
	t.Helper()
	b := newTestStore()
	for _, s := range sets {
		b.sets[s.Name()] = s
	}
	if broken {
		b.trouble["broken"] = &keystore.BrokenError{Name: "broken", Reason: keystore.ReasonBroken, Err: errors.New("it is damaged")}
	}
	return keystore.NewStore(b)
}

func newSet(t *testing.T, name keystore.Name, urls ...string) keystore.KeySet {
	t.Helper()
	s, err := keystore.New(storetest.Change(0), testSpec(t, name, urls...))
	check(t, err)
	return s
}

func withdrawn(t *testing.T, s keystore.KeySet) keystore.KeySet {
	t.Helper()
	c := storetest.Change(1)
	c.Why = "no longer needed"
	s, err := s.Withdraw(c)
	check(t, err)
	return s
}

func TestFind(t *testing.T) {
	const url = "https://oidc.example.com/a"
	for name, tt := range map[string]struct {
		broken bool
		sets   []keystore.KeySet
		issuer string
		want   keystore.Name
		err    func(error) bool
	}{
		"by name": {sets: []keystore.KeySet{newSet(t, "a", url)}, issuer: "a", want: "a"},
		"by URL":  {sets: []keystore.KeySet{newSet(t, "a", url), newSet(t, "b", "https://b.example.com")}, issuer: url, want: "a"},
		"in use before withdrawn": {
			sets:   []keystore.KeySet{withdrawn(t, newSet(t, "a", url)), newSet(t, "b", url)},
			issuer: url, want: "b",
		},
		"withdrawn": {sets: []keystore.KeySet{withdrawn(t, newSet(t, "a", url))}, issuer: url, want: "a"},
		"two in use": {
			sets: []keystore.KeySet{newSet(t, "b", url), newSet(t, "a", url)}, issuer: url,
			err: func(err error) bool {
				e, is := errors.AsType[*Error](err)
				return is && e.Kind == Ambiguous && slices.Equal(e.Names, []keystore.Name{"a", "b"})
			},
		},
		"no such URL": {
			sets: []keystore.KeySet{newSet(t, "a", url)}, issuer: url + "/",
			err: func(err error) bool { return KindOf(err) == NoKeySet },
		},
		"no readable one": {
			broken: true, issuer: url,
			err: func(err error) bool { return KindOf(err) == MayBeOne },
		},
		"no such name": {issuer: "a", err: func(err error) bool { return errors.Is(err, keystore.ErrNotFound) }},
		"no name": {issuer: "oidc.example.com/a", err: func(err error) bool {
			e, is := errors.AsType[*Error](err)
			return is && e.Kind == BadName && e.Names[0] == "oidc.example.com/a"
		}},
	} {
		s, err := Find(t.Context(), storeWith(t, tt.broken, tt.sets...), tt.issuer)
		if tt.err == nil && (err != nil || s.Name() != tt.want) {
			t.Errorf("%s: %q, %v; want %q", name, s.Name(), err, tt.want)
		}
		if tt.err != nil && (err == nil || !tt.err(err)) {
			t.Errorf("%s: %q, %v", name, s.Name(), err)
		}
	}
}

// unlisted is a store of somebody who may read single key sets and list none.
type unlisted struct{ keystore.Reader }

var errForbidden = errors.New("cannot list keysets")

func (unlisted) List(context.Context) (map[keystore.Name]keystore.Revision, error) {
	return nil, errForbidden
}

// Somebody who may read one key set of many gives its name.
func TestFindWithoutAList(t *testing.T) {
	st := unlisted{storeWith(t, false, newSet(t, "a", "https://oidc.example.com/a"))}
	if s, err := Find(t.Context(), st, "a"); err != nil || s.Name() != "a" {
		t.Errorf("%q, %v", s.Name(), err)
	}
	if _, err := Find(t.Context(), st, "https://oidc.example.com/a"); !errors.Is(err, errForbidden) || !strings.Contains(err.Error(), "by its NAME it is found without a list") {
		t.Error(err)
	}
}

func TestMatch(t *testing.T) {
	ids := []keystore.KeyID{"short", "abcdefgh-1", "abcdefgh-2", "ijklmnop-1", "ijklmnop-12"}
	for typed, want := range map[string]struct {
		id   keystore.KeyID
		kind Kind
	}{
		"short":       {id: "short"},
		"ijklmnop-1":  {id: "ijklmnop-1"}, // the whole of one ID, though another one begins with it
		"abcdefgh-2":  {id: "abcdefgh-2"},
		"shor":        {kind: BadPrefix},
		"":            {kind: BadPrefix},
		"abcdefgh":    {kind: BadPrefix},
		"zzzzzzzz":    {kind: NoKey},
		"ijklmnop-12": {id: "ijklmnop-12"},
	} {
		id, err := match(ids, typed)
		if id != want.id || KindOf(err) != want.kind {
			t.Errorf("match(%q) = %q, %v; want %q, %v", typed, id, err, want.id, want.kind)
		}
	}
}

func TestKey(t *testing.T) {
	stays, leaves := storetest.Key(t), storetest.Key(t)
	c := storetest.Change(1)
	c.Why = "leaked"
	s, err := storetest.KeySet(t, "a", stays, leaves).Revoke(c, leaves.ID(), keystore.RevokeOptions{})
	check(t, err)
	if k, err := Key(s, string(stays.ID())[:MinPrefix]); err != nil || k.ID() != stays.ID() {
		t.Errorf("Key = %v, %v", k.ID(), err)
	}
	for typed, want := range map[string]Kind{
		string(leaves.ID()):             KeyGone,
		string(leaves.ID())[:MinPrefix]: KeyGone,
		string(leaves.ID())[:3]:         BadPrefix,
		"zzzzzzzzzz":                    NoKey,
	} {
		_, err := Key(s, typed)
		if e, is := errors.AsType[*Error](err); !is || e.Names[0] != "a" || e.Kind != want || strings.Contains(err.Error(), "(revoked at ") != (want == KeyGone) {
			t.Errorf("Key(%q): %v, want %v", typed, err, want)
		}
	}
}
