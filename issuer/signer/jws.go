package signer

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	_ "crypto/sha256" // hashOf
	_ "crypto/sha512" // hashOf
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
)

// hashOf returns the hash of an algorithm, 0 for one that a kube-apiserver takes from no signer.
//
// Source: validateJWTHeader in pkg/serviceaccount/externaljwt/plugin.
func hashOf(alg string) crypto.Hash {
	return map[string]crypto.Hash{"RS256": crypto.SHA256, "ES256": crypto.SHA256, "ES384": crypto.SHA384, "ES512": crypto.SHA512}[alg]
}

// sign returns the third segment of a token whose second is claims. It verifies the signature first: a kube-apiserver does not, and
// would give out a token that everybody refuses.
//
// Source: RFC 7518, sections 3.3 and 3.4.
func (s *signing) sign(ctx context.Context, claims string) (string, error) {
	hash := hashOf(s.alg)
	h := hash.New()
	h.Write([]byte(s.header + "." + claims))
	digest := h.Sum(nil)
	signature, err := s.key.Sign(ctx, digest, hash)
	if err != nil {
		return "", err
	}
	switch public := s.public.(type) {
	case *rsa.PublicKey:
		err = rsa.VerifyPKCS1v15(public, hash, digest, signature)
	case *ecdsa.PublicKey:
		if !ecdsa.VerifyASN1(public, digest, signature) {
			err = errors.New("the signature does not verify")
		} else {
			signature, err = fixedWidth(signature, (public.Params().BitSize+7)/8)
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", errWrongSignature, err)
	}
	return base64.RawURLEncoding.EncodeToString(signature), nil
}

var errWrongSignature = errors.New("the key service gave a wrong signature")

// fixedWidth turns an ECDSA signature in ASN.1 into R and S of size bytes each.
func fixedWidth(signature []byte, size int) ([]byte, error) {
	var rs struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(signature, &rs); err != nil {
		return nil, err
	}
	fixed := make([]byte, 2*size)
	rs.R.FillBytes(fixed[:size])
	rs.S.FillBytes(fixed[size:])
	return fixed, nil
}
