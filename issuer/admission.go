package issuer

import (
	"slices"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// Admission is what a server's configuration allows of key sets. A [Publisher] serves, and a mirror for one copies, only
// what it admits. The zero Admission admits no issuer URL.
type Admission struct {
	Patterns []Pattern // which key set may have which issuer URL
	AnyURL   bool      // every key set may have every one; there are no Patterns
	Dev      bool      // development key sets too
}

// Admit returns why a key set is refused; nil when it is not. A tombstone may have any issuer URL: it is served at none.
func (a Admission) Admit(s keystore.KeySet) *lastgood.Rejection {
	if s.Dev() && !a.Dev {
		return lastgood.Reject(lastgood.ReasonDev, "it is a development key set, which only --dev allows")
	}
	if a.AnyURL || s.Withdrawn() {
		return nil
	}
	for _, u := range s.Issuers() {
		if !slices.ContainsFunc(a.Patterns, func(p Pattern) bool { return p.allows(s.Name(), u) }) {
			return lastgood.Reject(lastgood.ReasonURLNotPermitted, "its issuer URL %s matches no issuer URL pattern for the name %q", u, s.Name())
		}
	}
	return nil
}

// Permitted returns the Permitted of a [lastgood.Judge].
func (a Admission) Permitted() func(keystore.Name, lastgood.Route) bool {
	if a.AnyURL {
		return nil
	}
	return func(n keystore.Name, r lastgood.Route) bool {
		return slices.ContainsFunc(a.Patterns, func(p Pattern) bool { return p.allowsAt(n, r) })
	}
}
