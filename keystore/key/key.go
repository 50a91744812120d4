// Package key is a verification key of a cluster: which ones relying parties take, what a key is called, and the state that it has in a
// key set. It never holds a private key.
package key

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/privatekey"
	"github.com/keypost/keypost/internal/text"
)

// ID is a key's `kid` (RFC 7517, section 4.5).
type ID string

// kidForm admits printable ASCII, as a kid appears in file lists, logs and terminals. External signers choose kids of up
// to 1,024 characters (k8s.io/externaljwt).
var kidForm = regexp.MustCompile(`^[\x21-\x7e]+$`)

// MaxKid is the most characters of a key ID.
const MaxKid = 1024

// Valid reports whether id is 1 to MaxKid printable ASCII characters.
func (id ID) Valid() bool { return len(id) <= MaxKid && kidForm.MatchString(string(id)) }

// ErrPrivateKey is wrapped by the refusal of input that holds a private key.
var ErrPrivateKey = privatekey.ErrFound

// printable keeps control characters and text direction marks of the input out of terminals and logs, and long ones
// short: a computed kid just fits.
func printable(s string) string { return text.OneLine(s, 64) }

// VerificationKey is an RSA or ECDSA public key under its key ID. It cannot hold a private key; a jose.JSONWebKey could,
// and would marshal its private members.
type VerificationKey struct {
	id          ID
	fingerprint Fingerprint
	alg         string
	key         crypto.PublicKey // *rsa.PublicKey or *ecdsa.PublicKey
	der         string           // key in PKIX, which fingerprint and every document are made of
	imported    bool             // the kid came with the key and is not the one that Kubernetes would compute
}

// Limits on RSA moduli, in bits. RFC 7518, section 3.3 asks for 2,048 at least; more than 8,192 is refused by common
// verifiers (Go's crypto/tls among them) and is only a way to make them work.
const (
	minRSABits     = 2048
	maxRSABits     = 8192
	maxRSAExponent = 1<<31 - 1 // crypto/x509 reads no larger one
)

// NewPublic returns an *rsa.PublicKey (2,048 to 8,192 bits) or *ecdsa.PublicKey (P-256, P-384, P-521) under the key ID
// and algorithm that Kubernetes gives it.
//
// Source: keyIDFromPublicKey and signerFromRSAPrivateKey/…ECDSA… in Kubernetes pkg/serviceaccount/jwt.go.
func NewPublic(key crypto.PublicKey) (VerificationKey, error) {
	alg, err := algorithm(key)
	if err != nil {
		return VerificationKey{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return VerificationKey{}, err
	}
	sum := sha256.Sum256(der)
	f := Fingerprint(base64.RawURLEncoding.EncodeToString(sum[:]))
	return VerificationKey{id: ID(f), fingerprint: f, alg: alg, key: key, der: string(der)}, nil
}

func algorithm(key crypto.PublicKey) (string, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return "RS256", checkRSA(k)
	case *ecdsa.PublicKey:
		return algorithmOfCurve(k)
	}
	return "", fmt.Errorf("its type is %s, and AWS, Entra and Google Cloud do not take its tokens; "+
		"let the cluster sign with RSA or ECDSA (P-256, P-384, P-521)", kindOf(key))
}

func checkRSA(k *rsa.PublicKey) error {
	switch bits := k.N.BitLen(); {
	case bits < minRSABits:
		return fmt.Errorf("its RSA modulus has %d bits; at least %d are needed", bits, minRSABits)
	case bits > maxRSABits:
		return fmt.Errorf("its RSA modulus has %d bits; at most %d are accepted", bits, maxRSABits)
	case k.N.Bit(0) == 0:
		return errors.New("its RSA modulus is even, so it is not an RSA key")
	case k.E < 3 || k.E%2 == 0 || k.E > maxRSAExponent:
		return fmt.Errorf("its RSA exponent %d is not an odd number from 3 to %d", k.E, maxRSAExponent)
	}
	return nil
}

func algorithmOfCurve(k *ecdsa.PublicKey) (string, error) {
	if _, err := k.ECDH(); err != nil { // also the check that the point lies on the curve
		if k.Curve == elliptic.P224() {
			return "", errors.New("its curve P-224 is not one of P-256, P-384, P-521")
		}
		return "", errors.New("its point does not lie on its curve")
	}
	return map[elliptic.Curve]string{elliptic.P256(): "ES256", elliptic.P384(): "ES384", elliptic.P521(): "ES512"}[k.Curve], nil
}

// kindOf returns the name that a stand-in for a key of a type that this program cannot read has, or the package of a key.
func kindOf(key crypto.PublicKey) string {
	if named, ok := key.(fmt.Stringer); ok {
		return named.String()
	}
	s := strings.TrimPrefix(fmt.Sprintf("%T", key), "*")
	return strings.TrimSuffix(strings.TrimSuffix(s, ".PublicKey"), "PublicKey")
}

