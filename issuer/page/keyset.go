package page

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/outlook"
)

// Input is what is known of one key set.
type Input struct {
	Name keystore.Name

	Set      *keystore.KeySet // as it is stored; nil if that cannot be read
	Unread   string           // why it cannot be read; empty if it can, or if there is none
	Served   *Served          // what a server serves; nil if nobody has asked one
	Rejected *Rejected        // why the stored version is not served

	// Looks are the latest ones at the public URLs, where somebody knows them, which Observed reports. It returns what they say of a key.
	Looks    []Look
	Observed func(keystore.Key) keystore.Observed // nil: looks are not known here
}

// Served is what a server serves of a key set.
type Served struct {
	Generation int64            `json:"generation"` // 0: nothing of it
	Withdrawn  bool             `json:"withdrawn,omitempty"`
	Digest     string           `json:"-"` // of that version, in hex: keystore.KeySet.Digest; empty: not known
	Issuers    []string         `json:"-"`
	Kids       []keystore.KeyID `json:"kids,omitempty"` // nil: not known
}

// Rejected is why a stored version is not served, and where the way out is written down.
type Rejected struct {
	Reason  keystore.Reason `json:"reason"`
	Message string          `json:"message"`
	Runbook string          `json:"runbook"`
}

// Look is the latest look at an issuer URL.
type Look struct {
	Issuer   string    `json:"issuer"`
	Vantage  string    `json:"vantage,omitempty"`
	At       time.Time `json:"at,omitzero"`       // its end
	Complete time.Time `json:"complete,omitzero"` // the end of the latest that saw everything
	Gaps     []string  `json:"gaps,omitempty"`    // what the latest did not see
}

// State is what a key set is in, in a word.
type State string

// The states of a key set.
const (
	StateServed    State = "served"     // as it is stored
	StateStored    State = "stored"     // and nobody has asked a server, or nobody reads its documents
	StateBehind    State = "behind"     // an older version is served, since the stored one has just come or is rejected
	StateRejected  State = "rejected"   // and nothing is served
	StateMissing   State = "missing"    // from the store; the last good version is served
	StateWithdrawn State = "withdrawn"  // for good
	StateAbsent    State = "not served" // it has just come
	StateUnread    State = "not read"   // something is served, and what is stored is not known
)

// KeySet is the page about one key set.
type KeySet struct {
	About      About                  `json:"about"`
	Name       keystore.Name          `json:"name"`
	Issuers    []string               `json:"issuers"`
	State      State                  `json:"state"`
	Dev        bool                   `json:"dev,omitempty"`
	Generation int64                  `json:"generation,omitempty"` // stored; 0 if that is not known
	Served     *Served                `json:"served,omitempty"`
	Rejected   *Rejected              `json:"rejected,omitempty"`
	Unread     string                 `json:"unread,omitempty"`
	Withdrawn  time.Time              `json:"withdrawnAt,omitzero"`
	Rotation   *Rotation              `json:"rotation,omitempty"`
	Keys       []Key                  `json:"keys"` // stored
	Next       *Next                  `json:"next,omitempty"`
	Counts     map[keystore.State]int `json:"counts,omitzero"` // nil if that is not known
	Looks      []Look                 `json:"looks,omitempty"`
	LooksKnown bool                   `json:"looksKnown"`
	Policy     []Setting              `json:"policy,omitempty"`
	Gone       []Gone                 `json:"gone,omitempty"`    // the latest first
	GoneMore   int                    `json:"goneMore,omitzero"` // older ones that are left out
	Changes    []Event                `json:"changes,omitempty"` // the latest first
}

// Key is a published key.
type Key struct {
	Kid          keystore.KeyID       `json:"kid"`
	Fingerprint  keystore.Fingerprint `json:"fingerprint"`
	Alg          string               `json:"alg"`
	State        keystore.State       `json:"state"`
	Served       *bool                `json:"served,omitempty"` // absent if that is not known
	Published    time.Time            `json:"publishedAt"`
	Observed     time.Time            `json:"observedAt,omitzero"` // since when it was seen everywhere; recorded when it was promoted
	Promoted     time.Time            `json:"promotedAt,omitzero"`
	Retired      time.Time            `json:"retiredAt,omitzero"`
	TrustedUntil time.Time            `json:"trustedUntil,omitzero"` // of a retired key
	Expired      bool                 `json:"expired,omitempty"`     // trustedUntil is over
	Next         *Next                `json:"next,omitempty"`        // absent for the only one that signs
}

