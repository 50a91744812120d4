package keystore_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

const (
	firstPEM = `-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf/y8hQ8ENy4CrS7gJB7I5BM4Scoc
QgDRZk1y4XtaJ/f6P19b5Olct54cHcGeXQldHC0v2GLnZEHxjkJZciJ4aA==
-----END PUBLIC KEY-----
`
	secondPEM = `-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAq+uyxTT2rFma9hzydzt/
Pcclqeg1JC+ECPJ+vzoBpL30aiVRwvwSA+ny5RYw8RNFGVnqnCKOwAK007XLIIsf
VcMXr1rz+ju7orOiPMnaFLBp6aFJj+MrBn3aSQfdSpNVlcx5J3A/UA2BiAs0cpMl
g497RIpuOrWP8L/C9eq0oY29VMVn4y6dCMbt/5mgF1hA9gwG9xQynwIlmwOd9GCZ
B/GjmkgVGYheTGjrXe9ogLpfdiPe7zesKnIgHkLw12F/zfGBuB6EVJLcquVgE27Z
MW4XQUwWGsxIbgvraMrJgt/bB4ZB70GrYe/2G2OqXtNZoNZa2kalkaEJwlPUDtWv
/wIDAQAB
-----END PUBLIC KEY-----
`
)

// A key set begins with the keys that a cluster signs with already. A key that is added later may not sign until it has
// been visible for longer than every cache that could hide it.
func Example() {
	keys, err := pubkey.Parse("sa.pub", []byte(firstPEM+secondPEM))
	if err != nil {
		fmt.Println(err)
		return
	}
	u, err := keystore.ParseIssuerURL("https://oidc.example.com/prod-a", false)
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s, err := keystore.New(keystore.Change{At: at, By: "alice"}, keystore.Spec{
		Name:    "prod-a",
		Issuers: []keystore.IssuerURL{u},
		Keys:    keys[:1],
		Policy:  keystore.Policy{RelyingParties: []string{"aws"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	next := keys[1]
	if s, err = s.Add(keystore.Change{At: at.Add(time.Hour), By: "alice"}, next); err != nil {
		fmt.Println(err)
		return
	}
	for _, k := range s.Keys() {
		fmt.Println(k.State, k.Alg(), k.ID()[:8])
	}

	_, err = s.Promote(keystore.Change{At: at.Add(2 * time.Hour), By: "alice"}, next.ID(), keystore.Observed{})
	notYet, refused := errors.AsType[*keystore.NotYetError](err)
	if !refused {
		fmt.Println("not refused:", err)
		return
	}
	fmt.Println("closed:", notYet.Step, "until", notYet.Earliest.Format(time.RFC3339), "at the earliest")
	for _, t := range notYet.Terms {
		fmt.Println("-", t.What, t.Duration)
	}
	// Output:
	// active ES256 KR5wlhF6
	// next RS256 UqgQpsfk
	// closed: promote until 2026-03-02T15:13:15Z at the earliest
	// - convergence 1m15s
	// - edge 24h10m0s
	// - client 1h0m0s
	// - clocks 2m0s
}
