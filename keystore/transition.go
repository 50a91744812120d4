package keystore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/history"
)

// Change is when, by whom and why a transition is made. Every transition records it.
type Change struct {
	At      time.Time
	By, Why string // By is what the author says of themselves
	Force   bool   // passes a closed gate; needs Why
}

// Spec is the initial content of a key set.
type Spec struct {
	Name    Name
	Issuers []IssuerURL
	Keys    []VerificationKey // active at once: the cluster signs with them already
	Policy  Policy
	Dev     bool
	Gone    []Gone    // carried over from an earlier key set with the same issuer URL
	Cluster ClusterID // whose keys they are; empty if nobody looked
}

// New returns a key set of generation 1 whose keys are active.
func New(c Change, spec Spec) (KeySet, error) {
	s := KeySet{name: spec.Name, issuers: slices.Clone(spec.Issuers)}
	s.body = body{Generation: 1, Policy: spec.Policy.Clone(), Dev: spec.Dev, Gone: mergeGone(spec.Gone)}
	err := errors.Join(c.check(), s.checkBounds(len(spec.Issuers), len(spec.Keys), len(spec.Gone)))
	if spec.Cluster != "" {
		s.setClusters(spec.Cluster)
		err = errors.Join(err, spec.Cluster.Check())
	}
	if err != nil {
		return KeySet{}, fmt.Errorf("key set %q: %w", spec.Name, err)
	}
	for _, u := range spec.Issuers {
		if _, err := ParseIssuerURL(u.String(), spec.Dev); err != nil { // one for development may have been given
			return KeySet{}, err
		}
	}
	if len(spec.Keys) == 0 {
		return KeySet{}, fmt.Errorf("key set %q: no key was given", spec.Name)
	}
	c.At = c.At.UTC().Truncate(time.Second)
	for _, k := range spec.Keys {
		s.keys = append(s.keys, Key{VerificationKey: k, State: Active, PublishedAt: c.At, PromotedAt: c.At})
	}
	s.sortKeys()
	s.note(c, "issuer added")
	s.noteMoves(KeySet{body: body{Gone: s.body.Gone}})
	if err := s.check(); err != nil {
		return KeySet{}, fmt.Errorf("key set %q: %w", spec.Name, err)
	}
	return s, nil
}

// transition is change for a key set in use.
func (s KeySet) transition(c Change, what string, edit func(n *KeySet, at time.Time) error) (KeySet, error) {
	if s.Withdrawn() {
		return KeySet{}, fmt.Errorf("%s: key set %q was withdrawn at %s", what, s.name, stamp(s.body.WithdrawnAt))
	}
	return s.change(c, what, edit)
}

// change runs edit on a copy, with the clock checked before and the invariants after, and adds a line of history.
func (s KeySet) change(c Change, what string, edit func(n *KeySet, at time.Time) error) (KeySet, error) {
	if c.Force && c.Why == "" {
		return KeySet{}, fmt.Errorf("%s: to pass a closed gate %w", what, ErrReasonRequired)
	}
	if err := c.check(); err != nil {
		return KeySet{}, fmt.Errorf("%s: %w", what, err)
	}
	at := c.At.UTC().Truncate(time.Second)
	if err := c.pass(s.clockGate(what, at)); err != nil {
		return KeySet{}, err
	}
	n := s
	n.keys, n.body.Gone, n.body.History = slices.Clone(s.keys), slices.Clone(s.body.Gone), slices.Clone(s.body.History)
	c.At = at
	n.note(c, what)
	if err := edit(&n, at); err != nil {
		return KeySet{}, err
	}
	n.body.Rotation = n.Rotation() // which ends when it is complete or its new key was taken out
	n.noteMoves(s)
	if err := n.check(); err != nil {
		return KeySet{}, fmt.Errorf("%s: %w", what, err)
	}
	return n, nil
}

// clockGate returns nil if at is not before the latest recorded time, with a tolerance for clocks that differ. Force
// passes it: else one machine with a wrong clock could keep everybody from revoking a key.
func (s KeySet) clockGate(what string, at time.Time) *NotYetError {
	latest := s.latest()
	if !latest.After(at.Add(gate.ClockTolerance)) {
		return nil
	}
	return &NotYetError{Step: what, Gate: gate.GateClock, Opens: latest.Add(-gate.ClockTolerance),
		Need: fmt.Sprintf("the key set records the time %s, which lies in the future by this machine's clock; check the clock", stamp(latest))}
}

func (s *KeySet) note(c Change, what string) {
	s.body.History = history.Append(s.body.History, Event{At: c.At, By: c.By, What: what, Why: c.Why, Forced: c.Force}, KeptHistory)
}

