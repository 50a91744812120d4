package keystore

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Decided is what an operator decided about keys in dispute, for [KeySet.Accept], with what is gone by the served version.
type Decided struct {
	Keep []VerificationKey // as served or stored: published again, as active, the state that no gate can remove by itself
	Gone []Gone            // for good, with their material: else they could come back under another ID. A zero At is the time of the change
}

// Accept turns a stored version that publishers reject into one that they take. It applies the decisions and gives the
// version the generation after the later of the stored and the served one (0: none is served, or it is not known). If the
// stored generation is so high that nothing could follow it, the new one is the one after the served: it is lowered.
// Every other transition leaves the generation to [Update].
func (s KeySet) Accept(c Change, served int64, d Decided) (KeySet, error) {
	if c.Why == "" {
		return KeySet{}, fmt.Errorf("accept: %w", ErrReasonRequired)
	}
	return s.change(c, "accept", func(n *KeySet, at time.Time) error {
		next, err := n.acceptedGeneration(served)
		if err != nil {
			return err
		}
		n.body.Generation = next
		for _, line := range d.Gone { // first: no key that is kept takes them back
			n.leave(line, at)
		}
		for _, k := range d.Keep {
			if err := n.keep(k, at); err != nil {
				return err
			}
		}
		n.body.Gone = mergeGone(n.body.Gone)
		if len(d.Keep)+len(d.Gone) > 0 && len(n.keys) == 0 && !n.Withdrawn() && !c.Force {
			return fmt.Errorf("accept: it would leave %q without a key; keep one", s.name)
		}
		return nil
	})
}

func (s KeySet) acceptedGeneration(served int64) (int64, error) {
	switch {
	case served >= MaxFirstGeneration:
		return 0, fmt.Errorf("accept: keypostd serves generation %d, which it takes over only from a generation before it; restart keypostd, which then serves none, and accept again", served)
	case s.body.Generation >= MaxFirstGeneration, served > 0 && s.body.Generation >= served+MaxGenerationJump:
		return served + 1, nil
	}
	return max(s.body.Generation, served) + 1, nil
}

// keep publishes a key. It may leave two lines in gone for one key ID, which Accept merges.
func (s *KeySet) keep(k VerificationKey, at time.Time) error {
	if k.Key() == nil {
		return errors.New("accept: a decision names no key")
	}
	have, published := s.published(k)
	_, gone := s.GoneLine(k)
	switch {
	case gone:
		return fmt.Errorf("accept: key %s is gone and never comes back", k.ID())
	case published && have.ID() != k.ID():
		return fmt.Errorf("accept: key %s is stored under the kid %s; put the kid back by hand that it has where it is served, or let both be gone", k.ID(), have.ID())
	case published && have.SameMaterial(k):
		return nil
	case published: // another key has its ID: that one's line in gone has the ID computed from its material
		s.keys = slices.DeleteFunc(s.keys, func(other Key) bool { return other.SameMaterial(have.VerificationKey) })
		line := goneLine(have, at, Removed)
		line.ID = KeyID(have.Fingerprint())
		s.body.Gone = append(s.body.Gone, line)
	}
	s.insert(Key{VerificationKey: k, State: Active, PublishedAt: at, PromotedAt: at})
	return nil
}

// leave adds a line to gone, and removes the published keys that it bars. What is revoked stays revoked, and a line about the
// same key that says otherwise is corrected. Another key that has its key ID here is removed: neither may keep it.
func (s *KeySet) leave(line Gone, at time.Time) {
	revoked := func(g Gone) bool { return g.Fingerprint == line.Fingerprint && g.Why == Revoked }
	if line.Why != Revoked && !slices.ContainsFunc(s.body.Gone, revoked) {
		line.Why = Removed
	} else {
		line.Why = Revoked
	}
	if line.At.IsZero() { // the report of a server has no dates
		line.At = at
	}
	for i, g := range s.body.Gone {
		if g.Fingerprint == line.Fingerprint {
			s.body.Gone[i].Why = line.Why
		}
	}
	for _, k := range s.Keys() {
		switch {
		case k.Fingerprint() == line.Fingerprint:
			s.moveToGone(k.VerificationKey, line.Why, at)
		case k.ID() == line.ID:
			s.moveToGone(k.VerificationKey, Removed, at)
		}
	}
	s.body.Gone = append(s.body.Gone, line)
}
