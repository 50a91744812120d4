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

// Admit returns why a key set, or a tombstone, is refused; nil when it is not. Where nobody reads the documents (keystore.ReachCopies), one
// that gets none of its URLs served is left apart: the Rejection is [lastgood.Rejection.Expected].
func (a Admission) Admit(s keystore.KeySet) *lastgood.Rejection {
	if s.Dev() && !a.Dev {
		return lastgood.Reject(lastgood.ReasonDev, "it is a development key set, which only --dev allows")
	}
	if a.AnyURL {
		return nil
	}
	refused := slices.DeleteFunc(slices.Clone(s.Issuers()), func(u keystore.IssuerURL) bool {
		return slices.ContainsFunc(a.Patterns, func(p Pattern) bool { return p.allows(s.Name(), u) })
	})
	switch {
	case len(refused) == 0:
		return nil
	case s.Policy().Reach == keystore.ReachCopies && len(refused) == len(s.Issuers()):
		return lastgood.Reject(lastgood.ReasonUnread, "its documents are read by nobody (reach copies), and none of its issuer URLs matches a pattern for the name %q", s.Name())
	}
	return lastgood.Reject(lastgood.ReasonURLNotPermitted, "its issuer URL %s matches no issuer URL pattern for the name %q", refused[0], s.Name())
}

// Permitted returns the Permitted of a [lastgood.Judge].
func (a Admission) Permitted() func(keystore.Name, keystore.Route) bool {
	if a.AnyURL {
		return nil
	}
	return func(n keystore.Name, r keystore.Route) bool {
		return slices.ContainsFunc(a.Patterns, func(p Pattern) bool { return p.allowsAt(n, r) })
	}
}
