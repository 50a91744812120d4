// Package outlook says what a published key waits for. It promises to say what the transition itself would: it takes the step on a copy
// of the key set, and has no arithmetic of its own.
package outlook

import (
	"errors"
	"slices"

	"github.com/keypost/keypost/keystore"
)

// Of returns the step that a published key takes next, and the gate that is closed before it; nil for an open one. The
// step is empty for a key that is to sign and does, which takes none: the active one that was promoted last, and the one that a rotation
// under way goes to. A key that the rotation replaces leaves, also one that was turned away before it signed. What was seen counts
// for a key that is next, and what was read back of uploads for one that is retired as well.
func Of(c keystore.Change, s keystore.KeySet, k keystore.Key, seen keystore.Observed) (keystore.RotationStep, *keystore.NotYetError) {
	var step keystore.RotationStep
	var err error
	r := s.Rotation()
	replaced := r != nil && slices.Contains(r.Replaces, k.ID())
	switch {
	case k.State == keystore.Next && !replaced:
		step = keystore.StepPromote
		_, err = s.Promote(c, k.ID(), seen)
	case k.State != keystore.Retired:
		others := func(o keystore.Key) bool {
			return o.State == keystore.Active && o.ID() != k.ID() && (replaced || !o.PromotedAt.Before(k.PromotedAt))
		}
		if !slices.ContainsFunc(s.Keys(), others) || r != nil && r.Kid == k.ID() {
			return "", nil
		}
		step = keystore.StepRetire
		_, err = s.Retire(c, k.ID(), keystore.Evidence{})
	default:
		step = keystore.StepRemove
		_, err = s.Remove(c, k.ID(), keystore.Removal{Uploads: seen.Uploads})
	}
	closed, _ := errors.AsType[*keystore.NotYetError](err)
	return step, closed
}
