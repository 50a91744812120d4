package signer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/externaljwt/apis/v1"

	"github.com/keypost/keypost/keystore"
)

// state is what calls are answered from. It is immutable.
type state struct {
	listed   []*v1.Key // sorted by key ID
	changed  time.Time // when listed became what it is
	signs    *signing  // nil: no key may sign
	noKey    string    // why none may sign; empty if one does
	passed   string    // why a key that was promoted later than signs does not sign; empty if there is none
	lifetime time.Duration
	nobodys  *v1.Key // see nobodys
}

// signing is the key that signs.
type signing struct {
	id     keystore.KeyID
	alg    string
	public crypto.PublicKey
	key    Key
	header string // the first segment of each token
}

// undeclared is the longest life of a token where the policy declares none.
const undeclared = 24 * time.Hour

// shortest is the least that a kube-apiserver takes for the longest life of a token.
//
// Source: MinAllowedExpirationSeconds in pkg/serviceaccount/externaljwt/plugin.
const shortest = 10 * time.Minute

// next returns the state for a version of the key set and the keys that are held.
func (was *state) next(set keystore.KeySet, held []Key, now time.Time) *state {
	is := &state{nobodys: was.nobodys, lifetime: lifetime(set.Policy()), changed: was.changed}
	for _, k := range set.Keys() {
		is.listed = append(is.listed, &v1.Key{KeyId: string(k.ID()), Key: k.PKIX()})
	}
	if len(is.listed) == 0 {
		is.listed = []*v1.Key{is.nobodys}
	}
	if !slices.EqualFunc(is.listed, was.listed, func(a, b *v1.Key) bool { return a.KeyId == b.KeyId && string(a.Key) == string(b.Key) }) {
		// A kube-apiserver takes a list for the one that it has unless its time differs.
		is.changed = later(now, was.changed.Add(time.Second))
	}
	is.signs, is.noKey, is.passed = choose(set.Keys(), held)
	return is
}

// lists reports whether a key may still be trusted.
func (is *state) lists(id keystore.KeyID) bool {
	return slices.ContainsFunc(is.listed, func(k *v1.Key) bool { return k.KeyId == string(id) })
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func lifetime(p keystore.Policy) time.Duration {
	if p.TokenLifetime == nil {
		return undeclared
	}
	return max(time.Duration(*p.TokenLifetime), shortest)
}

// choose returns the active key that is held. Of several the one that was promoted last signs, so that promoting the next key of a
// rotation makes it sign. Where no key may sign, noKey says why; passed says why those that were promoted later than it do not.
func choose(keys []keystore.Key, held []Key) (best *signing, noKey, passed string) {
	active := slices.DeleteFunc(slices.Clone(keys), func(k keystore.Key) bool { return k.State != keystore.Active })
	slices.SortStableFunc(active, func(a, b keystore.Key) int { return b.PromotedAt.Compare(a.PromotedAt) })
	var others []string
	for _, k := range active { // each that is passed over has its line in others
		private := find(held, k.VerificationKey)
		switch {
		case hashOf(k.Alg()) == 0:
			others = append(others, fmt.Sprintf("%s is for %s, which a kube-apiserver takes from no signer", k.ID(), k.Alg()))
		case private == nil:
			others = append(others, fmt.Sprintf("%s is not held here", k.ID()))
		default:
			best = &signing{id: k.ID(), alg: k.Alg(), public: k.Key(), key: private, header: header(k.ID(), k.Alg())}
			later := slices.IndexFunc(active, func(other keystore.Key) bool { return !other.PromotedAt.After(k.PromotedAt) })
			if later > 0 {
				passed = "a key that was promoted later cannot sign here: " + strings.Join(others[:later], "; ")
			}
			return best, "", passed
		}
	}
	if len(active) == 0 {
		return nil, "no key of the key set is active", ""
	}
	return nil, "no active key of the key set can sign here: " + strings.Join(others, "; "), ""
}

func find(held []Key, k keystore.VerificationKey) Key {
	for _, h := range held {
		if h.Public().Fingerprint() == k.Fingerprint() {
			return h
		}
	}
	return nil
}

// header returns the first segment of a token. A kube-apiserver refuses any other member.
//
// Source: validateJWTHeader in pkg/serviceaccount/externaljwt/plugin.
func header(id keystore.KeyID, alg string) string {
	text, _ := json.Marshal(struct { //nolint:errchkjson // texts have a form in JSON
		Alg string `json:"alg"`
		Kid string `json:"kid"`
		Typ string `json:"typ"`
	}{alg, string(id), "JWT"})
	return base64.RawURLEncoding.EncodeToString(text)
}

// nobodys returns a key whose private half is dropped. It is listed where a key set has no key, after the last one was revoked: a
// kube-apiserver refuses an empty list, and would go on to accept the tokens of the revoked key.
func nobodys() (*v1.Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, err
	}
	return &v1.Key{KeyId: "nobody", Key: der}, nil
}
