package keystore

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"strings"
	"testing"
)

// nextPrime returns the first prime after n.
func nextPrime(n *big.Int) *big.Int {
	p := new(big.Int).SetBit(n, 0, 1)
	for !p.ProbablyPrime(10) {
		p = new(big.Int).Add(p, big.NewInt(2))
	}
	return p
}

// rocaPrime makes a prime of the form that Infineon's library makes: k*M + (65537^a mod M), with M the product of the
// first 39 primes.
func rocaPrime(t *testing.T, k, a int64) *big.Int {
	t.Helper()
	m := big.NewInt(1)
	for p, n := int64(2), 0; n < 39; p++ {
		if big.NewInt(p).ProbablyPrime(0) {
			m.Mul(m, big.NewInt(p))
			n++
		}
	}
	base := new(big.Int).Lsh(big.NewInt(k), uint(1024-m.BitLen()-2))
	rest := new(big.Int).Exp(big.NewInt(65537), big.NewInt(a), m)
	for {
		p := new(big.Int).Mul(base, m)
		if p.Add(p, rest).ProbablyPrime(10) {
			return p
		}
		base.Add(base, big.NewInt(1))
	}
}

// weakKeys can all be factored, or forged for, by anybody.
func weakKeys(t *testing.T) map[string]*rsa.PublicKey {
	one := big.NewInt(1)
	good := rsaPublic(2048)
	prime := nextPrime(new(big.Int).Lsh(big.NewInt(3), 1022))
	longPrime := nextPrime(new(big.Int).Lsh(big.NewInt(3), 2046))
	near := nextPrime(new(big.Int).Add(prime, new(big.Int).Lsh(one, 500)))
	times := func(n int64) *big.Int {
		q := new(big.Int).Quo(good.N, big.NewInt(n))
		return new(big.Int).Mul(q.SetBit(q, 0, 1), big.NewInt(n))
	}
	mersenne := new(big.Int).Sub(new(big.Int).Lsh(one, 2048), one)
	p, q := rocaPrime(t, 5, 12345), rocaPrime(t, 7, 54321)
	return map[string]*rsa.PublicKey{
		"its RSA exponent is 3":                  {N: good.N, E: 3},
		"its RSA exponent is 5":                  {N: good.N, E: 5},
		"its RSA exponent is 65535":              {N: good.N, E: 65535},
		"its RSA exponent is 65539":              {N: good.N, E: 65539},
		"a small factor, 3":                      {N: times(3), E: 65537},
		"a small factor, 65537":                  {N: times(65537), E: 65537},
		"a small factor, the largest":            {N: times(131071), E: 65537},
		"a small factor, a Fermat number":        {N: new(big.Int).Add(new(big.Int).Lsh(one, 2047), one), E: 65537},
		"a small factor, a Mersenne number":      {N: mersenne, E: 65537},
		"is a prime":                             {N: longPrime, E: 65537},
		"so close together: a square":            {N: new(big.Int).Mul(prime, prime), E: 65537},
		"so close together: twins":               {N: new(big.Int).Mul(prime, nextPrime(new(big.Int).Add(prime, big.NewInt(2)))), E: 65537},
		"so close together: half their bits":     {N: new(big.Int).Mul(prime, near), E: 65537},
		"can be factored (ROCA, CVE-2017-15361)": {N: new(big.Int).Mul(p, q), E: 65537},
	}
}

func TestWeakKeysAreNotTakenIn(t *testing.T) {
	s := newSet(t, awsPolicy())
	weak := map[string]VerificationKey{}
	for name, k := range weakKeys(t) {
		weak[name] = mustPublic(t, k)
	}
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		g := curve.Params()
		size := (g.BitSize + 7) / 8
		for name, y := range map[string]*big.Int{"the generator of ": g.Gy, "the generator of its curve or the negative: ": new(big.Int).Sub(g.P, g.Gy)} {
			point := append([]byte{4}, append(g.Gx.FillBytes(make([]byte, size)), y.FillBytes(make([]byte, size))...)...)
			weak[name+g.Name] = mustPublic(t, must(ecdsa.ParseUncompressedPublicKey(curve, point)))
		}
	}
	for name, k := range weak {
		want, _, _ := strings.Cut(name, ",")
		want, _, _ = strings.Cut(want, ":")
		if strings.HasPrefix(name, "the generator of P-") {
			want = "the generator of its curve"
		}
		for how, take := range map[string]func() (KeySet, error){
			"new": func() (KeySet, error) {
				return New(change(t0), Spec{Name: "prod-a", Issuers: urls("https://oidc.example.com"), Keys: []VerificationKey{k}})
			},
			"add": func() (KeySet, error) { return s.Add(change(t0), k) },
			"replacement": func() (KeySet, error) {
				return s.Revoke(because(t0, "lost"), testKey(0).ID(), RevokeOptions{Replacement: &k})
			},
		} {
			if _, err := take(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "make a new key") {
				t.Errorf("%s: %s: error %v", name, how, err)
			}
		}
		// What is stored, or served already, goes on: a cluster may sign with it, and it has to be possible to revoke it.
		d := tree(t, s)
		specOf(d)["keys"] = append(specOf(d)["keys"].([]any), keyEntry(Key{VerificationKey: k, State: Active, PublishedAt: t0, PromotedAt: t0})) //nolint:forcetypeassert // the test wrote it
		stored, err := parseTree(d)
		if err != nil {
			t.Errorf("%s: stored: %v", name, err)
			continue
		}
		if _, err := stored.Revoke(because(t0, "weak"), k.ID(), RevokeOptions{}); err != nil {
			t.Errorf("%s: it cannot be revoked: %v", name, err)
		}
	}
}

func TestHonestKeysAreTakenIn(t *testing.T) {
	var keys []VerificationKey
	for range 3 {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, mustPublic(t, k.Public()))
	}
	keys = append(keys, mustPublic(t, rsaPrivate().Public()), mustPublic(t, rsaPublic(3072)), mustPublic(t, rsaPublic(4096)))
	for n, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		keys = append(keys, mustPublic(t, ecPrivate(curve, n).Public()))
	}
	for _, k := range keys {
		if err := k.CheckStrength(); err != nil {
			t.Error(err)
		}
	}
}
