package keycmd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/storetest"
)

// What is put back over a revocation is written over, and what was changed since stays.
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
			next, err = next.Accept(keystore.Change{At: at, Why: "x"}, s.Generation(), nil)
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
	for name, tc := range map[string]struct {
		stored  []byte
		warned  bool
		message string // of what is left undone
		least   int64  // generation
		keys    int
	}{
		"as it was written":      {encoded(t, revoked), false, "", revoked.Generation(), 2},
		"changed since":          {encoded(t, then(revoked, adding(at, storetest.Key(t)))), false, "", revoked.Generation() + 1, 3},
		"an older one put back":  {encoded(t, first), true, "whether the store keeps the revocation", revoked.Generation() + 1, 2},
		"edited, without a line": {encoded(t, edited), true, "whether the store keeps the revocation", edited.Generation() + 1, 4},
		"broken":                 {[]byte("<<<<<<<"), false, "is broken", 0, 0},
		"lost":                   {nil, false, "no such key set", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			mem := storetest.NewMemStore(t)
			if tc.stored != nil {
				mem.Set("prod-a", tc.stored)
			}
			var said bytes.Buffer
			o := &revokeOptions{Factory: &cli.Factory{Err: &said}, why: "stolen"}
			st := keystore.NewStore(mem)
			kept, undone := o.keep(t.Context(), st, revoked)
			if left := strings.Join(undone, "; "); (tc.message == "") != (left == "") || !strings.Contains(left, tc.message) {
				t.Errorf("undone %q, want %q", left, tc.message)
			}
			if warned := strings.Contains(said.String(), "something put generation"); warned != tc.warned {
				t.Errorf("said %q", said.String())
			}
			if _, gone := kept.GoneLine(a); !gone {
				t.Error("the comparison goes on without the revocation")
			}
			now, err := catalog.Load(t.Context(), st, "prod-a")
			if tc.keys == 0 {
				if err == nil {
					t.Errorf("generation %d is stored", now.Generation())
				}
				return
			}
			if _, gone := now.GoneLine(a); err != nil || !gone || now.Generation() < tc.least || len(now.Keys()) != tc.keys {
				t.Errorf("stored: generation %d with %d keys, revoked %t, %v; want %d and %d", now.Generation(), len(now.Keys()), gone, err, tc.least, tc.keys)
			}
			if k, there := now.Key(c.ID()); there && k.State != keystore.Next {
				t.Errorf("the next key is %s", k.State)
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
