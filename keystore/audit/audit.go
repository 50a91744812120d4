// Package audit answers from one key set which keys relying parties trusted at a time, and whether the key set's chain of
// digests is whole. Time and key set are values; nothing is read.
//
// It knows what the key set's dates say: when each key was listed and when it left. Whoever can write the key set can write
// other dates, and a chain that fits them: what the store itself logs of its writers is the record.
package audit

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/history"
)

// Report is which keys were trusted at a time, and whether the chain of digests is whole.
type Report struct {
	Name       keystore.Name `json:"name"`
	Generation int64         `json:"generation"`
	Issuers    []string      `json:"issuers"`
	At         time.Time     `json:"at"`
	MadeAt     time.Time     `json:"madeAt,omitzero"`   // when its first generation was made; zero if no line that counts says so
	OldestAt   time.Time     `json:"oldestAt,omitzero"` // the oldest date in the key set
	Keys       []Key         `json:"keys"`
	Chain      Chain         `json:"chain"`
}

// Key is a key that relying parties trusted at the time of a Report: the key set listed it then, or caches may still have held a
// copy from when it did.
type Key struct {
	Kid         keystore.KeyID       `json:"kid"`
	Fingerprint keystore.Fingerprint `json:"fingerprint,omitempty"` // SHA-256 of its PKIX form; empty for a key that left before fingerprints were recorded
	Listed      bool                 `json:"listed"`                // at that time
	State       keystore.State       `json:"state,omitempty"`       // at that time; empty if it was not listed any more, or nothing says
	StateFrom   Source               `json:"stateFrom,omitempty"`   // what says so; empty without a state
	PublishedAt time.Time            `json:"publishedAt,omitzero"`  // zero if it was not recorded
	LeftAt      time.Time            `json:"leftAt,omitzero"`       // zero if it is still listed
	Left        string               `json:"left,omitempty"`        // removed, revoked or withdrawn
	CachedUntil time.Time            `json:"cachedUntil,omitzero"`  // of a key that has left: until when caches may hold it, by today's policy
	Alg         string               `json:"alg,omitempty"`
	PublicKey   string               `json:"publicKey,omitempty"` // PKIX PEM, while the key set has it: a key that is gone leaves its fingerprint only
}

// Source is what a report has a state from.
type Source string

// The sources of states. A line counts only in a whole history: dates are what is left of any other.
const (
	FromHistory Source = "history"
	FromDates   Source = "dates"
)

// Of returns the report about a key set at a time.
func Of(s keystore.KeySet, at time.Time) Report {
	r := Report{Name: s.Name(), Generation: s.Generation(), Issuers: []string{}, At: at.UTC(), Keys: []Key{}, Chain: ChainOf(s)}
	for _, u := range s.Issuers() {
		r.Issuers = append(r.Issuers, u.String())
	}
	r.MadeAt, r.OldestAt = r.begin(s)
	for _, k := range s.Keys() {
		held := Key{
			Kid: k.ID(), Fingerprint: k.Fingerprint(), State: byDates(k, at), PublishedAt: k.PublishedAt,
			LeftAt: s.WithdrawnAt(), Alg: k.Alg(), PublicKey: pemOf(k),
		}
		if s.Withdrawn() {
			held.Left = "withdrawn"
		}
		r.add(s, held)
	}
	for _, g := range s.Gone() {
		f, _ := g.Material()
		k := keystore.Key{PublishedAt: g.PublishedAt, PromotedAt: g.PromotedAt, RetiredAt: g.RetiredAt, State: keystore.Next}
		r.add(s, Key{Kid: g.ID, Fingerprint: f, State: byDates(k, at), PublishedAt: g.PublishedAt, LeftAt: g.At, Left: string(g.Why)})
	}
	slices.SortFunc(r.Keys, func(a, b Key) int { return cmp.Compare(a.Kid, b.Kid) })
	return r
}

// add adds k if it was trusted at the time of the report.
func (r *Report) add(s keystore.KeySet, k Key) {
	if k.PublishedAt.After(r.At) {
		return
	}
	k.StateFrom = FromDates
	if r.Chain.State == Whole {
		r.byLines(s, &k)
	}
	if k.Listed = k.LeftAt.IsZero() || r.At.Before(k.LeftAt); !k.Listed {
		k.State = ""
	}
	if k.State == "" {
		k.StateFrom = ""
	}
	if !k.LeftAt.IsZero() {
		k.CachedUntil = s.CopiesUntil(k.LeftAt, keystore.Cache{})
	}
	if k.Listed || r.At.Before(k.CachedUntil) {
		r.Keys = append(r.Keys, k)
	}
}

// byLines sets the state that history has for a key: the key's own dates are overwritten when a rotation is rolled back. Lines are
// dropped in time, so there may be none.
func (r *Report) byLines(s keystore.KeySet, k *Key) {
	switch state := keystore.State(history.StateAt(s.History(), string(k.Kid), r.At)); state {
	case keystore.Next, keystore.Active, keystore.Retired:
		k.State, k.StateFrom = state, FromHistory
	}
}

