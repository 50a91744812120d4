package salvage_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/salvage"
	"github.com/keypost/keypost/keystore/storetest"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func change(hour int) keystore.Change {
	return keystore.Change{At: storetest.Time(0).Add(time.Duration(hour) * time.Hour), Why: "stolen"}
}

// history is a key set in three versions: two keys; a third one more; the first one revoked.
type history struct {
	a, b, c             keystore.VerificationKey
	first, later, final keystore.KeySet
}

func newHistory(t *testing.T) history {
	t.Helper()
	h := history{a: storetest.Key(t), b: storetest.Key(t), c: storetest.Key(t)}
	h.first = must(keystore.New(change(0), keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, "https://oidc.example.com/prod-a"), Keys: []keystore.VerificationKey{h.a, h.b}}))
	h.later = must(must(h.first.Add(change(1), h.c)).Accept(change(1), 1, nil)).Settled()
	h.final = must(must(h.later.Revoke(change(2), h.a.ID(), keystore.RevokeOptions{})).Accept(change(2), 2, nil)).Settled()
	return h
}

func text(s keystore.KeySet) []byte { return must(keystore.Encode(s)) }

// broken is a version in a form that does not parse, with everything else in it.
func broken(s keystore.KeySet) []byte {
	return bytes.Replace(text(s), []byte("kind: KeySet"), []byte("kind: KeySat"), 1)
}

func TestRestore(t *testing.T) {
	h := newHistory(t)
	merged := fmt.Appendf(nil, "<<<<<<< HEAD\n%s=======\n%s>>>>>>> theirs\n", text(h.later), text(h.final))
	turned := slices.Concat(text(h.final), text(h.later))
	asJSON := must(h.later.MarshalJSON())
	for name, tc := range map[string]struct {
		copied     keystore.KeySet
		noted      bool
		left       []byte
		generation int64 // of the result; 0: an error
		keys       []keystore.VerificationKey
		unproven   int
	}{
		"lost, and the mirror has noted the copy":         {h.first, true, nil, 2, []keystore.VerificationKey{h.a, h.b}, 0},
		"lost, and nothing shows that the copy was there": {h.first, false, nil, 0, nil, 2},
		"broken, with every key of the copy":              {h.first, false, broken(h.first), 2, []keystore.VerificationKey{h.a, h.b}, 0},
		"broken, and JSON":                                {h.later, false, asJSON[:len(asJSON)-1], 3, []keystore.VerificationKey{h.a, h.b, h.c}, 0},
		"a later version is broken":                       {h.first, false, broken(h.later), 3, []keystore.VerificationKey{h.a, h.b}, 0},
		"a later version says what is gone":               {h.later, true, broken(h.final), 4, []keystore.VerificationKey{h.b, h.c}, 0},
		"what is gone needs no proof":                     {h.later, false, broken(h.final), 4, []keystore.VerificationKey{h.b, h.c}, 0},
		"two versions in one text":                        {h.later, false, merged, 4, []keystore.VerificationKey{h.b, h.c}, 0},
		"the copy has a key that the rest lacks":          {h.later, false, broken(h.first), 0, nil, 1},
		"and the later one first":                         {h.later, false, turned, 4, []keystore.VerificationKey{h.b, h.c}, 0},
		"every key of the copy is gone":                   {h.first, true, fmt.Appendf(nil, "fingerprint: %s\nfingerprint: %s\n", h.a.Fingerprint(), h.b.Fingerprint()), 2, nil, 0},
		"cut off in the first key":                        {h.first, false, text(h.first)[:400], 0, nil, 2},
		"no text at all":                                  {h.first, true, []byte("\x00\xff{[}: "), 2, []keystore.VerificationKey{h.a, h.b}, 0},
		"a generation that no publisher took":             {h.first, true, []byte("generation: 9007199254740991"), 2, []keystore.VerificationKey{h.a, h.b}, 0},
		"another one":                                     {h.first, true, []byte("generation: 1048577"), 2, []keystore.VerificationKey{h.a, h.b}, 0},
		"the highest that one may have taken":             {h.first, true, []byte("generation: 1048576"), 1048577, []keystore.VerificationKey{h.a, h.b}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := salvage.Restore(change(5), tc.copied, tc.noted, salvage.Read(tc.left))
			if e, is := errors.AsType[*salvage.UnprovenError](err); is {
				if len(e.Keys) != tc.unproven {
					t.Errorf("%v; want %d keys without proof", err, tc.unproven)
				}
				return
			}
			if err != nil || tc.unproven > 0 {
				t.Fatalf("Restore: %v; %d keys without proof were wanted", err, tc.unproven)
			}
			if got = got.Settled(); got.Generation() != tc.generation {
				t.Errorf("generation %d, want %d", got.Generation(), tc.generation)
			}
			if ids, want := idsOf(got), sorted(tc.keys); !slices.Equal(ids, want) {
				t.Errorf("keys %v, want %v", ids, want)
			}
			if _, gone := got.GoneLine(h.a); gone == slices.Contains(idsOf(got), h.a.ID()) {
				t.Error("the first key is neither published nor gone, or both")
			}
			must(keystore.Encode(got))
		})
	}
}

