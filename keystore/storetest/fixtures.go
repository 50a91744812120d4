package storetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
)

// Time returns a fixed time in the past plus d, for a [keystore.Change].
func Time(d time.Duration) time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(d)
}

// Change returns a change at [Time] plus d that may pass gates.
func Change(d time.Duration) keystore.Change {
	return keystore.Change{At: Time(d), By: "storetest", Why: "test", Force: true}
}

// Key returns a new P-256 verification key.
func Key(t testing.TB) keystore.VerificationKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return public(t, &k.PublicKey)
}

// SyntheticRSA returns a verification key of 2,048 bits that has no private half and took no time to make; n
// selects one of many.
func SyntheticRSA(t testing.TB, n int64) keystore.VerificationKey {
	t.Helper()
	var bits []byte
	for i := range 2048 / (8 * sha256.Size) {
		sum := sha256.Sum256(fmt.Appendf(nil, "modulus %d, part %d", n, i))
		bits = append(bits, sum[:]...)
	}
	modulus := new(big.Int).SetBytes(bits)
	modulus.SetBit(modulus.SetBit(modulus, 2047, 1), 0, 1)
	return public(t, &rsa.PublicKey{N: modulus, E: 65537})
}

func public(t testing.TB, key any) keystore.VerificationKey {
	t.Helper()
	p, err := keystore.NewPublic(key)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// KeySet returns a key set of generation 1 with the issuer URL https://oidc.example.com/NAME and the given keys, or
// one new key.
func KeySet(t testing.TB, n keystore.Name, keys ...keystore.VerificationKey) keystore.KeySet {
	t.Helper()
	if len(keys) == 0 {
		keys = []keystore.VerificationKey{Key(t)}
	}
	s, err := keystore.New(keystore.Change{At: Time(0), By: "storetest"}, keystore.Spec{
		Name: n, Issuers: URLs(t, "https://oidc.example.com/"+string(n)), Keys: keys,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// URLs parses issuer URLs as a development issuer may have them: [keystore.New] checks them again.
func URLs(t testing.TB, raw ...string) []keystore.IssuerURL {
	t.Helper()
	var list []keystore.IssuerURL
	for _, r := range raw {
		u, err := keystore.ParseIssuerURL(r, true)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, u)
	}
	return list
}

// Text returns a key set's document.
func Text(t testing.TB, s keystore.KeySet) string {
	t.Helper()
	data, err := keystore.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Mark returns a change for [keystore.Update] that leaves a mark: no update is lost when every mark is there.
func Mark(mark string) func(keystore.KeySet) (keystore.KeySet, error) {
	return func(s keystore.KeySet) (keystore.KeySet, error) {
		p := s.Policy()
		p.RelyingParties = append(slices.Clone(p.RelyingParties), mark)
		c := Change(0)
		c.Why = mark // two people never leave the same line of history
		return s.SetPolicy(c, p)
	}
}

// Marks returns what [Mark] left, oldest first.
func Marks(s keystore.KeySet) []string { return s.Policy().RelyingParties }

// Full returns a key set with every field set, with values that a careless encoding would lose: nanoseconds, another
// time zone, strings that look like YAML numbers or booleans.
func Full(t testing.TB, n keystore.Name) keystore.KeySet {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"apiVersion": keystore.APIVersion, "kind": keystore.Kind,
		"metadata": map[string]any{
			"name":        n,
			"labels":      map[string]string{"team": "on", "tier": "1e3"},
			"annotations": map[string]string{"note": "two\nlines: and a colon # no comment", "empty": ""},
		},
		"spec": map[string]any{
			"generation": 1<<40 - 2, // nearly the most that a publisher begins with
			"issuers":    []string{"https://oidc.example.com/" + string(n), "https://" + string(n) + ".oidc.example.com"},
			"keys":       fullKeys(t),
			"gone": []any{
				map[string]any{"kid": "0x1F", "fingerprint": "000000000000000000000000000000000000000031A", "at": "2025-12-31T23:59:59.999999999Z", "why": keystore.Removed},
				map[string]any{"kid": "~null", "fingerprint": "000000000000000000000000000000000000000032A", "at": "2025-12-30T01:00:00+02:00", "why": keystore.Revoked},
				map[string]any{"kid": "1e4", "fingerprint": Key(t).Fingerprint(), "at": "2025-12-31T00:00:00Z", "why": keystore.Removed,
					"publishedAt": "2024-01-01T00:00:00.000000001Z", "promotedAt": "2024-01-02T01:00:00+01:00", "retiredAt": "2025-01-01T00:00:00.5Z"},
			},
			"policy": map[string]any{
				"maxAge": "5m", "staleWhileRevalidate": "0s", "staleIfError": "24h", "edgeHold": "1h30m",
				"relyingParties": []string{"aws", "no"}, "tokenLifetime": "1h", "origins": []string{"origin.example.com:8443"}, "private": true, "observeFrom": []string{"on", "1e3"},
				"heldUntil": []any{map[string]any{"until": "2026-02-01T00:00:00Z", "edge": "48h", "client": "24h", "tokenLifetime": "24h"}},
			},
			"rotation": map[string]any{"id": "r-1", "by": "ops: you", "kid": "1e3", "step": "observe"},
			"history":  []any{map[string]any{"at": "2026-01-01T00:00:00Z", "by": "yes", "what": "add key", "why": "\t'quoted' \"text\" – ünïcode", "forced": true}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := keystore.Parse(n, data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fullKeys(t testing.TB) []any {
	next, active, retired := Key(t), Key(t), SyntheticRSA(t, 1)
	return []any{
		map[string]any{"kid": next.ID(), "publicKey": pemOf(t, next), "alg": "ES256", "state": keystore.Next,
			"publishedAt": "2026-01-01T00:00:00.5Z", "observedAt": "2026-01-01T00:00:01.123456789Z"},
		map[string]any{"kid": "1e3", "importedKid": true, "publicKey": pemOf(t, active), "alg": "ES256", "state": keystore.Active,
			"publishedAt": "2026-01-01T00:00:00Z", "promotedAt": "2026-01-01T02:00:00+02:00"},
		map[string]any{"kid": retired.ID(), "publicKey": pemOf(t, retired), "alg": "RS512", "state": keystore.Retired,
			"publishedAt": "2025-01-01T00:00:00Z", "observedAt": "2025-01-02T00:00:00Z", "promotedAt": "2025-01-03T00:00:00Z", "retiredAt": "2026-01-01T00:00:00Z"},
	}
}

func pemOf(t testing.TB, p keystore.VerificationKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(p.Key())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// large returns a key set about as large as real ones ever get: 60 keys, and years of rotations behind it.
func large(t testing.TB, n keystore.Name) keystore.KeySet {
	t.Helper()
	keys := make([]keystore.VerificationKey, 60)
	for i := range keys {
		keys[i] = Key(t)
	}
	spec := keystore.Spec{Name: n, Issuers: URLs(t, "https://oidc.example.com/"+string(n)), Keys: keys}
	for i := range 200 {
		spec.Gone = append(spec.Gone, goneLine(i))
	}
	s, err := keystore.New(Change(0), spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// goneLine is a line in gone of a key that is nobody's, another one for each i.
func goneLine(i int) keystore.Gone {
	f := fmt.Sprintf("%042dA", i) // the last character has bits that are 0
	return keystore.Gone{ID: keystore.KeyID(fmt.Sprintf("gone-%038d", i)), Fingerprint: keystore.Fingerprint(f), At: Time(0), Why: keystore.Removed}
}
