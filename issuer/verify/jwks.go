package verify

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/privatekey"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/key"
	"github.com/keypost/keypost/keystore/party"
)

// jwksDocument is a JWKS as it was read.
type jwksDocument struct {
	url    string
	keys   []keystore.VerificationKey // the sound ones
	unread int                        // how many others there are
}

// checkJWKS looks at the JWKS that the discovery document points to and at the one that newer OpenShift points to. It
// returns those that could be read.
func (v *visit) checkJWKS(d fetch.Discovery) []jwksDocument {
	a, ok := v.document("jwks", v.look.JWKS)
	if !ok {
		return nil
	}
	set, err := fetch.ParseJWKS(a)
	if err != nil {
		v.Fail("jwks-form", "%v", err)
		return nil
	}
	first := v.checkKeys(a.URL, set)
	v.published, v.read = first.keys, true
	for _, k := range first.keys {
		if len(d.Algorithms) > 0 && !slices.Contains(d.Algorithms, k.Alg()) {
			v.Warn("document-members", "the discovery document does not have %s, the algorithm of key %s, in id_token_signing_alg_values_supported", k.Alg(), k.ID())
		}
	}
	v.checkCaching(a, v.Fail)
	if alias, differs := v.checkAlias(first); differs {
		return []jwksDocument{first, alias}
	}
	return []jwksDocument{first}
}

func (v *visit) checkKeys(url string, set []fetch.JWK) jwksDocument {
	read := jwksDocument{url: url}
	before := len(v.Findings)
	kids := map[string]int{}
	for n, k := range set {
		kids[k.Text("kid")]++
		if public, ok := v.checkKey(url, n+1, k); ok {
			read.keys = append(read.keys, public)
		}
	}
	read.unread = len(set) - len(read.keys)
	for _, kid := range slices.Sorted(maps.Keys(kids)) {
		if kids[kid] > 1 && kid != "" {
			v.Fail("key-form", "%s has %d keys with the kid %q", url, kids[kid], printable(kid))
		}
	}
	switch {
	case len(set) == 0:
		v.Fail("jwks-empty", "%s has no key", url)
	case len(v.Findings) == before && url == v.look.JWKS.URL:
		v.OK("jwks-keys", "the JWKS has %s", kidList(read.keys))
	}
	return read
}

func kidList(keys []keystore.VerificationKey) string {
	var kids []string
	for _, k := range keys {
		kids = append(kids, fmt.Sprintf("%s (%s)", k.ID(), k.Alg()))
	}
	return strings.Join(kids, ", ")
}

// checkKey looks at key number n of the JWKS at url.
func (v *visit) checkKey(url string, n int, k fetch.JWK) (keystore.VerificationKey, bool) {
	name := fmt.Sprintf("key %d (kid %q) of %s", n, printable(k.Text("kid")), url)
	for _, m := range privatekey.Members() {
		if _, ok := k[m]; ok {
			v.Fail("key-private", "%s has the private member %q", name, m)
			v.aboutPrivate(k)
			return keystore.VerificationKey{}, false
		}
	}
	if k.Text("kid") == "" {
		v.Fail("key-form", "key %d of %s has no kid", n, url)
		return keystore.VerificationKey{}, false
	}
	public, err := fetch.ParseKey(name, k)
	if err != nil {
		v.Fail("key-form", "%v", err)
		return keystore.VerificationKey{}, false
	}
	for _, reader := range v.declared() {
		if !party.Takes(reader, public.Alg()) {
			v.Fail("key-refused", "%s is for %s, and the key set declares %s", name, public.Alg(), reader)
			v.about(public)
		}
	}
	for _, m := range []string{"x5c", "x5u"} { // some relying parties take the key from there, so it may be another one
		if _, has := k[m]; has && v.stored != nil {
			v.Fail("key-form", "%s has the member %q", name, m)
		}
	}
	return public, true
}

// aboutPrivate says which stored key a JWK with private members is, by its material: it may be a stranger's, whatever its kid.
func (v *visit) aboutPrivate(k fetch.JWK) {
	half := maps.Clone(k)
	maps.DeleteFunc(half, func(name string, _ json.RawMessage) bool {
		return name == "kid" || slices.Contains(privatekey.Members(), name)
	})
	if public, err := fetch.ParseKey("the public half", half); err == nil {
		v.about(public)
	}
}

// about says which stored key the last finding is about, by its material.
func (v *visit) about(k keystore.VerificationKey) {
	if v.stored == nil {
		return
	}
	for _, s := range v.stored.Keys() {
		if s.Fingerprint() == k.Fingerprint() {
			v.About(string(s.ID()))
		}
	}
}

// declared returns the relying parties that the key set declares.
func (v *visit) declared() []string {
	if v.stored == nil {
		return nil
	}
	return party.Names(v.stored.Policy().RelyingParties)
}

// checkAlias compares /openid/v1/jwks: since 2026 OpenShift sets it as the cluster's own jwks_uri for an issuer that
// is not its own. It returns that document, and whether it has to be compared with the store by itself.
//
// Where there is a store to compare with, that decides whether other keys are an older copy or a stranger's.
func (v *visit) checkAlias(first jwksDocument) (alias jwksDocument, differs bool) {
	a, ok := v.document("alias", v.look.Alias)
	if !ok {
		return alias, false
	}
	set, err := fetch.ParseJWKS(a)
	if err != nil {
		v.Fail("alias-differs", "%v", err)
		return alias, false
	}
	if bytes.Equal(a.Body, v.look.JWKS.Body) {
		v.OK("jwks-alias", "%s has the same keys", a.URL)
		return alias, false
	}
	alias = v.checkKeys(a.URL, set)
	report := v.Fail
	if v.stored != nil {
		report = v.Warn
	}
	if key.Same(alias.keys, first.keys) {
		v.OK("jwks-alias", "%s has the same keys", a.URL)
	} else {
		report("alias-differs", "%s has other keys than jwks_uri", a.URL)
	}
	return alias, true
}

// checkSameKeys compares the addresses with each other where there is no store to compare each of them with.
func (v *visitor) checkSameKeys(visits []*visit) {
	visits = slices.DeleteFunc(slices.Clone(visits), func(one *visit) bool { return !one.read })
	if len(visits) < 2 || visits[0].stored != nil {
		return
	}
	var have []string
	same := true
	for _, one := range visits {
		have = append(have, one.look.Address+" has "+cmp.Or(kidList(one.published), "none"))
		same = same && key.Same(one.published, visits[0].published)
	}
	if same {
		v.OK("same-keys", "all addresses publish the same keys")
		return
	}
	v.Fail("addresses-differ", "the addresses publish different keys: %s", strings.Join(have, "; "))
}
