package keystore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// tree is a document to be changed as somebody with an editor would.
func tree(t testing.TB, s KeySet) map[string]any {
	t.Helper()
	var d map[string]any
	if err := json.Unmarshal(must(json.Marshal(s)), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func specOf(d map[string]any) map[string]any { return d["spec"].(map[string]any) } //nolint:forcetypeassert // the test wrote it

func parseTree(d map[string]any) (KeySet, error) { return Parse("prod-a", must(json.Marshal(d))) }

// times makes a list of n entries.
func times(n int, entry func(i int) any) []any {
	all := make([]any, n)
	for i := range all {
		all[i] = entry(i)
	}
	return all
}

func goneEntry(i int) any {
	return map[string]any{"kid": fmt.Sprintf("gone-%d", i), "fingerprint": fmt.Sprintf("%042dA", i), "at": t0, "why": Removed}
}

func TestParseReadsUpToTheBoundsOfTheDefinition(t *testing.T) {
	t.Parallel()
	policy := func(member string, entry any) func(d map[string]any, n int) {
		return func(d map[string]any, n int) {
			specOf(d)["policy"] = map[string]any{member: times(n, func(int) any { return entry })}
		}
	}
	list := func(member string, entry func(i int) any) func(d map[string]any, n int) {
		return func(d map[string]any, n int) { specOf(d)[member] = times(n, entry) }
	}
	meta := func(member string) func(d map[string]any, n int) {
		return func(d map[string]any, n int) {
			all := map[string]string{}
			for i := range n {
				all[fmt.Sprintf("l%d", i)] = ""
			}
			d["metadata"].(map[string]any)[member] = all //nolint:forcetypeassert // the test wrote it
		}
	}
	for name, tt := range map[string]struct {
		fill func(d map[string]any, n int)
		most int
	}{
		"issuer URLs":            {list("issuers", func(i int) any { return fmt.Sprintf("https://oidc.example.com/%d", i) }), 100},
		"keys and lines in gone": {list("gone", goneEntry), 3999}, // and the published key
		"relying parties":        {policy("relyingParties", "aws"), 1000},
		"origins":                {policy("origins", "origin.example.com"), 1000},
		"vantages":               {policy("observeFrom", "eu"), 20},
		"lines in heldUntil":     {policy("heldUntil", map[string]any{"until": t0}), 1000},
		"lines of history":       {list("history", func(int) any { return map[string]any{"at": t0, "what": "x"} }), 200},
		"labels":                 {meta("labels"), 1000},
		"annotations":            {meta("annotations"), 1000},
	} {
		d := tree(t, newSet(t, Policy{}))
		tt.fill(d, tt.most)
		if _, err := parseTree(d); err != nil {
			t.Errorf("%d %s: %v", tt.most, name, err)
		}
		tt.fill(d, tt.most+1)
		if _, err := parseTree(d); err == nil || !strings.Contains(err.Error(), name+"; at most ") {
			t.Errorf("%d %s: error %v", tt.most+1, name, err)
		}
	}
}

func TestParseReads200KeysOf100OfAType(t *testing.T) {
	d := tree(t, newSet(t, Policy{}))
	keys := func(n int, of func(i int) VerificationKey) []any {
		return times(n, func(i int) any {
			return keyEntry(Key{VerificationKey: of(i), State: Active, PublishedAt: t0, PromotedAt: t0})
		})
	}
	twin := must(NewPublic(rsaPublic(2048))) // a modulus takes its time
	twins := func(i int) VerificationKey { return must(twin.WithID(KeyID(fmt.Sprint("rsa-", i)), "")) }
	specOf(d)["keys"] = append(keys(100, testKey), keys(100, twins)...)
	if s, err := parseTree(d); err != nil || len(s.Keys()) != 200 {
		t.Errorf("100 keys of each type: error %v", err)
	}
	specOf(d)["keys"] = keys(101, testKey)
	if _, err := parseTree(d); err == nil || !strings.Contains(err.Error(), "101 EC keys; at most 100") {
		t.Errorf("101 keys of one type: error %v", err)
	}
	specOf(d)["keys"] = keys(201, twins)
	if _, err := parseTree(d); err == nil || !strings.Contains(err.Error(), "it has 201 keys; at most 200 are read") {
		t.Errorf("201 keys: error %v", err)
	}
}

// full returns a key set that takes no further key.
func full(t *testing.T) KeySet {
	t.Helper()
	s := step(t)(newSet(t, awsPolicy()).Add(change(t0), testKey(1)))
	s = step(t)(s.Add(change(t0), testKey(2)))
	d := tree(t, s)
	specOf(d)["gone"] = times(maxGone-3, goneEntry)
	s, err := parseTree(d)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAFullKeySetCanBeRepaired(t *testing.T) {
	t.Parallel()
	s := full(t)
	if _, err := s.Add(change(t0), testKey(3)); err == nil || !strings.Contains(err.Error(), "4001 keys and lines in gone; at most 4000") {
		t.Errorf("add: error %v", err)
	}
	if _, err := s.SetPolicy(change(t0), awsPolicy()); err != nil {
		t.Errorf("set policy, which takes no room: %v", err)
	}
	for name, do := range map[string]func() (KeySet, error){
		"revoke":   func() (KeySet, error) { return s.Revoke(because(t0, "lost"), testKey(0).ID(), RevokeOptions{}) },
		"remove":   func() (KeySet, error) { return s.Remove(change(t0), testKey(1).ID(), Removal{NeverSigned: true}) },
		"retire":   func() (KeySet, error) { return s.Retire(change(t0), testKey(0).ID(), Evidence{Statement: "x"}) },
		"promote":  func() (KeySet, error) { return s.Promote(forced(t0), testKey(1).ID(), Observed{}) },
		"withdraw": func() (KeySet, error) { return s.Withdraw(forced(t0)) },
	} {
		got, err := do()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if n := len(must(got.MarshalJSON())); n > MaxDocument || got.check() != nil {
			t.Errorf("%s: it cannot be written, with %d bytes: %v", name, n, got.check())
		}
	}
}

func TestReasonsAreBounded(t *testing.T) {
	s := newSet(t, awsPolicy())
	if _, err := s.SetPolicy(because(t0, strings.Repeat("x", maxReason+1)), awsPolicy()); err == nil || !strings.Contains(err.Error(), "the reason has 4097 bytes") {
		t.Errorf("error %v", err)
	}
	private := must(json.Marshal(map[string]string{"kty": "EC", "crv": "P-256", "d": strings.Repeat("x", 43)}))
	for _, text := range []string{string(private), "-----BEGIN PRIVATE KEY-----"} {
		if _, err := s.SetPolicy(because(t0, text), awsPolicy()); !errors.Is(err, ErrPrivateKey) {
			t.Errorf("a private key as the reason: error %v", err)
		}
	}
	if _, err := New(Change{At: t0, By: strings.Repeat("x", maxBy+1)}, Spec{Name: "a", Keys: []VerificationKey{testKey(0)}}); err == nil || !strings.Contains(err.Error(), "who changes it 1025") {
		t.Errorf("error %v", err)
	}
}