// noteMoves adds to the last line which keys have other states than in was.
func (s *KeySet) noteMoves(was KeySet) {
	s.body.History[len(s.body.History)-1].Keys = history.Moves(was.states(), s.states())
}

// states returns what became of each key, by key ID.
func (s KeySet) states() map[string]string {
	all := make(map[string]string, len(s.body.Gone)+len(s.keys))
	for _, g := range s.body.Gone {
		all[string(g.ID)] = string(g.Why)
	}
	for _, k := range s.keys {
		if all[string(k.ID())] = string(k.State); s.Withdrawn() {
			all[string(k.ID())] = "withdrawn"
		}
	}
	return all
}

func (s *KeySet) insert(k Key) {
	s.keys = append(s.keys, k)
	s.sortKeys()
}

func (s *KeySet) sortKeys() {
	slices.SortFunc(s.keys, func(a, b Key) int { return cmp.Compare(a.ID(), b.ID()) })
}

// onKey runs edit on one published key of a set that is in use.
func (s KeySet) onKey(c Change, step string, id KeyID, edit func(n *KeySet, i int, at time.Time) error) (KeySet, error) {
	return s.transition(c, fmt.Sprintf("%s key %s", step, id), func(n *KeySet, at time.Time) error {
		i := n.index(id)
		if g := slices.IndexFunc(n.body.Gone, func(g Gone) bool { return g.ID == id }); g >= 0 {
			return fmt.Errorf("%s key %s: it is gone (%s at %s)", step, id, n.body.Gone[g].Why, stamp(n.body.Gone[g].At))
		}
		if i < 0 {
			return fmt.Errorf("%s key %s: key set %q has no such key", step, id, s.name)
		}
		return edit(n, i, at)
	})
}

// pass returns nil if the gate is open or forced.
func (c Change) pass(gate *NotYetError) error {
	if gate == nil || c.Force {
		return nil
	}
	return gate
}

// Add publishes a key as next. It returns an error if the key is published already, under whatever kid.
func (s KeySet) Add(c Change, k VerificationKey) (KeySet, error) {
	return s.transition(c, fmt.Sprintf("add key %s", k.ID()), func(n *KeySet, at time.Time) error {
		if err := n.mayEnter(k); err != nil {
			return fmt.Errorf("add key %s: %w", k.ID(), err)
		}
		if have, published := n.published(k); published {
			return fmt.Errorf("add key %s: key set %q publishes it already (%s, kid %s)", k.ID(), s.name, have.State, have.ID())
		}
		n.insert(Key{VerificationKey: k, State: Next, PublishedAt: at})
		return nil
	})
}

// mayEnter returns an error for a key that must not be published, as it has left already.
func (s KeySet) mayEnter(k VerificationKey) error {
	if g, gone := s.GoneLine(k); gone {
		return fmt.Errorf("it is gone (%s at %s) and never comes back; make a new key", g.Why, stamp(g.At))
	}
	return nil
}

// Promote makes a key active: a next key once no cache can hold a JWKS without it, by what was seen of it; a retired one
// (a rollback) at once, since it has been published all the time. A key that was retired without ever being promoted
// waits like a next one: else retiring it would be a way around the gate.
func (s KeySet) Promote(c Change, id KeyID, o Observed) (KeySet, error) {
	return s.onKey(c, "promote", id, func(n *KeySet, i int, at time.Time) error {
		k := &n.keys[i]
		if k.State == Active {
			return fmt.Errorf("promote key %s: it is active already (since %s)", id, stamp(k.PromotedAt))
		}
		if k.State == Next || k.PromotedAt.IsZero() {
			closed, since := n.Gates().Promote(*k, at, o)
			if err := c.pass(closed); err != nil {
				return err
			}
			if k.ObservedAt = (time.Time{}); !since.IsZero() {
				k.ObservedAt = slices.MinFunc([]time.Time{since.UTC().Truncate(time.Second), at}, time.Time.Compare)
			}
		}
		k.State, k.PromotedAt, k.RetiredAt = Active, at, time.Time{}
		return nil
	})
}

// Evidence shows that a key signs no more: for each kube-apiserver the kid of a token minted at its own address, or a
// written statement of the operator instead.
type Evidence struct {
	Minted    map[string]KeyID // by kube-apiserver address
	Statement string
}

// reason is what the history keeps of the evidence.
func (ev Evidence) reason(why string) string {
	var parts []string
	if why != "" || ev.Statement != "" {
		parts = append(parts, cmp.Or(why, ev.Statement))
	}
	for _, server := range slices.Sorted(maps.Keys(ev.Minted)) {
		parts = append(parts, fmt.Sprintf("%s signs with %s", server, ev.Minted[server]))
	}
	return strings.Join(parts, "; ")
}

