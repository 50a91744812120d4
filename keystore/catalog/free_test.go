package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

func TestCheckFree(t *testing.T) {
	const url, url2 = "https://oidc.example.com/a", "https://oidc.example.com/b"
	inUse := newSet(t, "a", url)
	old := withdrawn(t, inUse)
	refused := func(k Kind, n keystore.Name, part string) func(error) bool {
		return func(err error) bool {
			e, is := errors.AsType[*Error](err)
			return is && e.Kind == k && e.Names[0] == n && strings.Contains(err.Error(), part)
		}
	}
	withPort, err := keystore.ParseIssuerURL("https://oidc.example.com:8443/a", true) // requests are looked up without the port
	check(t, err)
	for name, tt := range map[string]struct {
		sets  []keystore.KeySet
		spec  keystore.Spec
		reuse bool
		want  func(error) bool // nil: free
	}{
		"free":                   {sets: []keystore.KeySet{inUse}, spec: testSpec(t, "b", url2)},
		"URL in use":             {sets: []keystore.KeySet{inUse}, spec: testSpec(t, "b", url), reuse: true, want: refused(Taken, "a", "has that issuer URL already")},
		"the same place in use":  {sets: []keystore.KeySet{inUse}, spec: keystore.Spec{Name: "b", Issuers: []keystore.IssuerURL{withPort}}, reuse: true, want: refused(Taken, "a", "has that issuer URL already")},
		"name in use":            {sets: []keystore.KeySet{inUse}, spec: testSpec(t, "a", url2), reuse: true, want: refused(Taken, "a", "exists already ("+url+")")},
		"URL of a withdrawn one": {sets: []keystore.KeySet{old}, spec: testSpec(t, "b", url), want: refused(Reuse, "a", "relying parties may still trust")},
		"the same, permitted":    {sets: []keystore.KeySet{old}, spec: testSpec(t, "b", url), reuse: true},
		"reopened":               {sets: []keystore.KeySet{old}, spec: testSpec(t, "a", url, url2), reuse: true},
		"tombstone has another URL": {
			sets: []keystore.KeySet{old}, spec: testSpec(t, "a", url2), reuse: true,
			want: refused(Tombstone, "a", url),
		},
		"two tombstones have the URL": {
			sets: []keystore.KeySet{old, withdrawn(t, newSet(t, "b", url))}, spec: testSpec(t, "a", url), reuse: true,
			want: refused(Tombstone, "a", `both "a" and "b" had`),
		},
	} {
		_, err := Contents{Sets: tt.sets}.earlier(tt.spec, tt.reuse)
		if tt.want == nil && err != nil || tt.want != nil && (err == nil || !tt.want(err)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A URL that is given out again brings every key of the key sets that had it: those in gone, and those that a tombstone
// still holds.
func TestNothingComesBackUnderAReusedURL(t *testing.T) {
	const url = "https://oidc.example.com/old"
	held, revoked := storetest.Key(t), storetest.Key(t)
	old, err := keystore.New(storetest.Change(0), keystore.Spec{Name: "old", Issuers: storetest.URLs(t, url), Keys: []keystore.VerificationKey{held, revoked}})
	check(t, err)
	old, err = old.Revoke(storetest.Change(1), revoked.ID(), keystore.RevokeOptions{})
	check(t, err)
	old = withdrawn(t, old)
	for name, k := range map[string]keystore.VerificationKey{
		"held by the tombstone":      held,
		"the same, under a new kid":  renamed(t, held, "another"),
		"revoked before":             revoked,
		"the revoked, under another": renamed(t, revoked, "another"),
	} {
		spec := keystore.Spec{Name: "new", Issuers: storetest.URLs(t, url), Keys: []keystore.VerificationKey{k}}
		_, err := Add(t.Context(), storeWith(t, false, old), spec, AddOptions{Change: storetest.Change(2), Reuse: true})
		if err == nil {
			t.Errorf("%s: it is published again", name)
		}
	}
	spec := testSpec(t, "new", url)
	liar, err := keystore.New(storetest.Change(0), keystore.Spec{ // which never had the key that it lists
		Name: "liar", Issuers: storetest.URLs(t, url), Keys: []keystore.VerificationKey{storetest.Key(t)},
		Gone: []keystore.Gone{{ID: spec.Keys[0].ID(), Fingerprint: spec.Keys[0].Fingerprint(), At: storetest.Time(0), Why: keystore.Revoked}},
	})
	check(t, err)
	added, err := Add(t.Context(), storeWith(t, false, old, withdrawn(t, liar)), spec, AddOptions{Change: storetest.Change(2), Reuse: true})
	check(t, err)
	for _, k := range []keystore.VerificationKey{held, revoked} {
		if !added.KeySet.RecordsGone(keystore.Gone{ID: k.ID(), Fingerprint: k.Fingerprint()}) {
			t.Errorf("key %s is not on record: %v", k.ID(), added.KeySet.Gone())
		}
	}
}

// A key is shared by its material, whatever its kid is, and only with key sets in use.
func TestSharedKeys(t *testing.T) {
	k := storetest.Key(t)
	c := Contents{Sets: []keystore.KeySet{
		storetest.KeySet(t, "new", k),
		storetest.KeySet(t, "other-kid", renamed(t, k, "signer-1")),
		storetest.KeySet(t, "other-key", renamed(t, storetest.Key(t), "1")),
		storetest.KeySet(t, "same", k),
		withdrawn(t, storetest.KeySet(t, "withdrawn", k)),
	}}
	for id, want := range map[keystore.KeyID][]Shared{
		k.ID(): {{"signer-1", "other-kid"}, {k.ID(), "same"}},
		"1":    {{"signer-1", "other-kid"}, {k.ID(), "same"}}, // which is another key's kid, too
	} {
		spec := keystore.Spec{Name: "new", Keys: []keystore.VerificationKey{renamed(t, k, id)}}
		if got, err := c.CheckKeys(spec.Name, spec.Keys, false); err != nil || !slices.Equal(got, want) {
			t.Errorf("as %s: %v, want %v; %v", id, got, want, err)
		}
	}
}

// What one cluster lost to a thief is not published for another, whatever its kid is; what was removed may be. A line in gone shows
// nothing if the history does not tell that the key set had the key.
func TestRevokedElsewhere(t *testing.T) {
	revoked, fine := storetest.Key(t), storetest.Key(t)
	revokes := func(n keystore.Name) keystore.KeySet {
		c := storetest.Change(1)
		c.Why = "stolen"
		s, err := storetest.KeySet(t, n, storetest.Key(t), revoked).Revoke(c, revoked.ID(), keystore.RevokeOptions{})
		check(t, err)
		return s
	}
	claimsGone := func(n keystore.Name) keystore.KeySet {
		s, err := keystore.New(storetest.Change(0), keystore.Spec{
			Name: n, Issuers: storetest.URLs(t, "https://oidc.example.com/"+string(n)), Keys: []keystore.VerificationKey{storetest.Key(t)},
			Gone: []keystore.Gone{{ID: revoked.ID(), Fingerprint: revoked.Fingerprint(), At: storetest.Time(0), Why: keystore.Revoked}},
		})
		check(t, err)
		return s
	}
	longAgo := revokes("b")
	for n := range 2 * keystore.KeptHistory {
		var err error
		longAgo, err = longAgo.SetPolicy(storetest.Change(time.Duration(n)), keystore.Policy{ObserveFrom: []string{fmt.Sprintf("v%d", n)}})
		check(t, err)
	}
	given := []keystore.VerificationKey{fine, renamed(t, revoked, "fresh-looking")}
	for name, tt := range map[string]struct {
		others    []keystore.KeySet
		permitted bool
		want      keystore.Name
	}{
		"in use":        {[]keystore.KeySet{storetest.KeySet(t, "a"), revokes("b")}, false, "b"},
		"long ago":      {[]keystore.KeySet{longAgo}, false, "b"},
		"withdrawn":     {[]keystore.KeySet{withdrawn(t, revokes("b"))}, false, "b"},
		"permitted":     {[]keystore.KeySet{revokes("b")}, true, ""},
		"itself":        {[]keystore.KeySet{revokes("new")}, false, ""},
		"never had":     {[]keystore.KeySet{claimsGone("liar")}, false, ""},
		"and one had":   {[]keystore.KeySet{claimsGone("a"), revokes("b")}, false, "b"},
		"published":     {[]keystore.KeySet{revokes("b"), storetest.KeySet(t, "new", revoked)}, false, ""},
		"only withdrew": {[]keystore.KeySet{withdrawn(t, storetest.KeySet(t, "b", revoked))}, false, ""},
	} {
		_, err := Contents{Sets: tt.others}.CheckKeys("new", given, tt.permitted)
		e, is := errors.AsType[*Error](err)
		if is != (tt.want != "") || is && (e.Kind != Revoked || e.Names[0] != tt.want || !strings.Contains(err.Error(), "key fresh-looking was revoked") || !strings.Contains(err.Error(), " as "+string(revoked.ID()))) {
			t.Errorf("%s: %v, want one of %q", name, err, tt.want)
		}
	}
}
