// Package issuer publishes key sets as the two documents that relying parties fetch. It promises that what is served
// is always a whole, checked version of a key set: everything is computed when a key set is published, a request
// only looks up and writes, and whatever goes wrong with a later version, the last good one stays.
//
// Data flows one way: a keystore.Reader is read by a [Publisher], whose last good versions a
// [Handler] serves.
package issuer

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"

	"github.com/keypost/keypost/keystore"
)

// Paths of the documents below an issuer URL. The JWKS is served under both of its paths with the same bytes:
// keys.json is where ccoctl puts it and jwks_uri points, the other is where newer OpenShift sends relying parties
// for any custom issuer.
const (
	DiscoveryPath = "/.well-known/openid-configuration" // OpenID Connect Discovery 1.0, section 4
	JWKSPath      = "/keys.json"
	JWKSAliasPath = "/openid/v1/jwks"
)

// discovery has the members that AWS lists as prerequisites, in a fixed order. There is no authorization endpoint
// and no token endpoint, as in kube-apiserver's own document: nobody logs in here.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
type discovery struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	Claims        []string `json:"claims_supported"`
}

// jwk has the members of RFC 7517 and RFC 7518 that every relying party takes, and no place for a private one. GCP
// refuses others such as x5c and key_ops.
type jwk struct {
	Kty string `json:"kty"`
	Alg string `json:"alg"`
	Use string `json:"use"`
	Kid string `json:"kid"`
	N   string `json:"n,omitempty"`
	E   string `json:"e,omitempty"`
	Crv string `json:"crv,omitempty"`
	X   string `json:"x,omitempty"`
	Y   string `json:"y,omitempty"`
}

// RenderJWKS returns the JWKS of a key set: its keys in order of their kid, so that replicas serve equal bytes.
func RenderJWKS(s keystore.KeySet) ([]byte, error) {
	set := struct {
		Keys []jwk `json:"keys"`
	}{[]jwk{}}
	for _, k := range s.Keys() {
		j, err := renderJWK(k.VerificationKey)
		if err != nil {
			return nil, fmt.Errorf("render key %s: %w", k.ID(), err)
		}
		set.Keys = append(set.Keys, j)
	}
	return json.Marshal(set)
}

func renderJWK(p keystore.VerificationKey) (jwk, error) {
	j := jwk{Alg: p.Alg(), Use: "sig", Kid: string(p.ID())}
	switch k := p.Key().(type) {
	case *rsa.PublicKey: // RFC 7518, section 6.3.1: minimal big-endian numbers
		j.Kty, j.N, j.E = "RSA", b64(k.N.Bytes()), b64(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PublicKey: // RFC 7518, section 6.2.1: coordinates padded to the size of the curve
		point, err := k.Bytes() // 0x04, X, Y
		if err != nil {
			return jwk{}, err
		}
		size := (len(point) - 1) / 2
		j.Kty, j.Crv, j.X, j.Y = "EC", k.Curve.Params().Name, b64(point[1:1+size]), b64(point[1+size:])
	default:
		return jwk{}, fmt.Errorf("it is a %T", k)
	}
	return j, nil
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// RenderDiscovery returns the discovery document of one of a key set's issuer URLs.
func RenderDiscovery(s keystore.KeySet, u keystore.IssuerURL) ([]byte, error) {
	return json.Marshal(discovery{
		Issuer:        u.String(),
		JWKSURI:       u.String() + JWKSPath,
		ResponseTypes: []string{"id_token"},
		SubjectTypes:  []string{"public"},
		Algorithms:    algorithms(s.Keys()),
		Claims:        []string{"aud", "exp", "iat", "iss", "sub"},
	})
}

// algorithms lists those of the keys. Without a key it names RS256, the one that OpenID Connect requires in any
// case: the member is required and must not be an empty array (Discovery 1.0, sections 3 and 4.2).
func algorithms(keys []keystore.Key) []string {
	var algs []string
	for _, k := range keys {
		algs = append(algs, k.Alg())
	}
	if len(algs) == 0 {
		return []string{"RS256"}
	}
	slices.Sort(algs)
	return slices.Compact(algs)
}
