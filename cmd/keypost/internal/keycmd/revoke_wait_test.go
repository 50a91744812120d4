package keycmd

import (
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// What is put back over a revocation is told, and the comparison goes on with what does not lose it. Nothing is written.
func TestKeep(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	a, b, c := storetest.Key(t), storetest.Key(t), storetest.Key(t)
	first, err := keystore.New(keystore.Change{At: at}, keystore.Spec{
		Name: "prod-a", Issuers: storetest.URLs(t, "https://oidc.example.com/prod-a"), Keys: []keystore.VerificationKey{a, b},
	})
	if err != nil {
		t.Fatal(err)
	}
	then := func(s keystore.KeySet, change func(keystore.KeySet) (keystore.KeySet, error)) keystore.KeySet { // the next generation
		t.Helper()
		next, err := change(s)
		if err == nil {
			next, err = next.Accept(keystore.Change{At: at, Why: "x"}, s.Generation(), keystore.Decided{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	revoke := func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Revoke(keystore.Change{At: at, Why: "stolen"}, a.ID(), keystore.RevokeOptions{})
	}
	withNext := then(first, adding(at, c))
	revoked := then(withNext, revoke)
	edited := then(then(then(first, adding(at, c)), adding(at, storetest.Key(t))), adding(at, storetest.Key(t))) // later than revoked, and without its line
	later := then(revoked, adding(at, storetest.Key(t)))
	for name, tc := range map[string]struct {
		stored  []byte
		undone  string
		compare keystore.KeySet
	}{
		"as it was written":      {encoded(t, revoked), "", revoked},
		"changed since":          {encoded(t, later), "", later},
		"an older one put back":  {encoded(t, first), "something put generation 1 of the key set back", revoked},
		"edited, without a line": {encoded(t, edited), "which does not have the revocation", revoked},
		"broken":                 {[]byte("<<<<<<<"), "is broken", revoked},
		"lost":                   {nil, "no such key set", revoked},
	} {
		t.Run(name, func(t *testing.T) {
			mem := storetest.NewMemStore(t)
			if tc.stored != nil {
				mem.Set("prod-a", tc.stored)
			}
			kept, undone := keep(t.Context(), keystore.NewStore(mem), revoked)
			if left := strings.Join(undone, "; "); (tc.undone == "") != (left == "") || !strings.Contains(left, tc.undone) {
				t.Errorf("undone %q, want %q", left, tc.undone)
			}
			if kept.Digest() != tc.compare.Digest() {
				t.Errorf("it is compared with generation %d", kept.Generation())
			}
		})
	}
}

// adding returns the change that publishes a key as next.
func adding(at time.Time, k keystore.VerificationKey) func(keystore.KeySet) (keystore.KeySet, error) {
	return func(s keystore.KeySet) (keystore.KeySet, error) { return s.Add(keystore.Change{At: at}, k) }
}

func encoded(t *testing.T, s keystore.KeySet) []byte {
	t.Helper()
	doc, err := keystore.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}
