package lastgood

import (
	"crypto/elliptic"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/keys"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// many returns how often a random test runs: less by default, since anyone who changes a line waits for it.
func many(long, short uint64) uint64 {
	if os.Getenv("KEYPOST_LONG") != "" {
		return long
	}
	return short
}

var keyCache sync.Map // of testKey: the arithmetic is slow under the race detector

// testKey returns the n-th key of the tests, the same in every run.
func testKey(n int) keystore.VerificationKey {
	if k, ok := keyCache.Load(n); ok {
		return k.(keystore.VerificationKey) //nolint:forcetypeassert // stored below
	}
	k := must(keystore.NewPublic(keys.EC(elliptic.P256(), n).Public()))
	keyCache.Store(n, k)
	return k
}

func publicPEM(n int) string { return keys.PEM("PUBLIC KEY", keys.SPKI(testKey(n).Key())) }

// published is key n in a document, under another kid than the computed one unless that is empty.
func published(n int, kid string) map[string]any {
	entry := map[string]any{"kid": string(testKey(n).ID()), "publicKey": publicPEM(n), "alg": testKey(n).Alg(), "state": keystore.Active, "publishedAt": t0, "promotedAt": t0}
	if kid != "" {
		entry["kid"], entry["importedKid"] = kid, true
	}
	return entry
}

// line is a line in gone.
func line(kid, fingerprint string) map[string]any {
	return map[string]any{"kid": kid, "fingerprint": fingerprint, "at": t0, "why": keystore.Removed}
}

// doc is a document that somebody writes with an editor: nothing stops it from breaking rules.
type doc struct {
	name       string
	generation int64
	issuers    []string // default: https://oidc.example.com/NAME
	keys, gone []int    // numbers of testKey, under their computed kids
	entries    []any    // besides keys
	lines      []any    // besides gone
	withdrawn  bool
	dev        bool
	maxAge     string
}

func (d doc) tree() map[string]any {
	if d.issuers == nil {
		d.issuers = []string{"https://oidc.example.com/" + d.name}
	}
	keys, gone := append([]any{}, d.entries...), append([]any{}, d.lines...)
	for _, n := range d.keys {
		keys = append(keys, published(n, ""))
	}
	for _, n := range d.gone {
		gone = append(gone, line(string(testKey(n).ID()), string(testKey(n).Fingerprint())))
	}
	spec := map[string]any{"generation": d.generation, "issuers": d.issuers, "keys": keys, "gone": gone, "dev": d.dev}
	if d.withdrawn {
		spec["withdrawnAt"] = t0
	}
	if d.maxAge != "" {
		spec["policy"] = map[string]any{"maxAge": d.maxAge}
	}
	return map[string]any{"apiVersion": keystore.APIVersion, "kind": keystore.Kind, "metadata": map[string]any{"name": d.name}, "spec": spec}
}

func parseTree(name string, tree map[string]any) (keystore.KeySet, error) {
	return keystore.Parse(keystore.Name(name), must(json.Marshal(tree)))
}

func (d doc) summary(t testing.TB) *Summary {
	t.Helper()
	s, err := parseTree(d.name, d.tree())
	if err != nil {
		t.Fatalf("%+v: %v", d, err)
	}
	sum := SummaryOf(s)
	return &sum
}

func reasonOf(r *Rejection) keystore.Reason {
	if r == nil {
		return ""
	}
	return r.Reason
}