// Next is a step that a key waits for.
type Next struct {
	Kid      keystore.KeyID        `json:"kid"`
	Step     keystore.RotationStep `json:"step"`
	Gate     keystore.Gate         `json:"gate,omitempty"`     // the closed one; empty if the step can be taken now
	Opens    time.Time             `json:"opens,omitzero"`     // by itself
	Earliest time.Time             `json:"notBefore,omitzero"` // it stays closed before that, whatever is done
	Need     string                `json:"need,omitempty"`
}

// Rotation is one under way.
type Rotation struct {
	To    keystore.KeyID        `json:"kid"`
	Since string                `json:"since"`
	By    string                `json:"by"`
	Step  keystore.RotationStep `json:"step"`
}

// Setting is a line of the policy.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Gone is a key that has left.
type Gone struct {
	Kid keystore.KeyID     `json:"kid"`
	Why keystore.Departure `json:"why"`
	At  time.Time          `json:"at"`
}

// Event is a line of history.
type Event struct {
	At     time.Time `json:"at"`
	By     string    `json:"by,omitempty"`
	What   string    `json:"what"`
	Why    string    `json:"why,omitempty"`
	Forced bool      `json:"forced,omitempty"`
}

// Bounds of a page: a writer of key sets must not be able to make one that no browser shows.
const (
	maxText  = 500 // characters of a reason, a message, a name
	maxGone  = 200
	maxNames = 20 // issuer URLs and relying parties in a list
)

// plain is text of somebody else as one line without characters that change what stands around them.
func plain(s string) string { return text.OneLine(s, maxText) }

// Of returns the page about a key set.
func Of(a About, in Input) KeySet {
	k := KeySet{
		About: a, Name: keystore.Name(plain(string(in.Name))), Issuers: []string{}, Keys: []Key{},
		Unread: plain(in.Unread), Served: in.Served, State: stateOf(in), LooksKnown: in.Observed != nil,
	}
	if in.Rejected != nil {
		k.Unread = "" // that is why, and it says so
		k.Rejected = &Rejected{in.Rejected.Reason, plain(in.Rejected.Message), cmp.Or(in.Rejected.Runbook, Runbook(in.Rejected.Reason))}
	}
	for _, l := range in.Looks {
		l.Issuer, l.Vantage = plain(l.Issuer), plain(l.Vantage)
		gaps := l.Gaps
		l.Gaps = nil
		for _, gap := range gaps[:min(len(gaps), maxNames)] {
			l.Gaps = append(l.Gaps, plain(gap))
		}
		k.Looks = append(k.Looks, l)
	}
	if in.Set == nil {
		if in.Served != nil {
			k.Issuers = append(k.Issuers, in.Served.Issuers...)
		}
		return k
	}
	k.stored(*in.Set, in)
	return k
}

// stateOf returns the state in a word.
func stateOf(in Input) State {
	switch v := in.Served; {
	case in.Rejected != nil && in.Rejected.Reason == "missing":
		return StateMissing
	case in.Rejected != nil && (v == nil || v.Generation == 0):
		return StateRejected
	case in.Rejected != nil:
		return StateBehind
	case in.Set != nil && in.Set.Withdrawn() || in.Set == nil && v != nil && v.Withdrawn:
		return StateWithdrawn
	case v == nil && in.Unread != "":
		return StateRejected
	case v == nil:
		return StateStored
	case v.Generation == 0 && in.Set != nil && in.Set.Policy().Reach == keystore.ReachCopies:
		return StateStored
	case v.Generation == 0:
		return StateAbsent
	case in.Set == nil && in.Unread != "":
		return StateUnread
	case in.Set != nil && (in.Set.Generation() != v.Generation || v.Digest != "" && in.Set.Digest().String() != v.Digest):
		return StateBehind
	}
	return StateServed
}

// Known reports whether it is known which keys are stored.
func (k KeySet) Known() bool { return k.Counts != nil }

// KidsKnown reports whether it is known which keys are served.
func (k KeySet) KidsKnown() bool { return k.Served != nil && k.Served.Kids != nil }

