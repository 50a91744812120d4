package issuer

import (
	"slices"
	"testing"

	"github.com/keypost/keypost/keystore"
)

func TestFollows(t *testing.T) {
	k := func(n ...int64) []keystore.VerificationKey {
		var all []keystore.VerificationKey
		for _, i := range n {
			all = append(all, key(t, i))
		}
		return all
	}
	other := "https://a.oidc.example.com"
	served := doc{name: "a", generation: 5, issuers: []string{urlA, other}, keys: k(1, 2), gone: k(8, 9)}
	tombstone := served
	tombstone.withdrawn = true
	for name, tc := range map[string]struct {
		served *doc
		next   func(*doc)
		want   Reason
	}{
		"nothing is served":                  {nil, func(*doc) {}, ""},
		"the same version":                   {&served, func(*doc) {}, ""},
		"the next generation":                {&served, func(d *doc) { d.generation = 6 }, ""},
		"a jump of generations":              {&served, func(d *doc) { d.generation = 1000 }, ""},
		"an older generation":                {&served, func(d *doc) { d.generation = 4 }, keystore.ReasonOlderGeneration},
		"the same generation, other content": {&served, func(d *doc) { d.policy = map[string]any{"maxAge": "2m"} }, keystore.ReasonSameGeneration},
		"a key more":                         {&served, func(d *doc) { d.generation, d.keys = 6, k(1, 2, 3) }, ""},
		"a key less":                         {&served, func(d *doc) { d.generation, d.keys = 6, k(1) }, keystore.ReasonKidMissing},
		"a key less with its line":           {&served, func(d *doc) { d.generation, d.keys, d.gone = 6, k(1), k(2, 8, 9) }, ""},
		"another key in its place":           {&served, func(d *doc) { d.generation, d.keys = 6, k(1, 3) }, keystore.ReasonKidMissing},
		"a line less":                        {&served, func(d *doc) { d.generation, d.gone = 6, k(8) }, keystore.ReasonGoneReturned},
		"a gone key for its line":            {&served, func(d *doc) { d.generation, d.gone, d.keys = 6, k(8), k(1, 2, 9) }, keystore.ReasonGoneReturned},
		"a URL more":                         {&served, func(d *doc) { d.generation, d.issuers = 6, []string{urlA, other, urlShared} }, ""},
		"a URL less":                         {&served, func(d *doc) { d.generation, d.issuers = 6, []string{other} }, keystore.ReasonURLDropped},
		"URLs in another order":              {&served, func(d *doc) { d.generation, d.issuers = 6, []string{other, urlA} }, ""},
		"the tombstone":                      {&served, func(d *doc) { d.generation, d.withdrawn = 6, true }, ""},
		"the tombstone with fewer URLs":      {&served, func(d *doc) { d.generation, d.withdrawn, d.issuers = 6, true, []string{urlA} }, ""},
		"the tombstone without its keys":     {&served, func(d *doc) { d.generation, d.withdrawn, d.keys = 6, true, nil }, keystore.ReasonKidMissing},
		"an older tombstone":                 {&served, func(d *doc) { d.generation, d.withdrawn = 4, true }, keystore.ReasonOlderGeneration},
		"a tombstone of the same generation": {&served, func(d *doc) { d.withdrawn = true }, keystore.ReasonSameGeneration},
		"reopened":                           {&tombstone, func(d *doc) { d.generation, d.keys, d.gone = 6, k(3), k(1, 2, 8, 9) }, ""},
		"reopened under another URL":         {&tombstone, func(d *doc) { d.generation, d.issuers = 6, []string{other} }, keystore.ReasonGoneReturned},
		"reopened as it was before":          {&tombstone, func(d *doc) { d.generation = 4 }, keystore.ReasonOlderGeneration},
		"reopened with a gone key":           {&tombstone, func(d *doc) { d.generation, d.keys, d.gone = 6, k(1, 2, 9), k(8) }, keystore.ReasonGoneReturned},
	} {
		t.Run(name, func(t *testing.T) {
			next := served
			next.issuers = slices.Clone(served.issuers)
			tc.next(&next)
			var v *version
			if tc.served != nil {
				v = testVersion(t, *tc.served)
			}
			got := Reason("")
			if r := v.follows(testVersion(t, next)); r != nil {
				got = r.Reason
			}
			if got != tc.want {
				t.Errorf("rejected as %q, want %q", got, tc.want)
			}
		})
	}
}

func testVersion(t *testing.T, d doc) *version {
	t.Helper()
	v, err := newVersion(d.parse(t), keystore.DefaultCache())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVersionCountsKeysByState(t *testing.T) {
	v := testVersion(t, doc{
		name: "a", generation: 1, keys: []keystore.VerificationKey{key(t, 1), key(t, 2), key(t, 3), key(t, 4)},
		states: []keystore.State{keystore.Retired, keystore.Next, keystore.Active, keystore.Next}})
	if want := [3]int{2, 1, 1}; v.states != want {
		t.Errorf("next, active, retired = %v, want %v", v.states, want)
	}
}
