package verify

import (
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
)

// checkActive reports a key set of whose keys a cluster may sign with none. After the signing key was revoked that is an outage; a key
// set whose keys were retired has ended, and one that never had an active key is not in use yet.
func (v *visitor) checkActive(stored *keystore.KeySet) {
	const promote = "let the next key sign, and have the cluster sign with it: keypost key promote ISSUER KID --force --why REASON"
	const publish = "publish a new key, and look again, which says how to let it sign: keypost key add ISSUER --public-key-file FILE"
	const ended = "if the cluster is gone, withdraw the issuer: keypost issuer remove ISSUER --confirm-url URL --why REASON; if it signs still, see with what: keypost verify ISSUER --kubeconfig FILE"
	if stored == nil {
		return
	}
	keys, name := stored.Keys(), stored.Name()
	if slices.ContainsFunc(keys, func(k keystore.Key) bool { return k.State == keystore.Active }) {
		return
	}
	next := slices.IndexFunc(keys, func(k keystore.Key) bool { return k.State == keystore.Next })
	last, revoked := revokedLast(*stored)
	switch {
	case revoked && next >= 0:
		repair := promote
		if len(stored.Policy().Uploads()) > 0 { // who goes by a copy would refuse its tokens without an upload
			repair = "upload the next key first: keypost sync-keys ISSUER; then " + promote
		}
		v.FailWith("active-none", repair, "no key of key set %q is active: %s, which signed, was revoked at %s, and %s is next", name, last.ID, stamp(last.At), keys[next].ID())
	case revoked:
		v.FailWith("active-none", publish, "no key of key set %q is active: %s, which signed, was revoked at %s, and none is next", name, last.ID, stamp(last.At))
	case next >= 0:
		v.Warn("active-none", "no key of key set %q is active: %s is next", name, keys[next].ID())
	default:
		v.WarnWith("active-none", ended, "no key of key set %q is active, and none is next", name)
	}
	if next >= 0 {
		v.About(string(keys[next].ID()))
	}
}

// revokedLast returns the key that was revoked while it was active, unless another one has stopped to sign in order since.
func revokedLast(set keystore.KeySet) (last keystore.Gone, revoked bool) {
	for _, g := range set.Gone() {
		if g.Why == keystore.Revoked && !g.PromotedAt.IsZero() && g.RetiredAt.IsZero() && !g.At.Before(last.At) {
			last, revoked = g, true
		}
	}
	since := func(promoted, retired time.Time) bool { // a key that was retired before it was promoted never signed
		return !promoted.IsZero() && !retired.IsZero() && !retired.Before(last.At)
	}
	ended := slices.ContainsFunc(set.Keys(), func(k keystore.Key) bool { return since(k.PromotedAt, k.RetiredAt) }) ||
		slices.ContainsFunc(set.Gone(), func(g keystore.Gone) bool { return since(g.PromotedAt, g.RetiredAt) })
	return last, revoked && !ended
}