// begin returns when the first generation was made, zero if no line of a whole history says so, and the oldest date of all.
func (r *Report) begin(s keystore.KeySet) (made, oldest time.Time) {
	var all []time.Time
	for _, e := range s.History() {
		if all = append(all, e.At); made.IsZero() && e.Generation == 1 && r.Chain.State == Whole {
			made = e.At
		}
	}
	for _, k := range s.Keys() {
		all = append(all, k.PublishedAt)
	}
	for _, g := range s.Gone() {
		all = append(all, g.PublishedAt, g.At)
	}
	for _, t := range all {
		if !t.IsZero() && (oldest.IsZero() || t.Before(oldest)) {
			oldest = t
		}
	}
	return made, oldest
}

// TooEarly reports whether the key set was made after the time of the report, or has nothing from then.
func (r Report) TooEarly() bool { return r.At.Before(cmp.Or(r.MadeAt, r.OldestAt)) && len(r.Keys) == 0 }

func byDates(k keystore.Key, at time.Time) keystore.State {
	reached := func(t time.Time) bool { return !t.IsZero() && !t.After(at) }
	switch {
	case k.PublishedAt.IsZero():
		return ""
	case reached(k.RetiredAt):
		return keystore.Retired
	case reached(k.PromotedAt):
		return keystore.Active
	}
	return keystore.Next
}

func pemOf(k keystore.Key) string {
	der, err := x509.MarshalPKIXPublicKey(k.Key())
	if err != nil {
		return "" // cannot happen: every key was read from that form
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// ChainState says whether a chain of digests is whole.
type ChainState string

// What is known of a chain of digests.
const (
	Whole      ChainState = "whole"      // as far back as lines are kept
	Broken     ChainState = "broken"     // it has findings
	Unrecorded ChainState = "unrecorded" // nothing shows: no digests, as in a key set that was not changed since they are recorded
	Unshown    ChainState = "unshown"    // nothing shows: members that this program does not know are part of what a newer one has digested
)

// Chain is what a key set's own lines say of its chain of digests.
type Chain struct {
	State    ChainState        `json:"state"`
	Since    int64             `json:"since,omitempty"`   // the first generation that the lines with digests go back to
	SinceAt  time.Time         `json:"sinceAt,omitzero"`  // when that was made
	Earlier  int               `json:"earlier,omitempty"` // lines before it, which have no digests: nothing shows who wrote them
	Digest   history.Digest    `json:"digest,omitempty"`  // of this generation, as the next will name it: kept elsewhere, it shows whether a later one descends from it
	Unknown  []string          `json:"unknown,omitempty"` // members that this program does not know
	Findings []history.Finding `json:"findings,omitempty"`
}

// ChainOf checks the chain in a key set.
func ChainOf(s keystore.KeySet) Chain {
	state := s.Chained()
	c := Chain{State: Whole, Findings: append(state.Lost(), state.Check()...), Unknown: state.Unknown}
	first := slices.IndexFunc(state.Lines, func(e history.Event) bool { return e.Generation != 0 })
	switch {
	case len(c.Findings) > 0:
		c.State = Broken
	case len(c.Unknown) > 0:
		c.State = Unshown
	case first < 0:
		c.State = Unrecorded
	}
	if first >= 0 {
		c.Since, c.SinceAt, c.Earlier = state.Lines[first].Generation, state.Lines[first].At, first
	}
	if first >= 0 && len(c.Unknown) == 0 {
		c.Digest = state.Digest()
	}
	return c
}

// Follow returns why s does not descend from the generation of a head, empty if it does or nothing shows it.
func Follow(s keystore.KeySet, was history.Head) string {
	if f := s.Chained().Follow(was); f != nil {
		return f.Message
	}
	return ""
}

// Messages returns what was found in one line, empty if nothing was.
func Messages(found []history.Finding) string {
	var all []string
	for _, f := range found {
		all = append(all, f.Message)
	}
	return strings.Join(all, "; ")
}

// Expect adds a finding to the report about s unless its lines show that it descends from the generation of a head, which
// somebody has kept where writers of the store do not reach it.
func (r *Report) Expect(s keystore.KeySet, was history.Head) {
	state := s.Chained()
	found := state.Follow(was)
	gap := func(format string, args ...any) *history.Finding {
		return &history.Finding{Generation: s.Generation(), Kind: history.Gap, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(state.Unknown) > 0 && (found == nil || was.Generation == s.Generation()):
		found = gap("nothing shows whether it descends from generation %d: it has members that this keypost does not know (%s)", was.Generation, state.Unknown[0])
	case was.Generation == s.Generation() && was != state.Head():
		found = gap("the digest that was given is not that of generation %d, as it is here", was.Generation)
		found.Kind = history.Broken
	case found == nil && !state.Shows(was):
		found = gap("nothing shows whether it descends from generation %d: its lines of history do not go back that far, or have no digests", was.Generation)
	}
	if found != nil {
		r.Chain.State, r.Chain.Findings = Broken, append(r.Chain.Findings, *found)
	}
}
