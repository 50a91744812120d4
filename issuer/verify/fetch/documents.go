package fetch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/keypost/keypost/internal/caching"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
)

// Discovery holds the members of a discovery document that AWS asks for.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html (prerequisites)
type Discovery struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
	Claims        []string `json:"claims_supported"`
}

// ParseDiscovery reads a discovery document that every reader reads alike.
func ParseDiscovery(a Answer) (Discovery, error) {
	var d Discovery
	if err := json.Unmarshal(a.Body, &d); err != nil {
		return Discovery{}, fmt.Errorf("%s is not a discovery document: it is not valid JSON of that form", a.URL)
	}
	if err := checkUnique(a.Body); err != nil {
		return Discovery{}, fmt.Errorf("%s is not a sound discovery document: %w", a.URL, err)
	}
	return d, nil
}

// JWK is a key of a JWKS as it was read.
type JWK map[string]json.RawMessage

// Text returns a string member; empty when there is none.
func (k JWK) Text(member string) string {
	var s string
	if json.Unmarshal(k[member], &s) != nil {
		return ""
	}
	return s
}

// MostKeys is how many keys of a JWKS are looked at. A key set has 200 at most, and 1 MiB may have 350,000.
const MostKeys = 1000

// ParseJWKS returns the keys of a JWKS that every reader reads alike.
func ParseJWKS(a Answer) ([]JWK, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	none := fmt.Errorf("%s is not a JWKS: it is not JSON with a list of keys", a.URL)
	if json.Unmarshal(a.Body, &set) != nil || set.Keys == nil {
		return nil, none
	}
	if len(set.Keys) > MostKeys {
		return nil, fmt.Errorf("%s has %d keys; at most %d are looked at", a.URL, len(set.Keys), MostKeys)
	}
	if err := checkUnique(a.Body); err != nil {
		return nil, fmt.Errorf("%s is not a sound JWKS: %w", a.URL, err)
	}
	keys := make([]JWK, len(set.Keys))
	for i, raw := range set.Keys {
		if json.Unmarshal(raw, &keys[i]) != nil {
			return nil, none
		}
	}
	return keys, nil
}

// ParseKey returns the verification key that a JWK is; errors call it by name.
func ParseKey(name string, k JWK) (keystore.VerificationKey, error) {
	raw, err := json.Marshal(k)
	if err != nil {
		return keystore.VerificationKey{}, err
	}
	keys, err := pubkey.Parse(name, raw)
	if err != nil {
		return keystore.VerificationKey{}, err
	}
	return keys[0], nil
}

// SoundKeys returns the keys of a JWKS, which may have none.
func SoundKeys(a Answer) ([]keystore.VerificationKey, error) {
	set, err := ParseJWKS(a)
	if err != nil || len(set) == 0 {
		return nil, err
	}
	if n := slices.IndexFunc(set, func(k JWK) bool { return k.Text("kid") == "" }); n >= 0 { // relying parties look keys up by it
		return nil, fmt.Errorf("%s: key %d has no kid", a.URL, n+1)
	}
	return pubkey.Parse(a.URL, a.Body)
}

// Allows returns for how long the answer's headers allow a copy of it to be handed out, by whatever cache.
func (a Answer) Allows() keystore.Cache {
	whileRevalidate, ifError := caching.Stale(a.Header)
	return keystore.Cache{MaxAge: caching.Longest(a.Header, a.At), StaleWhileRevalidate: whileRevalidate, StaleIfError: ifError}
}

// None reports whether a server says that it has no document there.
func (a Answer) None() bool { return a.Status == http.StatusNotFound || a.Status == http.StatusGone }
