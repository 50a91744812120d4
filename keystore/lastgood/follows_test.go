package lastgood

import (
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
)

func TestFollows(t *testing.T) {
	urlA, other, third := "https://oidc.example.com/a", "https://a.oidc.example.com", "https://shared.example.com"
	good := doc{name: "a", generation: 5, issuers: []string{urlA, other}, keys: []int{1, 2}, gone: []int{8, 9}}
	tombstone := good
	tombstone.withdrawn = true
	for name, tc := range map[string]struct {
		was  *doc
		next func(*doc)
		want keystore.Reason
	}{
		"there is none yet":                  {nil, func(*doc) {}, ""},
		"the same version":                   {&good, func(*doc) {}, ""},
		"the next generation":                {&good, func(d *doc) { d.generation = 6 }, ""},
		"a jump of generations":              {&good, func(d *doc) { d.generation = 1000 }, ""},
		"an older generation":                {&good, func(d *doc) { d.generation = 4 }, ReasonOlderGeneration},
		"the same generation, other content": {&good, func(d *doc) { d.maxAge = "2m" }, ReasonSameGeneration},
		"a key more":                         {&good, func(d *doc) { d.generation, d.keys = 6, []int{1, 2, 3} }, ""},
		"a key less":                         {&good, func(d *doc) { d.generation, d.keys = 6, []int{1} }, ReasonKidMissing},
		"a key less with its line":           {&good, func(d *doc) { d.generation, d.keys, d.gone = 6, []int{1}, []int{2, 8, 9} }, ""},
		"another key in its place":           {&good, func(d *doc) { d.generation, d.keys = 6, []int{1, 3} }, ReasonKidMissing},
		"a line less":                        {&good, func(d *doc) { d.generation, d.gone = 6, []int{8} }, ReasonGoneReturned},
		"a gone key for its line":            {&good, func(d *doc) { d.generation, d.gone, d.keys = 6, []int{8}, []int{1, 2, 9} }, ReasonGoneReturned},
		"a URL more":                         {&good, func(d *doc) { d.generation, d.issuers = 6, []string{urlA, other, third} }, ""},
		"a URL less":                         {&good, func(d *doc) { d.generation, d.issuers = 6, []string{other} }, ReasonURLDropped},
		"URLs in another order":              {&good, func(d *doc) { d.generation, d.issuers = 6, []string{other, urlA} }, ""},
		"the tombstone":                      {&good, func(d *doc) { d.generation, d.withdrawn = 6, true }, ""},
		"the tombstone with fewer URLs":      {&good, func(d *doc) { d.generation, d.withdrawn, d.issuers = 6, true, []string{urlA} }, ""},
		"the tombstone without its keys":     {&good, func(d *doc) { d.generation, d.withdrawn, d.keys = 6, true, nil }, ReasonKidMissing},
		"an older tombstone":                 {&good, func(d *doc) { d.generation, d.withdrawn = 4, true }, ReasonOlderGeneration},
		"a tombstone of the same generation": {&good, func(d *doc) { d.withdrawn = true }, ReasonSameGeneration},
		"reopened":                           {&tombstone, func(d *doc) { d.generation, d.keys, d.gone = 6, []int{3}, []int{1, 2, 8, 9} }, ""},
		"reopened under another URL":         {&tombstone, func(d *doc) { d.generation, d.issuers = 6, []string{other} }, ReasonGoneReturned},
		"reopened under another URL, new key": {&tombstone, func(d *doc) {
			d.generation, d.issuers, d.keys, d.gone = 6, []string{third}, []int{3}, []int{1, 2, 8, 9}
		}, ""},
		"reopened as it was before": {&tombstone, func(d *doc) { d.generation = 4 }, ReasonOlderGeneration},
		"reopened with a gone key":  {&tombstone, func(d *doc) { d.generation, d.keys, d.gone = 6, []int{1, 2, 9}, []int{8} }, ReasonGoneReturned},
	} {
		next := good
		next.issuers = slices.Clone(good.issuers)
		tc.next(&next)
		var was *Summary
		if tc.was != nil {
			was = tc.was.summary(t)
		}
		if got := reasonOf(next.summary(t).Follows(was)); got != tc.want {
			t.Errorf("%s: rejected as %q, want %q", name, got, tc.want)
		}
	}
}

