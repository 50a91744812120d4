package keystore

import (
	"crypto/elliptic"
	"testing"
	"time"

	"github.com/keypost/keypost/test/keys"
)

var (
	ecPrivate  = keys.EC
	rsaPublic  = keys.PublicRSA
	rsaPrivate = keys.NewRSA()
	pemOf      = keys.PEM
	spki       = keys.SPKI

	certificate = keys.Certificate
)

const devSlack = 5 * time.Second // of package gate

// t0 is where the virtual clocks of the tests begin.
var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// testKey is the n-th of the ECDSA verification keys that the tests use.
func testKey(n int) VerificationKey { return must(NewPublic(ecPrivate(elliptic.P256(), n).Public())) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// change is an ordinary change at that time.
func change(at time.Time) Change { return Change{At: at, By: "tester"} }

// because is a change with a reason.
func because(at time.Time, why string) Change { return Change{At: at, By: "tester", Why: why} }

// forced is a change that passes closed gates.
func forced(at time.Time) Change { return Change{At: at, By: "tester", Why: "a test", Force: true} }

// awsPolicy has the numbers with which the examples of the gates reckon: edge 24h10m, client 1h.
func awsPolicy() Policy {
	return Policy{RelyingParties: []string{"aws"}, TokenLifetime: DurationPtr(time.Hour)}
}

// newSet makes key set prod-a at t0 with one active key, number 0.
func newSet(t testing.TB, p Policy) KeySet {
	t.Helper()
	s, err := New(change(t0), Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com/prod-a"), Keys: []VerificationKey{testKey(0)}, Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// seen is what is known of a key that every answer has had since then, by a look that ended at fresh.
func seen(since, fresh time.Time) Observed {
	return Observed{Since: since, Fresh: fresh, Cache: Cache{MaxAge: 5 * time.Minute}}
}

// step applies a transition that has to succeed.
func step(t testing.TB) func(KeySet, error) KeySet {
	return func(s KeySet, err error) KeySet {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// urls parses issuer URLs as a development issuer may have them: New checks them again.
func urls(raw ...string) []IssuerURL {
	var list []IssuerURL
	for _, r := range raw {
		list = append(list, must(ParseIssuerURL(r, true)))
	}
	return list
}