// Retire makes a key retired: it signs no more, and stays published until its last token has expired. A next key that was
// used by mistake can be retired too.
func (s KeySet) Retire(c Change, id KeyID, ev Evidence) (KeySet, error) {
	if c.Force && c.Why == "" && ev.Statement == "" {
		return KeySet{}, fmt.Errorf("retire key %s: to pass a closed gate %w", id, ErrReasonRequired)
	}
	c.Why = ev.reason(c.Why)
	return s.onKey(c, "retire", id, func(n *KeySet, i int, at time.Time) error {
		k := &n.keys[i]
		if k.State == Retired {
			return fmt.Errorf("retire key %s: it is retired already (since %s)", id, stamp(k.RetiredAt))
		}
		if err := c.pass(n.retireGate(id, ev)); err != nil {
			return err
		}
		k.State, k.RetiredAt = Retired, at
		return nil
	})
}

// Resume takes back that a key was retired, since something signs with it: it is again what it was before, and may be retired
// again once nothing does. It needs the reason. Its tokens' time then counts from there.
func (s KeySet) Resume(c Change, id KeyID) (KeySet, error) {
	return s.onKey(c, "resume", id, func(n *KeySet, i int, _ time.Time) error {
		k := &n.keys[i]
		if k.State != Retired || c.Why == "" {
			return fmt.Errorf("resume key %s: it is %s; that of a retired one needs a reason", id, k.State)
		}
		if k.State, k.RetiredAt = Active, (time.Time{}); k.PromotedAt.IsZero() {
			k.State = Next
		}
		return nil
	})
}

func (s KeySet) retireGate(id KeyID, ev Evidence) *NotYetError {
	e := &NotYetError{Step: "retire", Key: id, Gate: gate.GateSigning}
	for _, server := range slices.Sorted(maps.Keys(ev.Minted)) {
		if kid := ev.Minted[server]; kid == id {
			e.Need = fmt.Sprintf("the kube-apiserver %s signs with it", server)
			return e
		} else if k, ok := s.Key(kid); !ok || k.State != Active {
			e.Need = fmt.Sprintf("the kube-apiserver %s signs with key %s, which is not an active key of %q", server, kid, s.name)
			return e
		}
	}
	if active := s.active(); s.Rotation() != nil && len(active) == 1 && active[0].ID() == id {
		e.Need = "no other key may sign before the next one is promoted"
		return e
	}
	if len(ev.Minted) == 0 && ev.Statement == "" {
		e.Need = "nothing shows that no kube-apiserver signs with it"
		return e
	}
	return nil
}

// Removal is what there is to know of a key that is to be removed.
type Removal struct {
	NeverSigned bool         // states that a next key has signed nothing
	Uploads     gate.Uploads // what was read back of the uploads that the policy names; else its gate stays closed
}

// Remove takes a key out of the JWKS once no valid token of it is left, and once each upload has the keys that sign. A key that
// is published under several IDs leaves under all of them.
func (s KeySet) Remove(c Change, id KeyID, r Removal) (KeySet, error) {
	return s.onKey(c, "remove", id, func(n *KeySet, i int, at time.Time) error {
		gone := n.keys[i].VerificationKey
		for _, k := range n.keys {
			if !k.SameMaterial(gone) || k.State == Next && r.NeverSigned {
				continue
			}
			if err := c.pass(n.Gates().Remove(k, at, r.Uploads, n.active())); err != nil {
				return err
			}
		}
		n.moveToGone(gone, Removed, at)
		if len(n.keys) == 0 && !c.Force {
			return &LastKeyError{"remove", id, s.name}
		}
		return nil
	})
}

// moveToGone moves a key from keys to gone. Documents may publish one key under several IDs (an issuer that was taken over): it
// leaves under all of them, since its tokens are valid under each.
func (s *KeySet) moveToGone(gone VerificationKey, why Departure, at time.Time) {
	s.keys = slices.DeleteFunc(s.keys, func(k Key) bool {
		if !k.SameMaterial(gone) {
			return false
		}
		s.body.Gone = append(s.body.Gone, goneLine(k, at, why))
		return true
	})
}

// RevokeOptions are what to publish when the last key is revoked: a replacement, or nothing.
type RevokeOptions struct {
	Replacement *VerificationKey
	LeaveEmpty  bool // serve {"keys":[]}: relying parties replace their copy by it, as they would not for a 404 or 503
}

