package catalog

import (
	"errors"
	"testing"

	"github.com/keypost/keypost/keystore"
)

func TestClaims(t *testing.T) {
	const url, url2 = "https://oidc.example.com/a", "https://oidc.example.com/b"
	inUse := newSet(t, "a", url)
	old := withdrawn(t, inUse)
	tombstone := func(want TombstoneError) func(error) bool {
		return func(err error) bool {
			e, is := errors.AsType[*TombstoneError](err)
			return is && e.Name == want.Name && e.Other == want.Other && e.URL.String() == want.URL.String()
		}
	}
	taken := func(by keystore.Name, name bool) func(error) bool {
		return func(err error) bool {
			e, is := errors.AsType[*TakenError](err)
			return is && e.By == by && (e.Issuers != nil) == name
		}
	}
	for name, tt := range map[string]struct {
		sets  []keystore.KeySet
		spec  keystore.Spec
		reuse bool
		want  func(error) bool // nil: free
	}{
		"free":                   {sets: []keystore.KeySet{inUse}, spec: testSpec(t, "b", url2)},
		"URL in use":             {sets: []keystore.KeySet{inUse}, spec: testSpec(t, "b", url), reuse: true, want: taken("a", false)},
		"name in use":            {sets: []keystore.KeySet{inUse}, spec: testSpec(t, "a", url2), reuse: true, want: taken("a", true)},
		"URL of a withdrawn one": {sets: []keystore.KeySet{old}, spec: testSpec(t, "b", url), want: func(err error) bool { return errors.Is(err, ErrReuse) }},
		"the same, permitted":    {sets: []keystore.KeySet{old}, spec: testSpec(t, "b", url), reuse: true},
		"reopened":               {sets: []keystore.KeySet{old}, spec: testSpec(t, "a", url, url2), reuse: true},
		"tombstone has another URL": {
			sets: []keystore.KeySet{old}, spec: testSpec(t, "a", url2), reuse: true,
			want: tombstone(TombstoneError{Name: "a", URL: inUse.Issuers()[0]}),
		},
		"two tombstones have the URL": {
			sets: []keystore.KeySet{old, withdrawn(t, newSet(t, "b", url))}, spec: testSpec(t, "a", url), reuse: true,
			want: tombstone(TombstoneError{Name: "a", Other: "b"}),
		},
	} {
		_, err := Contents{Sets: tt.sets}.claims(tt.spec, Permit{Reuse: tt.reuse})
		if tt.want == nil && err != nil || tt.want != nil && (err == nil || !tt.want(err)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
