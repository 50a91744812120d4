package salvage_test

import (
	"bytes"
	"encoding/json"
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
	gone := func(keys ...keystore.VerificationKey) (lines []byte) {
		for _, k := range keys {
			lines = fmt.Appendf(lines, "fingerprint: %s\n", k.Fingerprint())
		}
		return lines
	}
	both, all := []keystore.VerificationKey{h.a, h.b}, []keystore.VerificationKey{h.a, h.b, h.c}
	const unknown = 0
	for name, tc := range map[string]struct {
		copied     keystore.KeySet
		left       []byte
		older      bool  // without force it is refused, since the copy may be older
		stored     int64 // what the refusal says of the stored generation
		generation int64 // of the result
		keys       []keystore.VerificationKey
	}{
		"lost":                                 {h.first, nil, true, unknown, 2, both},
		"empty":                                {h.first, []byte{}, true, unknown, 2, both},
		"the same version is broken":           {h.first, broken(h.first), false, 0, 2, both},
		"the same one, in JSON":                {h.later, asJSON[:len(asJSON)-1], false, 0, 3, all},
		"the same one, in JSON in a string":    {h.later, must(json.Marshal(string(asJSON))), false, 0, 3, all},
		"a later version is broken":            {h.first, broken(h.later), true, 2, 3, both},
		"an earlier one is":                    {h.later, broken(h.first), false, 0, 3, all},
		"a later version says what is gone":    {h.later, broken(h.final), true, 3, 4, all[1:]},
		"two versions in one text":             {h.later, merged, true, 3, 4, all[1:]},
		"and the later one first":              {h.later, turned, true, 3, 4, all[1:]},
		"two versions, and one is cut off":     {h.later, merged[:len(text(h.later))+60], true, unknown, 3, all},
		"every key of the copy is gone":        {h.first, gone(h.a, h.b), true, unknown, 2, nil},
		"cut off in the first key":             {h.first, text(h.first)[:400], false, 0, 2, both},
		"cut off before its generation":        {h.first, text(h.first)[:60], true, unknown, 2, both},
		"two generations, and one is garbled":  {h.first, []byte("generation: 1\ngeneration: x2"), true, unknown, 2, both},
		"in another encoding":                  {h.first, wide(text(h.later)), true, unknown, 2, both},
		"no text at all":                       {h.first, []byte("\x00\xff{[}: "), true, unknown, 2, both},
		"a generation that no publisher took":  {h.first, []byte("generation: 9007199254740991"), true, 9007199254740991, 2, both},
		"another one":                          {h.first, []byte("generation: 1048577"), true, 1048577, 2, both},
		"the highest that one may have taken":  {h.first, []byte("generation: '1048576'"), true, 1048576, 1048577, both},
		"a generation in quotes, and the same": {h.first, []byte(`'generation' : "1"`), false, 0, 2, both},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := salvage.Read(tc.left), change(5)
			got, err := salvage.Restore(c, tc.copied, r)
			e, older := errors.AsType[*salvage.OlderError](err)
			if older != tc.older || older && (e.Stored != tc.stored || e.Copied != tc.copied.Generation()) {
				t.Errorf("Restore: %v; want a refusal: %t, with generation %d", err, tc.older, tc.stored)
			}
			if older {
				c.Force = true
				got, err = salvage.Restore(c, tc.copied, r)
			}
			if err != nil {
				t.Fatalf("Restore: %v", err)
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

// wide is a text as some editors of Windows store it.
func wide(doc []byte) (out []byte) {
	for _, c := range doc {
		out = append(out, c, 0)
	}
	return out
}

// The key may be served at a URL that the copy lacks, and nobody would look there.
func TestIssuersOfWhatIsLeft(t *testing.T) {
	h := newHistory(t)
	const other = "https://elsewhere.example.com/prod-a"
	moved := strings.Replace(string(broken(h.first)), "https://oidc.example.com/prod-a", other, 1)
	for name, left := range map[string]string{
		"a document":   moved,
		"cut off":      moved[:strings.Index(moved, "\n  keys:")],
		"JSON":         `{"issuers":["https://oidc.example.com/prod-a", "` + other + `"`,
		"quotes":       "'issuers':\n- \"https://oidc.example.com/prod-a\"\n- '" + other + "'\n",
		"a merge":      "issuers:\n<<<<<<< HEAD\n- https://oidc.example.com/prod-a\n=======\n- " + other + "\n>>>>>>> theirs\n",
		"without list": "issuers: " + other,
	} {
		c := change(5)
		c.Force = true
		if _, err := salvage.Restore(c, h.first, salvage.Read([]byte(left))); err == nil || !strings.Contains(err.Error(), "had the issuer URL "+other+", which the copy lacks") {
			t.Errorf("%s: %v", name, err)
		}
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
		"single quotes":           strings.ReplaceAll(string(broken(h.final)), f, "'"+f+"'") + "}",
		"a block":                 strings.ReplaceAll(string(broken(h.final)), f, ">-\n      "+f) + "}",
		"a list":                  "gone: [ 'x', " + f + "]}",
		"a damaged label":         strings.ReplaceAll(string(broken(h.final)), "fingerprint:", "fingerprnt ") + "}",
		"only a kid":              "gone:\n  - kid: '" + string(h.a.ID()) + "'\n}",
		"JSON in a string":        `"{\"gone\":[{\"kid\":\"` + string(h.a.ID()) + `\"`,
		"without its beginning":   string(text(h.final)[bytes.Index(text(h.final), []byte("gone:"))+9:]),
		"a line of YAML":          "  - fingerprint: " + f,
		"a line of JSON":          `{"x":{"fingerprint":"` + f + `"`,
		"an unusable kid":         "spec: {gone: [{kid: \"a b\", fingerprint: " + f + ", at: never, why: because}]}",
		"without a fingerprint":   "spec:\n  gone:\n  - {kid: " + string(h.a.ID()) + ", at: \"2026-01-01T00:00:00Z\", why: removed}\n",
		"an unusable fingerprint": "spec:\n  gone:\n  - {kid: " + string(h.a.ID()) + ", fingerprint: x, why: revoked}\n",
	} {
		c := change(5)
		c.Force = true
		got, err := salvage.Restore(c, h.later, salvage.Read([]byte(left)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got.Keys()) != 2 {
			t.Errorf("%s: %d keys are left, want the other two", name, len(got.Keys()))
		}
		if _, gone := got.GoneLine(h.a); !gone || slices.Contains(idsOf(got), h.a.ID()) {
			t.Errorf("%s: the key is back", name)
		}
	}
}

// Kids are not always computed. One that stands under gone bars the key, and one elsewhere, or a part of another, does not.
func TestKidsOfWhatIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		kid, left string
		gone      bool
	}{
		"plain":                    {"2026", "gone:\n- at: x\n  kid: 2026\n*", true},
		"quoted":                   {"2026", "gone: [{'kid': '2026'}]}", true},
		"part of a date":           {"2026", "gone:\n- at: \"2026-11-22T12:57:07Z\"\n*", false},
		"part of a kid":            {"key", "gone:\n- kid: key-1\n*", false},
		"before":                   {"key", "issuers: [key]\ngone:\n- kid: x\n*", false},
		"a published one":          {"key", "gone:\n- kid: x\nkeys:\n- kid: key\n*", false},
		"a published one, in JSON": {"key", `{"gone":[{"kid":"x"}],"keys":[{"kid":"key"}]`, false},
		"in the second of two":     {"key", "gone:\n- kid: x\nkeys:\n- kid: key\n=======\ngone:\n- kid: key\n*", true},
		"a quote in it":            {"a'b", "gone:\n- kid: 'a''b'\n*", true},
		"escaped in JSON":          {"a<b", `{"gone":[{"kid":"a\u003cb"}`, true},
		"a slash escaped":          {"a/b", `{"gone":[{"kid":"a\/b"}`, true},
		"another line end":         {"key", "generation: 1\r  gone:\r  - kid: key\r*", true},
	} {
		k := storetest.Key(t)
		kid := must(k.WithID(keystore.KeyID(tc.kid), k.Alg()))
		s := must(keystore.New(change(0), keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, "https://oidc.example.com/prod-a"), Keys: []keystore.VerificationKey{kid, storetest.Key(t)}}))
		c := change(5)
		c.Force = true
		got, err := salvage.Restore(c, s, salvage.Read([]byte(tc.left)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, gone := got.GoneLine(kid); gone != tc.gone || len(got.Keys()) == 2 == gone {
			t.Errorf("%s: gone %t, want %t", name, gone, tc.gone)
		}
	}
}

func TestWithdrawn(t *testing.T) {
	h := newHistory(t)
	tombstone := must(h.later.Withdraw(keystore.Change{At: change(3).At, Why: "over", Force: true}))
	for name, r := range map[string]salvage.Remains{"YAML": salvage.Read(broken(tombstone)), "JSON": salvage.Read([]byte(`{"withdrawnAt":"2026-01-01T00:00:00Z"`))} {
		if _, err := salvage.Restore(change(5), h.later, r); !errors.Is(err, salvage.ErrWithdrawn) {
			t.Errorf("%s: Restore: %v", name, err)
		}
	}
	if _, err := salvage.Restore(change(5), tombstone, salvage.Remains{}); !errors.Is(err, salvage.ErrWithdrawn) {
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

// Whatever is left, the result is a key set that can be stored, and publishes no key that the copy lacks.
func FuzzRestore(f *testing.F) {
	t := &testing.T{}
	h := newHistory(t)
	f.Add(string(broken(h.final)))
	f.Add(strings.Repeat("generation: 1\n", 3))
	f.Add("spec: {gone: [{kid: x}, {fingerprint: y}]}")
	f.Fuzz(func(t *testing.T, left string) {
		r := salvage.Read([]byte(left))
		c := change(5)
		c.Force = true
		got, err := salvage.Restore(c, h.later, r)
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