// Revoke takes a key out of the JWKS at once, whatever its state: its signing key is compromised. It needs a reason. A
// key that is published under several IDs leaves under all of them.
func (s KeySet) Revoke(c Change, id KeyID, last RevokeOptions) (KeySet, error) {
	if c.Why == "" {
		return KeySet{}, fmt.Errorf("revoke key %s: %w", id, ErrReasonRequired)
	}
	return s.onKey(c, "revoke", id, func(n *KeySet, i int, at time.Time) error {
		revoked := n.keys[i].VerificationKey
		if r := last.Replacement; r != nil && r.SameMaterial(revoked) {
			return fmt.Errorf("revoke key %s: the replacement is the same key; make a new one", id)
		}
		n.moveToGone(revoked, Revoked, at)
		if last.Replacement != nil {
			return n.replaceRevoked(c, id, *last.Replacement)
		}
		if len(n.keys) == 0 && !last.LeaveEmpty {
			return &LastKeyError{"revoke", id, s.name}
		}
		return nil
	})
}

// replaceRevoked makes k active at once. If k is published already, ID and material must be the same: the cluster is about
// to sign with the key that the operator gave.
func (s *KeySet) replaceRevoked(c Change, revoked KeyID, k VerificationKey) error {
	if err := s.mayEnter(k); err != nil {
		return fmt.Errorf("the replacement %s: %w", k.ID(), err)
	}
	c.At = c.At.UTC().Truncate(time.Second)
	s.note(c, fmt.Sprintf("activate key %s in place of key %s", k.ID(), revoked))
	have, published := s.published(k)
	switch {
	case !published:
		s.insert(Key{VerificationKey: k, State: Active, PublishedAt: c.At, PromotedAt: c.At})
	case have.ID() != k.ID() || !have.SameMaterial(k):
		return fmt.Errorf("the replacement %s is not the published key %s (%s), and has its material or its kid; give that key with that kid, as a JWK, or make a new one", k.ID(), have.ID(), have.State)
	case have.State != Active:
		k := &s.keys[s.index(k.ID())]
		k.State, k.PromotedAt, k.RetiredAt = Active, c.At, time.Time{}
	}
	return nil
}

// published returns the published key that has p's ID, or else p's material.
func (s KeySet) published(p VerificationKey) (Key, bool) {
	i := s.index(p.ID())
	if i < 0 {
		i = slices.IndexFunc(s.keys, func(k Key) bool { return k.SameMaterial(p) })
	}
	if i < 0 {
		return Key{}, false
	}
	return s.keys[i], true
}

// SetPolicy replaces the policy. The gates use lifetimes that it lowers until copies and tokens from before have expired.
func (s KeySet) SetPolicy(c Change, p Policy) (KeySet, error) {
	return s.transition(c, "set policy", func(n *KeySet, at time.Time) error {
		if s.body.Policy.TokenLifetime != nil && p.TokenLifetime == nil {
			return errors.New("a declared token lifetime cannot become undeclared; set it to the longest one in use")
		}
		n.body.Policy = s.body.Policy.ReplaceBy(p, at)
		if changed := s.body.Policy.Changes(p); changed != "" {
			n.body.History[len(n.body.History)-1].What = "set policy: " + changed
		}
		return nil
	})
}

// Withdraw ends an issuer: the key set becomes a tombstone, and its documents are served no more.
func (s KeySet) Withdraw(c Change) (KeySet, error) {
	return s.transition(c, "withdraw", func(n *KeySet, at time.Time) error {
		if a := n.active(); len(a) > 0 && !c.Force {
			return &NotYetError{Step: "withdraw", Gate: gate.GateActiveKeys,
				Need: fmt.Sprintf("key %s is active; retire it when the cluster signs with it no more", a[0].ID())}
		}
		n.body.WithdrawnAt = at
		return nil
	})
}

// Reopen returns the withdrawn key set in use again, with the URLs and the new keys of spec. Everything that it published
// before is gone for good. It needs a reason. [Update] gives the result the next generation.
func (s KeySet) Reopen(c Change, spec Spec) (KeySet, error) {
	switch {
	case !s.Withdrawn():
		return KeySet{}, fmt.Errorf("key set %q exists and is in use", s.name)
	case c.Why == "":
		return KeySet{}, fmt.Errorf("reopen key set %q: %w", s.name, ErrReasonRequired)
	}
	c.At = c.At.UTC().Truncate(time.Second)
	if err := c.pass(s.clockGate("reopen", c.At)); err != nil {
		return KeySet{}, err
	}
	spec.Gone = s.Remains()
	fresh, err := New(c, spec)
	if err != nil {
		return KeySet{}, err
	}
	clusters := fresh.Clusters() // what signed before the key set was withdrawn brings no key in any more
	fresh.body.Generation, fresh.labels, fresh.annotations, fresh.unknown = s.body.Generation, s.labels, s.annotations, s.unknown
	fresh.setClusters(clusters...)
	fresh.body.History = slices.Clone(s.body.History)
	fresh.note(c, "issuer added again")
	fresh.noteMoves(s)
	return fresh, nil
}
