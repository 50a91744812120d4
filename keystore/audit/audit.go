// Package audit answers from one key set which keys relying parties trusted at a time, and who changed what until then. Time
// and key set are values; nothing is read.
//
// It knows what the key set says: when each key was listed, when it left, and the latest lines of history. Anyone who can write
// the key set can write other dates and lines: what the store itself logs of its writers is the record.
package audit

import (
	"cmp"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
)

// Report is which keys were trusted at a time, and the changes until then.
type Report struct {
	Name       keystore.Name    `json:"name"`
	Generation int64            `json:"generation"`
	Issuers    []string         `json:"issuers"`
	At         time.Time        `json:"at"`
	Keys       []Key            `json:"keys"`
	Changes    []keystore.Event `json:"changes,omitempty"` // of those that the key set still has, oldest first
}

// Key is a key that relying parties trusted at the time of a Report: the key set listed it then, or caches may still have held a
// copy from when it did.
type Key struct {
	Kid         keystore.KeyID       `json:"kid"`
	Fingerprint keystore.Fingerprint `json:"fingerprint,omitempty"` // SHA-256 of its PKIX form; empty if it was not recorded
	Listed      bool                 `json:"listed"`                // at that time
	PublishedAt time.Time            `json:"publishedAt,omitzero"`  // zero if it was not recorded
	LeftAt      time.Time            `json:"leftAt,omitzero"`       // zero if it is still listed
	Left        string               `json:"left,omitempty"`        // removed, revoked or withdrawn
	CachedUntil time.Time            `json:"cachedUntil,omitzero"`  // of a key that has left: until when caches may hold it, by today's policy
	Alg         string               `json:"alg,omitempty"`
	PublicKey   string               `json:"publicKey,omitempty"` // PKIX PEM, while the key set has it: a key that is gone leaves its fingerprint only
}

// Of returns the report about a key set at a time.
func Of(s keystore.KeySet, at time.Time) Report {
	r := Report{Name: s.Name(), Generation: s.Generation(), Issuers: []string{}, At: at.UTC(), Keys: []Key{}}
	for _, u := range s.Issuers() {
		r.Issuers = append(r.Issuers, u.String())
	}
	for _, e := range s.History() {
		if !e.At.After(at) {
			r.Changes = append(r.Changes, e)
		}
	}
	for _, k := range s.Keys() {
		held := Key{
			Kid: k.ID(), Fingerprint: k.Fingerprint(), PublishedAt: k.PublishedAt, LeftAt: s.WithdrawnAt(),
			Alg: k.Alg(), PublicKey: k.PEM(),
		}
		if s.Withdrawn() {
			held.Left = "withdrawn"
		}
		r.add(s, held)
	}
	for _, g := range s.Gone() {
		r.add(s, Key{Kid: g.ID, Fingerprint: g.Fingerprint, PublishedAt: g.PublishedAt, LeftAt: g.At, Left: string(g.Why)})
	}
	slices.SortFunc(r.Keys, func(a, b Key) int { return cmp.Compare(a.Kid, b.Kid) })
	return r
}

// add adds k if it was trusted at the time of the report.
func (r *Report) add(s keystore.KeySet, k Key) {
	if k.PublishedAt.After(r.At) {
		return
	}
	k.Listed = k.LeftAt.IsZero() || r.At.Before(k.LeftAt)
	if !k.LeftAt.IsZero() {
		k.CachedUntil = s.Gates().CopiesUntil(k.LeftAt, keystore.Cache{})
	}
	if k.Listed || r.At.Before(k.CachedUntil) {
		r.Keys = append(r.Keys, k)
	}
}