// A kid by itself does not tell which key it is, and a fingerprint by itself not under which name relying parties know it.
func TestFollowsComparesMaterial(t *testing.T) {
	fp := func(n int) string { return string(testKey(n).Fingerprint()) }
	legacy := line("legacy", fp(1)) // an imported key was revoked
	was := doc{name: "a", generation: 1, keys: []int{0}, entries: []any{published(2, "signer-1")}, lines: []any{legacy}}.summary(t)
	computed := string(testKey(0).ID())
	for name, tc := range map[string]struct {
		keys []any
		gone []any // nil: the line of the imported key
		want keystore.Reason
	}{
		"all stays":                        {keys: []any{published(0, ""), published(2, "signer-1")}},
		"another key under a kid":          {keys: []any{published(0, ""), published(3, "signer-1")}, want: ReasonKeyChanged},
		"and its line under the ID":        {keys: []any{published(0, ""), published(3, "signer-1")}, gone: []any{legacy, line(string(testKey(2).ID()), fp(2))}, want: ReasonKeyChanged},
		"gone with its fingerprint":        {keys: []any{published(0, "")}, gone: []any{legacy, line("signer-1", fp(2))}},
		"gone only under its ID":           {keys: []any{published(0, "")}, gone: []any{legacy, line(string(testKey(2).ID()), fp(2))}, want: ReasonKidMissing},
		"gone as another key":              {keys: []any{published(0, "")}, gone: []any{legacy, line("signer-1", fp(3))}, want: ReasonKeyChanged},
		"a computed one is gone":           {keys: []any{published(2, "signer-1")}, gone: []any{legacy, line(computed, fp(0))}},
		"under another kid":                {keys: []any{published(0, ""), published(2, "signer-2")}, want: ReasonKidMissing},
		"a line has another fingerprint":   {keys: []any{published(0, ""), published(2, "signer-1")}, gone: []any{line("legacy", fp(7))}, want: ReasonGoneReturned},
		"a line has another kid":           {keys: []any{published(0, ""), published(2, "signer-1")}, gone: []any{line("other", fp(1))}, want: ReasonGoneReturned},
		"a line has vanished":              {keys: []any{published(0, ""), published(2, "signer-1")}, gone: []any{}, want: ReasonGoneReturned},
		"a line vanished, its key is back": {keys: []any{published(0, ""), published(2, "signer-1"), published(1, "legacy")}, gone: []any{}, want: ReasonGoneReturned},
	} {
		d := doc{name: "a", generation: 2, entries: tc.keys, lines: tc.gone}
		if tc.gone == nil {
			d.lines = []any{legacy}
		}
		if r := d.summary(t).Follows(was); reasonOf(r) != tc.want {
			t.Errorf("%s: %+v, want %q", name, r, tc.want)
		}
	}
}

func TestGenerationsOutOfReachAreRefused(t *testing.T) {
	for _, tc := range []struct {
		was, is int64 // was 0: there is no last good version
		refused bool
	}{
		{0, 1, false},
		{0, keystore.MaxFirstGeneration, false},
		{0, keystore.MaxFirstGeneration + 1, true},
		{0, keystore.MaxGeneration, true},
		{5, 6, false},
		{5, 5 + keystore.MaxGenerationJump, false},
		{5, 6 + keystore.MaxGenerationJump, true},
		{5, keystore.MaxGeneration, true},
		{keystore.MaxFirstGeneration, keystore.MaxFirstGeneration + 1, false}, // it went there step by step
	} {
		var was *Summary
		if tc.was > 0 {
			was = doc{name: "a", generation: tc.was, keys: []int{0}}.summary(t)
		}
		r := doc{name: "a", generation: tc.is, keys: []int{0}}.summary(t).Follows(was)
		if (r != nil) != tc.refused || r != nil && (r.Reason != ReasonGenerationJump || !strings.Contains(r.Message, "it must be accepted first")) {
			t.Errorf("%d after %d: %+v", tc.is, tc.was, r)
		}
	}
}

// What a tombstone held does not come back with a later version of its own key set, known by its kid or its material.
func TestReturning(t *testing.T) {
	fp := func(n int) string { return string(testKey(n).Fingerprint()) }
	gone := []any{line(string(testKey(3).ID()), fp(3)), line("gone", fp(4))}
	tombstone := doc{name: "b", generation: 2, withdrawn: true, keys: []int{1}, entries: []any{published(2, "held")}, lines: gone}.summary(t)
	held := []any{line(string(testKey(1).ID()), fp(1)), line("held", fp(2))}
	for name, tc := range map[string]struct {
		is      []any
		returns bool
	}{
		"a new key":                      {[]any{published(7, "")}, false},
		"held":                           {[]any{published(1, "")}, true},
		"held, under another kid":        {[]any{published(1, "x")}, true},
		"held under a kid, computed now": {[]any{published(2, "")}, true},
		"another key under a held kid":   {[]any{published(7, "held")}, true},
	} {
		d := doc{name: "b", generation: 3, entries: tc.is, lines: gone}
		for _, l := range held { // what the version publishes has no line: no document can have both
			if !tc.returns {
				d.lines = append(d.lines, l)
			}
		}
		if r := d.summary(t).Follows(tombstone); (r != nil) != tc.returns {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
