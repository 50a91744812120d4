package keystore

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// RotationStep is what a rotation does next.
type RotationStep string

// The steps of a rotation, in their order.
const (
	StepPromote RotationStep = "promote" // the new key, once no cache hides it
	StepRetire  RotationStep = "retire"  // the old keys, once every kube-apiserver signs with the new one
	StepRemove  RotationStep = "remove"  // the old keys, once their last token has expired
)

// Rotation is a rotation under way: one key takes the place of others. Each transition keeps Step true, and ends the rotation
// when the replaced keys or the new one have left.
type Rotation struct {
	ID       string       `json:"id"` // when it was started
	By       string       `json:"by"`
	Kid      KeyID        `json:"kid"` // that is to sign
	Replaces []KeyID      `json:"replaces,omitempty"`
	Stays    []KeyID      `json:"stays,omitempty"`   // after it was turned around: what signed beside Kid before
	Servers  []string     `json:"servers,omitempty"` // the kube-apiservers that were seen while it was under way
	Step     RotationStep `json:"step"`              // for who reads the document
}

// MaxRotating bounds the keys that a key set may list when a rotation is started, those of an upload, and those of a cluster that is
// enrolled: Google Cloud takes no more in an upload (google.iam.v1, Oidc.jwks_json).
const MaxRotating = 8

// RotationError reports that a rotation cannot be started, because one is under way.
type RotationError struct {
	KeySet Name
	Rotation
}

func (e *RotationError) Error() string {
	return fmt.Sprintf("key set %q: a rotation to key %s is under way since %s (by %s); one at a time", e.KeySet, e.Kid, e.ID, cmp.Or(e.By, "somebody unnamed"))
}

// What the history says of a rotation that began, before the key ID, and of one that was turned around.
const (
	WhatStartRotation = "start rotation to key "
	WhatRollBack      = "roll back the rotation"
)

// StartRotation begins to replace every active key by k, which it publishes as next if that was not done before.
func (s KeySet) StartRotation(c Change, k VerificationKey) (KeySet, error) {
	what := WhatStartRotation + string(k.ID())
	if r := s.Rotation(); r != nil {
		return KeySet{}, &RotationError{s.name, *r}
	}
	n := s
	have, published := s.published(k)
	switch {
	case !published:
		if len(s.keys) >= MaxRotating {
			return KeySet{}, fmt.Errorf("%s: key set %q lists %d keys, and relying parties take no more than %d; remove one first", what, s.name, len(s.keys), MaxRotating)
		}
		var err error
		if n, err = s.Add(c, k); err != nil {
			return KeySet{}, err
		}
	case have.ID() != k.ID():
		return KeySet{}, fmt.Errorf("%s: key set %q publishes it under another kid, %s", what, s.name, have.ID())
	case have.State != Next:
		return KeySet{}, fmt.Errorf("%s: it is %s already; make a new key", what, have.State)
	}
	return n.transition(c, what, func(n *KeySet, at time.Time) error {
		r := &Rotation{ID: at.Format(time.RFC3339), By: c.By, Kid: k.ID()}
		for _, other := range n.keys {
			switch {
			case other.State == Active:
				r.Replaces = append(r.Replaces, other.ID())
			case other.State == Next && other.ID() != k.ID():
				return fmt.Errorf("%s: key %s is next as well, and nobody could say which of the two is to sign; rotate to that one, or remove it", what, other.ID())
			}
		}
		if len(r.Replaces) == 0 {
			return fmt.Errorf("%s: no key of %q is active, so there is nothing to replace; promote the key", what, s.name)
		}
		n.body.Rotation = r
		return nil
	})
}

// RollBack turns the rotation under way around: the replaced keys sign again (the one that was promoted last does),
// and the new one is to leave. A replaced key that was retired is active again at once, since it was published all the
// time. The new key leaves as a replaced one does: retired once no kube-apiserver signs with it, and removed once its last
// token has expired.
func (s KeySet) RollBack(c Change) (KeySet, error) {
	return s.transition(c, WhatRollBack, func(n *KeySet, at time.Time) error {
		r := n.Rotation()
		if r == nil {
			return fmt.Errorf("roll back: no rotation of %q is under way; a key that has left never comes back", n.name)
		}
		turned := Rotation{ID: r.ID, By: r.By, Replaces: append([]KeyID{r.Kid}, r.Stays...), Servers: r.Servers}
		var last time.Time
		for i := range n.keys {
			k := &n.keys[i]
			if !slices.Contains(r.Replaces, k.ID()) || k.PromotedAt.IsZero() {
				continue
			}
			if turned.Stays = append(turned.Stays, k.ID()); k.PromotedAt.After(last) {
				turned.Kid, last = k.ID(), k.PromotedAt
			}
			if k.State == Retired {
				k.State, k.PromotedAt, k.RetiredAt = Active, at, time.Time{}
			}
		}
		if turned.Kid == "" {
			return fmt.Errorf("roll back: none of the keys that %s replaces has signed", r.Kid)
		}
		turned.Stays = slices.DeleteFunc(turned.Stays, func(id KeyID) bool { return id == turned.Kid })
		n.body.Rotation = &turned
		clusters := n.Clusters()
		slices.Reverse(clusters) // the one that signed before is to sign again
		n.setClusters(clusters...)
		return nil
	})
}

// Rotation returns the rotation under way, nil when there is none. Its step is what the keys' states say, whatever stands in
// the document: a hand edit or a merge may have left another one there.
func (s KeySet) Rotation() *Rotation {
	if s.body.Rotation == nil || s.Withdrawn() {
		return nil
	}
	r := *s.body.Rotation
	r.Replaces, r.Stays, r.Servers = slices.Clone(r.Replaces), slices.Clone(r.Stays), slices.Clone(r.Servers)
	to, there := s.Key(r.Kid)
	r.Step = ""
	for _, k := range s.keys {
		switch replaced := slices.Contains(r.Replaces, k.ID()); {
		case !replaced:
		case k.State == Retired && r.Step == "":
			r.Step = StepRemove
		case k.State != Retired:
			r.Step = StepRetire
		}
	}
	if !there || r.Step == "" || to.State == Retired { // retired by hand: somebody has decided otherwise
		return nil
	}
	if to.State == Next {
		r.Step = StepPromote
	}
	return &r
}

// SetServers records which kube-apiservers take part in the rotation under way: each of them has to sign with the new key before
// an old one is retired, also one that is not listed by then.
func (s KeySet) SetServers(c Change, servers []string) (KeySet, error) {
	return s.transition(c, fmt.Sprintf("record the %d kube-apiservers of the rotation", len(servers)), func(n *KeySet, _ time.Time) error {
		if n.body.Rotation = n.Rotation(); n.body.Rotation == nil {
			return fmt.Errorf("no rotation of %q is under way", n.name)
		}
		n.body.Rotation.Servers = slices.Sorted(slices.Values(servers))
		return nil
	})
}
