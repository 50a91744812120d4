// Package party is what is known of relying parties, a file each: how long one may keep a JWKS, which algorithms it takes, how it is
// given keys, and what ends its trust. Every figure has its source, or says that there is none. A policy names relying parties as text;
// a name that is not known here is allowed, and the worst is assumed of it.
//
// A new party is one file, its name in table, and docs/reference/relying-parties.md made anew: make references.
package party

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// unknown is how long a relying party that is not known here may keep a JWKS.
const unknown = 24 * time.Hour

// checked is the day on which the quotes were compared with their pages.
const checked = "2026-11-28"

// Party is one relying party.
type Party struct {
	Name   string        // as a policy has it
	Title  string        // as its vendor has it
	Called []string      // what people call it besides
	Keeps  time.Duration // it may keep a JWKS for so long after its fetch, whatever its max-age; 0 only with OnMiss
	Takes  []string      // algorithms of tokens; nil: all that a key set may have
	OnMiss bool          // it fetches when it sees a key ID that it does not know, or keeps a copy for max-age only

	Given    []Fact // how it is given keys
	Keeping  []Fact // what Keeps rests on
	Signed   Fact   // what Takes rests on
	Audience Fact
	Limits   []Fact
	Fetch    Fact   // how its fetch can be seen
	Ends     []Fact // what ends its trust in a key
	Refusals []Fact // error texts, as quotes
	Tried    string // the test that runs its code; empty: all is from documentation

	// ends are the lines that `key revoke` prints: until when it may trust a key, and commands that end that. {until}, {issuer} and
	// {provider} stand for a time, the issuer URL and that without https://.
	ends []string
	// granted are the lines about what it has given out for tokens of the key, however it gets its keys.
	granted []string
}

// Fact is something known of a relying party, and where that is written.
type Fact struct {
	Says  string
	Page  string // of the vendor, or a file of its source code; empty if nobody has written it down
	Quote string // the sentence there
}

// table is made once: gates ask it for each key set.
var table = []Party{
	alibaba(), anthropic(), aws(), confluent(), databricks(), entra(), fulcio(), gcp(), kubeAPIServer(), minio(), oci(), openai(),
	snowflake(), vault(),
}

// All returns the relying parties that are known, in order of their names.
func All() []Party { return slices.Clone(table) }

func find(name string) (Party, bool) {
	i := slices.IndexFunc(table, func(p Party) bool { return p.Name == name })
	if i < 0 {
		return Party{Name: name, Keeps: unknown}, false
	}
	return table[i], true
}

// Known returns the names of those that are known, in order.
func Known() (names []string) {
	for _, p := range All() {
		names = append(names, p.Name)
	}
	return names
}

// Common returns the names of those that a key set which declares none is taken to have. More would be lines to read at night.
func Common() []string { return []string{"aws", "entra", "gcp", "kube-apiserver", "vault"} }

// Keeps returns how long a relying party that fetches is known or assumed to keep a JWKS, whatever its max-age.
func Keeps(name string) time.Duration {
	p, _ := find(name)
	return p.Keeps
}

// Takes reports whether a relying party takes tokens that are signed with an algorithm.
func Takes(name, alg string) bool {
	p, _ := find(name)
	return p.Takes == nil || slices.Contains(p.Takes, alg)
}

// onlyUnknown is what those need to be told that fetch when they see a key ID that they do not know, and at no other time.
const onlyUnknown = "as it fetches only for a kid that it does not know: once no cache has the key any more (--wait), or after"

// EndOfTrust returns lines for people: until when a relying party may trust a key that left, at a time that a gate has worked out, and
// what ends that sooner. A line that begins with two spaces is a command.
func EndOfTrust(name, issuer, until string) []string {
	p, known := find(name)
	switch {
	case p.ends == nil && len(p.Ends) > 0:
		var sooner []string
		for _, f := range p.Ends {
			sooner = append(sooner, f.Says)
		}
		return []string{fmt.Sprintf("%s until %s, as far as is known; what ends it sooner: %s", name, until, strings.Join(sooner, "; "))}
	case p.ends == nil && known:
		return []string{fmt.Sprintf("%s until %s, as far as is known; nothing is documented that ends it sooner", name, until)}
	case p.ends == nil:
		return []string{fmt.Sprintf("%s until %s where it fetches by itself, and without end where it fetches only for a kid that it does "+
			"not know, as Go services with go-oidc do: restart or reconfigure what holds a copy, once no cache has the key any more (--wait)",
			name, until)}
	}
	fill := strings.NewReplacer("{until}", until, "{issuer}", issuer, "{provider}", strings.TrimPrefix(issuer, "https://"))
	lines := slices.Concat(p.ends, p.granted)
	for i, l := range lines {
		lines[i] = fill.Replace(l)
	}
	return lines
}

// Granted returns lines for people: what ends that which a relying party has given out for tokens of a key, however it gets its keys.
func Granted(name string) []string {
	p, _ := find(name)
	return p.granted
}

// Refusals returns an error for each of the relying parties of a policy that refuses the tokens of a key.
func Refusals(declared []string, kid, alg string) (all []error) {
	for _, name := range Names(declared) {
		if p, _ := find(name); !Takes(name, alg) {
			all = append(all, fmt.Errorf("key %s is for %s, and the relying party %s takes only tokens signed with %s", kid, alg, name, strings.Join(p.Takes, " or ")))
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