// stored fills in what the document says.
func (k *KeySet) stored(s keystore.KeySet, in Input) {
	k.Generation, k.Dev, k.Withdrawn = s.Generation(), s.Dev(), s.WithdrawnAt()
	for _, u := range s.Issuers() {
		k.Issuers = append(k.Issuers, u.String())
	}
	if r := s.Rotation(); r != nil {
		k.Rotation = &Rotation{r.Kid, plain(r.ID), plain(r.By), r.Step}
	}
	k.Counts = map[keystore.State]int{}
	for _, one := range s.Keys() {
		k.Counts[one.State]++
		k.Keys = append(k.Keys, k.keyOf(s, one, in))
	}
	k.Next = soonest(k.Keys)
	k.Policy = settings(s.Policy())
	gone := s.Gone()
	slices.Reverse(gone)
	k.GoneMore = max(0, len(gone)-maxGone)
	for _, g := range gone[:len(gone)-k.GoneMore] {
		k.Gone = append(k.Gone, Gone{g.ID, g.Why, g.At})
	}
	for _, e := range slices.Backward(s.History()) {
		what, keys := e.Change()
		what = strings.Join(append([]string{what}, keys...), "; ")
		k.Changes = append(k.Changes, Event{e.At, plain(e.Author()), plain(what), plain(e.Why), e.Forced})
	}
}

func (k *KeySet) keyOf(s keystore.KeySet, one keystore.Key, in Input) Key {
	now := k.About.Made
	v := Key{
		Kid: one.ID(), Fingerprint: one.Fingerprint(), Alg: one.Alg(), State: one.State, Published: one.PublishedAt,
		Observed: one.ObservedAt, Promoted: one.PromotedAt, Retired: one.RetiredAt,
	}
	if in.Served != nil && in.Served.Kids != nil {
		served := slices.Contains(in.Served.Kids, one.ID())
		v.Served = &served
	}
	if until, known := s.TrustedUntil(one, now); known {
		v.TrustedUntil, v.Expired = notBefore(until), !until.After(now)
	}
	if !s.Withdrawn() {
		v.Next = nextOf(s, one, now, in.Observed)
	}
	return v
}

// nextOf returns the step that a key waits for; nil for the only one that signs.
func nextOf(s keystore.KeySet, k keystore.Key, now time.Time, observed func(keystore.Key) keystore.Observed) *Next {
	var seen keystore.Observed
	if observed != nil {
		seen = observed(k)
	}
	step, closed := outlook.Of(keystore.Change{At: now}, s, k, seen)
	if step == "" {
		return nil
	}
	n := &Next{Kid: k.ID(), Step: step}
	if closed == nil {
		return n
	}
	n.Gate, n.Opens, n.Earliest, n.Need = closed.Gate, notBefore(closed.Opens), notBefore(closed.Earliest), plain(closed.Need)
	if observed == nil && closed.Gate == keystore.GateObserved { // nobody knows here whether it was observed
		earliest, _ := s.EarliestPromotion(k.ID(), keystore.Observed{})
		n.Earliest = notBefore(earliest)
		n.Need = plain("this page does not know since when every public address has the key; who may read observations sees it with keypost rotate status " + string(s.Name()) + " --observations URL")
	}
	if observed == nil && closed.Gate == keystore.GateCopies { // nor what was read back
		n.Need = plain("this page does not know what the copies hold that relying parties go by; who may read observations sees it with keypost issuer show " + string(s.Name()) + " --observations URL")
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

// settings returns what a policy says in words; nothing of what it does not declare, but for how long tokens live.
func settings(p keystore.Policy) []Setting {
	lifetime := "not declared, so that no retired key can be removed"
	if p.TokenLifetime != nil {
		lifetime = p.TokenLifetime.String()
	}
	all := []Setting{{"Tokens live for at most", lifetime}}
	if len(p.RelyingParties) > 0 {
		all = append(all, Setting{"Relying parties", plain(text.List(p.RelyingParties, min(maxNames, len(p.RelyingParties))))})
	} else {
		all = append(all, Setting{"Relying parties", "not declared, so that the slowest counts"})
	}
	for _, d := range []struct {
		name  string
		value *keystore.Duration
	}{
		{"Caches may keep documents for", p.MaxAge}, {"Stale while they ask again for", p.StaleWhileRevalidate},
		{"Stale while the server fails for", p.StaleIfError}, {"The CDN holds copies for at most", p.EdgeHold},
	} {
		if d.value != nil {
			all = append(all, Setting{d.name, d.value.String()})
		}
	}
	if p.Private {
		all = append(all, Setting{"Reach", "private"})
	}
	if p.Reach == keystore.ReachCopies {
		all = append(all, Setting{"Reach", "copies: nobody reads the documents, and relying parties hold uploads"})
	}
	return all
}

// notBefore returns t in UTC to the second: nothing that opens at t is open before. Zero stays zero.
func notBefore(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Add(time.Second - 1).Truncate(time.Second)
}
