package page

import (
	"cmp"
	"slices"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/outlook"
)

// Rejected is why a stored version is not served, and where the way out is written down.
type Rejected struct {
	Reason  keystore.Reason
	Message string
	Runbook string
}

// State is what a key set is in, in words.
type State string

// The states of a key set.
const (
	StateServed    State = "served as stored"
	StateStored    State = "stored; nobody reads its documents"
	StateBehind    State = "an older version is served" // since the stored one has just come or is rejected
	StateRejected  State = "rejected, nothing is served"
	StateMissing   State = "missing in the store, its last good version is served"
	StateWithdrawn State = "withdrawn"         // for good
	StateAbsent    State = "nothing is served" // it has just come
	StateUnread    State = "served; what is stored was not read"
)

// Bad reports whether somebody has to look at it.
func (s State) Bad() bool {
	return slices.Contains([]State{StateBehind, StateRejected, StateMissing, StateAbsent, StateUnread}, s)
}

// KeySet is the page about one key set, and its line in the list.
type KeySet struct {
	About    About
	Name     keystore.Name
	Issuers  []string
	State    State
	Served   issuer.Status
	Rejected *Rejected        // nil if the stored version is served
	Unread   string           // why what is stored cannot be read; empty if it can, or if there is none
	Stored   *keystore.KeySet // nil if that is not known
	Keys     []Key            // stored
	Next     *Next
	Timeline *Timeline
	Steps    []Step // of the rotation under way
}

// Key is a published key.
type Key struct {
	keystore.Key
	Served       bool
	TrustedUntil time.Time // of a retired key
	Expired      bool      // TrustedUntil is over
	Next         *Next     // nil for the only one that signs
}

// Next is a step that a key waits for.
type Next struct {
	Kid      keystore.KeyID
	Step     keystore.RotationStep
	Gate     gate.Gate // the closed one; empty if the step can be taken now
	Opens    time.Time // by itself
	Earliest time.Time // it stays closed before that, whatever is done
	Need     string
}

// maxText bounds a message or a name, in characters: a writer of key sets must not be able to make a page that no browser shows.
const maxText = 500

// plain is text of somebody else as one line without characters that change what stands around them.
func plain(s string) string { return text.OneLine(s, maxText) }

// Of returns the page about a key set: what the server knows of it, and what is stored, nil where there is none or it cannot be read,
// with the reason for that.
func Of(a About, served issuer.Status, stored *keystore.KeySet, unread string) KeySet {
	k := KeySet{
		About: a, Name: keystore.Name(plain(string(served.Name))), Issuers: served.Issuers,
		Unread: plain(unread), Served: served, State: stateOf(served, stored, unread), Stored: stored,
	}
	if served.Rejected != "" {
		k.Unread = "" // that is why, and it says so
		k.Rejected = &Rejected{served.Rejected, plain(served.Message), Runbook(served.Rejected)}
	}
	if stored != nil {
		k.fill(*stored)
	}
	return k
}

func stateOf(served issuer.Status, stored *keystore.KeySet, unread string) State {
	switch nothing := served.Generation == 0; {
	case served.Rejected == "missing":
		return StateMissing
	case served.Rejected != "" && nothing:
		return StateRejected
	case served.Rejected != "":
		return StateBehind
	case stored != nil && stored.Withdrawn() || stored == nil && !nothing && !served.Served:
		return StateWithdrawn
	case nothing && stored != nil && stored.Policy().Reach == keystore.ReachCopies:
		return StateStored
	case nothing:
		return StateAbsent
	case stored == nil && unread != "":
		return StateUnread
	case stored != nil && stored.Digest().String() != served.Digest:
		return StateBehind
	}
	return StateServed
}

// fill fills in what the document says.
func (k *KeySet) fill(s keystore.KeySet) {
	k.Issuers = nil
	for _, u := range s.Issuers() {
		k.Issuers = append(k.Issuers, u.String())
	}
	for _, one := range s.Keys() {
		k.Keys = append(k.Keys, k.keyOf(s, one))
	}
	k.Next = soonest(k.Keys)
	if !s.Withdrawn() {
		k.Timeline, k.Steps = timelineOf(k.Keys, k.About.Made), stepsOf(s, k.Keys)
	}
}

func (k *KeySet) keyOf(s keystore.KeySet, one keystore.Key) Key {
	now := k.About.Made
	v := Key{Key: one, Served: slices.Contains(k.Served.Kids, one.ID())}
	if until, known := s.Gates().TrustedUntil(one, now); known {
		v.TrustedUntil, v.Expired = notBefore(until), !until.After(now)
	}
	if !s.Withdrawn() {
		v.Next = nextOf(s, one, now)
	}
	return v
}

// nextOf returns the step that a key waits for; nil for the only one that signs. keypostd reads no observations, so of a gate that
// waits for one it tells only before when it does not open.
func nextOf(s keystore.KeySet, k keystore.Key, now time.Time) *Next {
	step, closed := outlook.Of(keystore.Change{At: now}, s, k, keystore.Observed{})
	if step == "" {
		return nil
	}
	n := &Next{Kid: k.ID(), Step: step}
	if closed == nil {
		return n
	}
	n.Gate, n.Opens, n.Earliest, n.Need = closed.Gate, notBefore(closed.Opens), notBefore(closed.Earliest), plain(closed.Need)
	if closed.Gate == gate.GateObserved {
		n.Earliest = notBefore(s.Gates().EarliestPromotion(k, keystore.Observed{}))
	}
	if closed.Gate == gate.GateObserved || closed.Gate == gate.GateCopies {
		n.Need = plain("this page does not know what was observed; anyone who may read observations sees it with keypost rotate status " +
			string(s.Name()) + " --observations URL")
	}
	return n
}

// soonest returns the next step of all: one that can be taken, else the one that opens first, else one that somebody must act for.
func soonest(keys []Key) *Next {
	rank := func(n *Next) int {
		switch {
		case n.Gate == "":
			return 0
		case !n.Opens.IsZero():
			return 1
		}
		return 2
	}
	var first *Next
	for i := range keys {
		n := keys[i].Next
		if n == nil {
			continue
		}
		if first == nil || cmp.Or(cmp.Compare(rank(n), rank(first)), n.Opens.Compare(first.Opens)) < 0 {
			first = n
		}
	}
	return first
}

// notBefore returns t in UTC to the second: nothing that opens at t is open before. Zero stays zero.
func notBefore(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Add(time.Second - 1).Truncate(time.Second)
}