func idsOf(s keystore.KeySet) (ids []keystore.KeyID) {
	for _, k := range s.Keys() {
		ids = append(ids, k.ID())
	}
	return ids
}

func sorted(keys []keystore.VerificationKey) (ids []keystore.KeyID) {
	for _, k := range keys {
		ids = append(ids, k.ID())
	}
	slices.Sort(ids)
	return ids
}

// A revoked key never comes back with a copy, whatever else is wrong with the text that says so.
func TestWhatIsLeftSaysWhatIsGone(t *testing.T) {
	h := newHistory(t)
	f := string(h.a.Fingerprint())
	for name, left := range map[string]string{
		"a document":              string(broken(h.final)),
		"without its beginning":   string(text(h.final)[bytes.Index(text(h.final), []byte("gone:"))+9:]),
		"a line of YAML":          "  - fingerprint: " + f,
		"a line of JSON":          `{"x":{"fingerprint":"` + f + `"`,
		"an unusable kid":         "spec: {gone: [{kid: \"a b\", fingerprint: " + f + ", at: never, why: because}]}",
		"without a fingerprint":   "spec:\n  gone:\n  - {kid: " + string(h.a.ID()) + ", at: \"2026-01-01T00:00:00Z\", why: removed}\n",
		"an unusable fingerprint": "spec:\n  gone:\n  - {kid: " + string(h.a.ID()) + ", fingerprint: x, why: revoked}\n",
	} {
		got, err := salvage.Restore(change(5), h.later, true, salvage.Read([]byte(left)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, gone := got.GoneLine(h.a); !gone || slices.Contains(idsOf(got), h.a.ID()) {
			t.Errorf("%s: the key is back", name)
		}
	}
}

func TestWithdrawn(t *testing.T) {
	h := newHistory(t)
	tombstone := must(h.later.Withdraw(keystore.Change{At: change(3).At, Why: "over", Force: true}))
	for name, r := range map[string]salvage.Remains{"YAML": salvage.Read(broken(tombstone)), "JSON": salvage.Read([]byte(`{"withdrawnAt":"2026-01-01T00:00:00Z"`))} {
		if _, err := salvage.Restore(change(5), h.later, true, r); !errors.Is(err, salvage.ErrWithdrawn) {
			t.Errorf("%s: Restore: %v", name, err)
		}
	}
	if _, err := salvage.Restore(change(5), tombstone, true, salvage.Remains{}); !errors.Is(err, salvage.ErrWithdrawn) {
		t.Errorf("Restore of a tombstone: %v", err)
	}
}

func TestMissing(t *testing.T) {
	h := newHistory(t)
	if got := salvage.Read(broken(h.later)).Missing(h.first); !slices.Equal(got, []keystore.Fingerprint{h.c.Fingerprint()}) {
		t.Errorf("Missing = %v", got)
	}
	if got := salvage.Read(broken(h.later)).Missing(h.final); len(got) != 0 {
		t.Errorf("Missing = %v, and that one is gone", got)
	}
}

// Whatever is left, the result is a key set that can be stored, publishes no key without proof, and no key that is gone.
func FuzzRestore(f *testing.F) {
	t := &testing.T{}
	h := newHistory(t)
	f.Add(string(broken(h.final)))
	f.Add(strings.Repeat("generation: 1\n", 3))
	f.Add("spec: {gone: [{kid: x}, {fingerprint: y}]}")
	f.Fuzz(func(t *testing.T, left string) {
		r := salvage.Read([]byte(left))
		got, err := salvage.Restore(change(5), h.later, true, r)
		if err != nil {
			return
		}
		if _, err := keystore.Encode(got.Settled()); err != nil {
			t.Error(err)
		}
		for _, k := range got.Keys() {
			if _, had := h.later.Key(k.ID()); !had {
				t.Errorf("key %s comes from nowhere", k.ID())
			}
		}
	})
}
