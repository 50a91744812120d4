// Package weakkey recognises public keys whose private half can be computed from the public one, or for which anybody can forge
// signatures.
package weakkey

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"fmt"
	"math/big"
	"sync"
)

// rsaExponent is the one that every generator uses, so that a key with another was changed on its way. Verifiers with a flaw in
// their padding check let signatures for small exponents be forged without the key (CVE-2006-4339 and its successors).
const rsaExponent = 65537

// Check returns why an *rsa.PublicKey or *ecdsa.PublicKey is weak, nil if nothing shows that it is.
//
// The choice of tests follows package goodkey of Let's Encrypt's Boulder.
func Check(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return checkRSA(k)
	case *ecdsa.PublicKey:
		if isGenerator(k) {
			return errors.New("its point is the generator of its curve or the negative of it, so its private key is known to be 1 or -1")
		}
	}
	return nil
}

// isGenerator compares the x coordinates, as the negative of a point has the same.
func isGenerator(k *ecdsa.PublicKey) bool {
	g := k.Params()
	point, err := k.Bytes() // 4, x, y
	x := g.Gx.FillBytes(make([]byte, (g.BitSize+7)/8))
	return err == nil && bytes.HasPrefix(point[1:], x)
}

func checkRSA(k *rsa.PublicKey) error {
	switch {
	case k.E != rsaExponent:
		return fmt.Errorf("its RSA exponent is %d; it has to be %d", k.E, rsaExponent)
	case hasSmallFactor(k.N):
		return errors.New("its RSA modulus has a small factor")
	case isROCA(k.N):
		return errors.New("it was made by a flawed Infineon library and can be factored (ROCA, CVE-2017-15361)")
	case k.N.ProbablyPrime(0):
		return errors.New("its RSA modulus is a prime, so it is not an RSA key")
	case closePrimes(k.N):
		return errors.New("the two primes of its RSA modulus are so close together that it can be factored")
	}
	return nil
}

// smallPrimes bounds the factors that are looked for. It is large enough for accidents such as a modulus that is a
// multiple of the exponent. Larger factors come from nobody but a forger, take hours to find at 64 bits, and give the forger nothing
// that a good key of their own would not.
const smallPrimes = 1 << 17

// product has every prime below smallPrimes as a factor: it is the product of all numbers below.
var product = sync.OnceValue(func() *big.Int { return new(big.Int).MulRange(1, smallPrimes-1) }) //nolint:gochecknoglobals // built once, and never changed

// hasSmallFactor reports whether a prime below smallPrimes divides n.
func hasSmallFactor(n *big.Int) bool {
	return new(big.Int).GCD(nil, nil, n, new(big.Int).Mod(product(), n)).Cmp(big.NewInt(1)) > 0
}

// isROCA reports whether n has the form of the keys of Infineon's RSALib: each of its primes is a power of 65537
// modulo a product of small primes. Then n is one too, modulo every one of them. Other keys have that form with a
// probability of 2^-27 or less.
//
// Source: Nemec and others, The Return of Coppersmith's Attack (CCS 2017), section 3.
func isROCA(n *big.Int) bool {
	for _, p := range []int64{
		3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
	} {
		rest := new(big.Int).Mod(n, big.NewInt(p)).Int64()
		power, is := int64(1), false
		for range p {
			is = is || power == rest
			power = power * 65537 % p
		}
		if !is {
			return false
		}
	}
	return true
}

// fermatRounds find any two primes of 2,048 bits whose difference begins after the first half of their bits. Honest
// generators never come near that.
const fermatRounds = 100

// closePrimes tries Fermat's factorization: n = a²-b² with a just above the root of n. It also finds squares.
func closePrimes(n *big.Int) bool {
	a := new(big.Int).Sqrt(n)
	if new(big.Int).Mul(a, a).Cmp(n) != 0 {
		a.Add(a, big.NewInt(1))
	}
	for range fermatRounds {
		square := new(big.Int).Mul(a, a)
		square.Sub(square, n)
		if b := new(big.Int).Sqrt(square); new(big.Int).Mul(b, b).Cmp(square) == 0 {
			return true
		}
		a.Add(a, big.NewInt(1))
	}
	return false
}
