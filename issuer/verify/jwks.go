package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/keypost/keypost/keystore"
)

// checkJWKS reads the JWKS where the discovery document says it is, and compares what newer OpenShift points to. It
// returns the sound keys; read is false when there was no JWKS to read.
func (v *visit) checkJWKS(ctx context.Context, d discovery) (keys []keystore.Public, read bool) {
	if !strings.HasPrefix(d.JWKSURI, "https://") {
		return nil, false // said already
	}
	a, ok := v.document(ctx, "jwks", d.JWKSURI)
	if !ok {
		return nil, false
	}
	set, err := parseJWKS(a)
	if err != nil {
		v.fail("jwks", awsNoKey, "%v", err)
		return nil, false
	}
	keys = v.checkKeys(set)
	v.checkAlgorithms(d, keys)
	v.checkHeaders("jwks", a)
	if alias := v.o.URL + aliasPath; alias != d.JWKSURI {
		v.checkAlias(ctx, alias, keys)
	}
	return keys, true
}

type jwk map[string]json.RawMessage

// text returns a string member; empty when there is none.
func (k jwk) text(member string) string {
	var s string
	if json.Unmarshal(k[member], &s) != nil {
		return ""
	}
	return s
}

func parseJWKS(a Answer) ([]jwk, error) {
	var set struct {
		Keys *[]jwk `json:"keys"`
	}
	if err := json.Unmarshal(a.Body, &set); err != nil || set.Keys == nil {
		return nil, fmt.Errorf("%s is no JWKS: it is not JSON with a list of keys", a.URL)
	}
	return *set.Keys, nil
}

// maxOfType is what AWS reads of one key type.
const maxOfType = 100

func (v *visit) checkKeys(set []jwk) []keystore.Public {
	var keys []keystore.Public
	before := len(v.findings)
	kids, types := map[string]int{}, map[string]int{}
	for n, k := range set {
		kids[k.text("kid")]++
		types[k.text("kty")]++
		if public, ok := v.checkKey(n+1, k); ok {
			keys = append(keys, public)
		}
	}
	for _, kid := range slices.Sorted(maps.Keys(kids)) {
		if kids[kid] > 1 && kid != "" {
			v.fail("jwks-keys", awsNoKey+"; a key is picked by its kid alone", "%d keys have the kid %q", kids[kid], printable(kid))
		}
	}
	for _, kty := range slices.Sorted(maps.Keys(types)) {
		if types[kty] > maxOfType {
			v.fail("jwks-keys", awsNoKey+"; remove keys that sign no more", "there are %d keys of type %s; AWS reads %d", types[kty], printable(kty), maxOfType)
		}
	}
	switch {
	case len(set) == 0:
		v.fail("jwks-keys", awsNoKey+"; publish a key with keypost key add", "the JWKS has no key")
	case len(v.findings) == before:
		v.ok("jwks-keys", "the JWKS has %s", kidList(keys))
	}
	return keys
}

func kidList(keys []keystore.Public) string {
	var kids []string
	for _, k := range keys {
		kids = append(kids, fmt.Sprintf("%s (%s)", k.ID(), k.Alg()))
	}
	return strings.Join(kids, ", ")
}

// checkKey looks at key number n.
func (v *visit) checkKey(n int, k jwk) (keystore.Public, bool) {
	name := fmt.Sprintf("key %d (kid %q)", n, printable(k.text("kid")))
	for _, m := range []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k"} { // RFC 7518, section 6
		if _, ok := k[m]; ok {
			v.fail("jwks-keys", "the signing key is public: whoever read it can sign as this cluster; take it out at once (keypost key revoke) and give the cluster a new key",
				"%s has the private member %q", name, m)
			return keystore.Public{}, false
		}
	}
	if k.text("kid") == "" {
		v.fail("jwks-keys", awsNoKey+"; a key is picked by its kid alone", "key %d has no kid", n)
		return keystore.Public{}, false
	}
	public, err := parseKey(name, k)
	if err != nil {
		v.fail("jwks-keys", awsNoKey+" for tokens of this key", "%v", err)
		return keystore.Public{}, false
	}
	if k.text("use") == "" || k.text("alg") == "" {
		v.warn("jwks-keys", `some relying parties skip keys without "use":"sig" and "alg"`, "%s lacks use or alg", name)
	}
	for _, m := range slices.Sorted(maps.Keys(k)) {
		if !slices.Contains([]string{"kty", "alg", "use", "kid", "n", "e", "crv", "x", "y"}, m) {
			v.warn("jwks-keys", "GCP refuses an upload with other members than those of the public key", "%s has the member %q", name, printable(m))
		}
	}
	return public, true
}

func parseKey(name string, k jwk) (keystore.Public, error) {
	raw, err := json.Marshal(k)
	if err != nil {
		return keystore.Public{}, err
	}
	keys, err := keystore.ParsePublicKeys(name, raw)
	if err != nil {
		return keystore.Public{}, err
	}
	return keys[0], nil
}

func (v *visit) checkAlgorithms(d discovery, keys []keystore.Public) {
	for _, k := range keys {
		if len(d.Algorithms) > 0 && !slices.Contains(d.Algorithms, k.Alg()) {
			v.warn("discovery-members", "relying parties may refuse its tokens", "the discovery document's id_token_signing_alg_values_supported lacks %s, the algorithm of key %s", k.Alg(), k.ID())
		}
	}
}

// checkAlias compares /openid/v1/jwks: since 2026 OpenShift sets it as the cluster's own jwks_uri for an issuer that
// is not its own.
func (v *visit) checkAlias(ctx context.Context, url string, keys []keystore.Public) {
	a, err := v.client.Get(ctx, url)
	if err == nil {
		v.answers = append(v.answers, a)
		err = a.check200()
	}
	if err != nil {
		hint := "newer OpenShift sends relying parties inside the cluster there"
		if a.Status == http.StatusNotFound {
			v.warn("jwks-alias", hint, "%v", err)
			return
		}
		v.fail("jwks-alias", hint, "%v", err)
		return
	}
	set, err := parseJWKS(a)
	if err != nil {
		v.fail("jwks-alias", awsNoKey, "%v", err)
		return
	}
	if !sameKeys(set, keys) {
		v.fail("jwks-alias", "relying parties that read one of the two refuse tokens that the other knows; a cache in between may hold an older copy of one", "%s has other keys than jwks_uri", url)
		return
	}
	v.ok("jwks-alias", "%s has the same keys", url)
}

func sameKeys(set []jwk, keys []keystore.Public) bool {
	same := 0
	for _, k := range set {
		public, err := parseKey("key", k)
		if err != nil {
			continue
		}
		if !slices.ContainsFunc(keys, public.Equal) {
			return false
		}
		same++
	}
	return same == len(keys)
}