// Fingerprint identifies key material whatever kid it has: the unpadded base64url SHA-256 of its PKIX DER. That is
// also how Kubernetes computes a kid, so a computed kid is the fingerprint of its key.
type Fingerprint string

// Valid reports whether f can be a fingerprint: 32 bytes in the one way to encode them.
func (f Fingerprint) Valid() bool {
	sum, err := base64.RawURLEncoding.Strict().DecodeString(string(f))
	return err == nil && len(sum) == sha256.Size && len(f) == base64.RawURLEncoding.EncodedLen(sha256.Size)
}

// WithID returns the key under the kid and alg that it came with, in a JWK or a document. An empty one leaves what is
// there.
func (p VerificationKey) WithID(id ID, alg string) (VerificationKey, error) {
	if id != "" && id != p.id {
		if !id.Valid() {
			return VerificationKey{}, errors.New("its kid is not 1 to 1024 printable ASCII characters")
		}
		p.id, p.imported = id, true
	}
	if alg == "" || alg == p.alg {
		return p, nil
	}
	if !p.IsRSA() || (alg != "RS384" && alg != "RS512") {
		return VerificationKey{}, fmt.Errorf("its alg %q does not fit a key for %s", printable(alg), p.alg)
	}
	p.alg = alg
	return p, nil
}

// ID returns the key ID.
func (p VerificationKey) ID() ID { return p.id }

// Fingerprint returns what identifies the key material: keys with different IDs are the same key if their
// fingerprints are equal.
func (p VerificationKey) Fingerprint() Fingerprint { return p.fingerprint }

// Alg returns the JWS algorithm (RFC 7518) that tokens of this key carry.
func (p VerificationKey) Alg() string { return p.alg }

// PKIX returns the key as SubjectPublicKeyInfo, in DER (RFC 5280, section 4.1.2.7).
func (p VerificationKey) PKIX() []byte { return []byte(p.der) }

// PEM returns PKIX as one block "PUBLIC KEY", the form of documents and of kube-apiserver's files.
func (p VerificationKey) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: p.PKIX()}))
}

// Key returns the *rsa.PublicKey or *ecdsa.PublicKey. It is shared: do not change it.
func (p VerificationKey) Key() crypto.PublicKey { return p.key }

// Imported reports whether the key ID came with the key (a taken-over JWKS, an external signer) and is not computed.
func (p VerificationKey) Imported() bool { return p.imported }

// IsRSA reports whether it is an RSA key.
func (p VerificationKey) IsRSA() bool {
	_, is := p.key.(*rsa.PublicKey)
	return is
}

// Equal reports whether p and q are the same key under the same ID and algorithm.
func (p VerificationKey) Equal(q VerificationKey) bool {
	return p.id == q.id && p.alg == q.alg && p.SameMaterial(q)
}

// Same reports whether both lists have the same keys, as [VerificationKey.Equal] has it, in whatever order.
func Same(a, b []VerificationKey) bool {
	within := func(a, b []VerificationKey) bool {
		return !slices.ContainsFunc(a, func(k VerificationKey) bool { return !slices.ContainsFunc(b, k.Equal) })
	}
	return len(a) == len(b) && within(a, b) && within(b, a)
}

// SameMaterial reports whether p and q are the same key, whatever they are called.
func (p VerificationKey) SameMaterial(q VerificationKey) bool {
	return p.key != nil && p.fingerprint == q.fingerprint
}

// State is where a published key stands between its publication and its removal.
type State string

// The states of a published key. Every one of them is in the JWKS; a key that has left is a line in gone.
const (
	Next    State = "next"    // published so that caches learn it; must not sign yet
	Active  State = "active"  // may sign
	Retired State = "retired" // signs no more; tokens that it signed are still trusted
)

// Key is a verification key in a key set. Zero times mean "has not happened".
type Key struct {
	VerificationKey
	State       State
	PublishedAt time.Time // when it entered the key set
	ObservedAt  time.Time // since when it had been seen at every public address when it was promoted; zero = not seen
	PromotedAt  time.Time // when it was allowed to sign
	RetiredAt   time.Time // when it was shown to sign no more
}

// CheckState returns an error if a date is missing that the state needs.
func (k Key) CheckState() error {
	switch {
	case k.PublishedAt.IsZero():
		return errors.New("it has no publishedAt")
	case k.State == Next:
		return nil
	case k.State == Active && k.PromotedAt.IsZero():
		return errors.New("it is active and has no promotedAt")
	case k.State == Retired && k.RetiredAt.IsZero():
		return errors.New("it is retired and has no retiredAt")
	case k.State == Active || k.State == Retired:
		return nil
	}
	return fmt.Errorf("its state %q is not next, active or retired", printable(string(k.State)))
}
