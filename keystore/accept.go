package keystore

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Decision is what the operator says of a key in dispute when a rejected key set is accepted. Or it is about no key
// but about a line in gone that the served version has and the stored one lost: that is put back.
type Decision struct {
	Key  VerificationKey // as it is served or stored: its material must be known, or it could come back under another ID
	Keep bool            // published again, as active: the state that no gate can remove by itself; else gone for good
	Lost *Gone           // instead of Key
}

// Accept settles a document that publishers reject: every decision makes its key published or gone, and the
// generation becomes one that they take, given the one that is being served (0 if none is, or it is not known). That
// is the next one, also where somebody stored one so high that nothing can follow it: then the generation is lowered.
func (s KeySet) Accept(c Change, served int64, decisions []Decision) (KeySet, error) {
	if c.Why == "" {
		return KeySet{}, &ReasonRequiredError{Step: "accept"}
	}
	return s.transition(c, "accept", func(n *KeySet, at time.Time) error {
		next, err := n.acceptedGeneration(served)
		if err != nil {
			return err
		}
		n.next = next
		for _, d := range decisions { // lines in gone first: no other decision takes them back
			if d.Lost != nil {
				n.putBack(*d.Lost, at)
			}
		}
		for _, d := range decisions {
			if err := n.settle(d, at); err != nil {
				return err
			}
		}
		n.gone = mergeGone(n.gone)
		if len(decisions) > 0 && len(n.keys) == 0 && !n.Withdrawn() && !c.Force {
			return fmt.Errorf("accept: it would leave %q without a key; keep one", s.name)
		}
		return nil
	})
}

func (s KeySet) acceptedGeneration(served int64) (int64, error) {
	switch {
	case served >= MaxFirstGeneration:
		return 0, fmt.Errorf("accept: keypostd serves generation %d, which it takes over only from a generation before it; restart keypostd, which then serves none, and accept again", served)
	case s.generation >= MaxFirstGeneration, served > 0 && s.generation >= served+MaxGenerationJump:
		return served + 1, nil
	}
	return max(s.generation, served) + 1, nil
}

// settle may leave lines in gone for one key ID twice, which Accept merges.
func (s *KeySet) settle(d Decision, at time.Time) error {
	if d.Lost != nil {
		return nil
	}
	if d.Key.key == nil {
		return errors.New("accept: a decision names no key")
	}
	have, published := s.published(d.Key)
	if !d.Keep {
		s.bury(d.Key, Removed, at)
		if i := s.index(d.Key.id); i >= 0 { // the ID stands for another key here: neither is what its name says
			s.bury(s.keys[i].VerificationKey, Removed, at)
		}
		s.gone = append(s.gone, Key{VerificationKey: d.Key}.gone(at, Removed))
		return nil
	}
	_, gone := s.GoneLine(d.Key)
	switch {
	case gone:
		return fmt.Errorf("accept: key %s is gone and never comes back", d.Key.id)
	case published && have.ID() != d.Key.id:
		return fmt.Errorf("accept: key %s is stored under the kid %s; put the kid back by hand that it has where it is served, or let both be gone", d.Key.id, have.ID())
	case published && have.sameMaterial(d.Key):
		return nil
	case published:
		s.displace(have, at)
	}
	s.insert(Key{VerificationKey: d.Key, State: Active, PublishedAt: at, PromotedAt: at})
	return nil
}

// putBack adds a line that was lost. Whatever it bars leaves.
func (s *KeySet) putBack(g Gone, at time.Time) {
	for _, k := range s.Keys() {
		if g.bars(k.VerificationKey) {
			s.bury(k.VerificationKey, Removed, at)
		}
	}
	if g.At.IsZero() {
		g.At, g.Why = at, Removed
	}
	s.gone = append(s.gone, g)
}

// displace takes out a key whose ID belongs to another one. Its line in gone is under the ID computed from it.
func (s *KeySet) displace(k Key, at time.Time) {
	s.keys = slices.DeleteFunc(s.keys, func(other Key) bool { return other.sameMaterial(k.VerificationKey) })
	line := k.gone(at, Removed)
	line.ID = KeyID(k.fingerprint)
	s.gone = append(s.gone, line)
}
