// Package party is what is known of relying parties: how long each may keep a JWKS, which algorithms it takes, and which of them
// hold an upload. A policy names them as text; names that are not known here are allowed, and the worst is assumed of them.
package party

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// unknown is how long a relying party that is not known here may keep a JWKS.
const unknown = 24 * time.Hour

// fetcher is a relying party that fetches the documents.
type fetcher struct {
	name  string
	keeps time.Duration // it may keep a JWKS for so long, whatever its max-age
	takes []string      // algorithms of tokens; nil: all that a key set may have
}

// fetchers returns the relying parties that are known, in order of their names.
//
// How long they keep keys: AWS and GCP document nothing; field reports say 5 to 30 minutes, so 1 h. Microsoft advises relying
// parties to cache for 24 h. kube-apiserver (go-oidc v2) follows max-age, Vault (go-oidc v3) fetches on an unknown kid.
//
// Algorithms: https://cloud.google.com/iam/docs/workload-identity-federation-with-other-providers,
// https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations.
func fetchers() []fetcher {
	return []fetcher{
		{name: "aws", keeps: time.Hour},
		{name: "entra", keeps: 24 * time.Hour, takes: []string{"RS256"}},
		{name: "gcp", keeps: time.Hour, takes: []string{"RS256", "ES256"}},
		{name: "kube-apiserver"},
		{name: "vault"},
	}
}

func find(name string) (fetcher, bool) {
	all := fetchers()
	i := slices.IndexFunc(all, func(f fetcher) bool { return f.name == name })
	if i < 0 {
		return fetcher{name: name, keeps: unknown}, false
	}
	return all[i], true
}

// Known returns the names of those that are known, in order: those that may trust the keys of a key set that declares none.
func Known() (names []string) {
	for _, f := range fetchers() {
		names = append(names, f.name)
	}
	return names
}

// Keeps returns how long a relying party that fetches is known or assumed to keep a JWKS, whatever its max-age.
func Keeps(name string) time.Duration {
	f, _ := find(name)
	return f.keeps
}

// Takes reports whether a relying party takes tokens that are signed with an algorithm.
func Takes(name, alg string) bool {
	f, _ := find(name)
	return f.takes == nil || slices.Contains(f.takes, alg)
}

// Refusals returns an error for each of the relying parties of a policy that refuses the tokens of a key.
func Refusals(declared []string, kid, alg string) (all []error) {
	for _, name := range Names(declared) {
		if f, _ := find(name); !Takes(name, alg) {
			all = append(all, fmt.Errorf("key %s is for %s, and the relying party %s takes only tokens signed with %s", kid, alg, name, strings.Join(f.takes, " or ")))
		}
	}
	return all
}

// Names returns the relying parties of a policy, each once. One that holds an upload has the name of its kind: it judges a token
// as who fetches does.
func Names(declared []string) (all []string) {
	for _, name := range declared {
		if IsUpload(name) {
			name, _ = Upload(name)
		}
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
