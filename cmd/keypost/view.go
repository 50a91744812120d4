package main

import (
	"text/tabwriter"
	"time"

	"github.com/keypost/keypost/keystore"
)

// issuerView is a key set as it is printed.
type issuerView struct {
	Name        keystore.Name    `json:"name"`
	Generation  int64            `json:"generation"`
	Issuers     []string         `json:"issuers"`
	Keys        []keyView        `json:"keys"`
	Gone        []goneView       `json:"gone,omitempty"`
	Policy      keystore.Policy  `json:"policy"`
	History     []keystore.Event `json:"history,omitempty"`
	WithdrawnAt time.Time        `json:"withdrawnAt,omitzero"`
	Dev         bool             `json:"dev,omitempty"`
}

type keyView struct {
	Kid          keystore.KeyID `json:"kid"`
	Alg          string         `json:"alg"`
	State        keystore.State `json:"state"`
	Imported     bool           `json:"importedKid,omitempty"`
	PublishedAt  time.Time      `json:"publishedAt"`
	ObservedAt   time.Time      `json:"observedAt,omitzero"`
	PromotedAt   time.Time      `json:"promotedAt,omitzero"`
	RetiredAt    time.Time      `json:"retiredAt,omitzero"`
	TrustedUntil time.Time      `json:"trustedUntil,omitzero"` // of a retired key, if the token lifetime is declared
	text         string
}

type goneView struct {
	Kid         keystore.KeyID       `json:"kid"`
	Fingerprint keystore.Fingerprint `json:"fingerprint,omitempty"`
	At          time.Time            `json:"at"`
	Why         string               `json:"why"`
	PublishedAt time.Time            `json:"publishedAt,omitzero"`
	PromotedAt  time.Time            `json:"promotedAt,omitzero"`
	RetiredAt   time.Time            `json:"retiredAt,omitzero"`
}

func viewOf(s keystore.KeySet, now time.Time) issuerView {
	v := issuerView{
		Name: s.Name(), Generation: s.Generation(), Issuers: urls(s), Keys: []keyView{}, Policy: s.Policy(),
		History: s.History(), WithdrawnAt: s.WithdrawnAt(), Dev: s.Dev(),
	}
	for _, k := range s.Keys() {
		v.Keys = append(v.Keys, keyViewOf(s, k, now))
	}
	for _, g := range s.Gone() {
		v.Gone = append(v.Gone, goneView{g.ID, g.Fingerprint, g.At, g.Why, g.PublishedAt, g.PromotedAt, g.RetiredAt})
	}
	return v
}

func keyViewOf(s keystore.KeySet, k keystore.Key, now time.Time) keyView {
	until, _ := s.TrustedUntil(k, now)
	return keyView{
		Kid: k.ID(), Alg: k.Alg(), State: k.State, Imported: k.Imported(), PublishedAt: k.PublishedAt, ObservedAt: k.ObservedAt,
		PromotedAt: k.PromotedAt, RetiredAt: k.RetiredAt, TrustedUntil: until, text: stateText(s, k, now),
	}
}

// stateText never says "retired" alone: people take that for "no longer trusted".
func stateText(s keystore.KeySet, k keystore.Key, now time.Time) string {
	if k.State != keystore.Retired {
		return string(k.State)
	}
	until, declared := s.TrustedUntil(k, now)
	switch {
	case !declared:
		return "retired (still trusted; no token lifetime is declared)"
	case until.After(now):
		return "retired (trusted until " + stamp(until) + ")"
	}
	return "retired (trusted until it is removed; its last token expired at " + stamp(until) + ")"
}

func urls(s keystore.KeySet) []string {
	list := []string{}
	for _, u := range s.Issuers() {
		list = append(list, u.String())
	}
	return list
}

func keyRows(w *tabwriter.Writer, keys []keyView) {
	row(w, "KID", "ALG", "STATE", "PUBLISHED")
	for _, k := range keys {
		row(w, k.Kid, k.Alg, k.text, stamp(k.PublishedAt))
	}
}

// table prints everything that is known of a key set.
func (v issuerView) table(w *tabwriter.Writer) {
	row(w, "name:", v.Name)
	row(w, "generation:", v.Generation)
	for _, u := range v.Issuers {
		row(w, "issuer:", u)
	}
	if !v.WithdrawnAt.IsZero() {
		row(w, "withdrawn:", stamp(v.WithdrawnAt))
	}
	if v.Dev {
		row(w, "development:", "only keypostd --dev serves it")
	}
	row(w, "policy:", policyLine(v.Policy))
	for _, h := range v.Policy.HeldUntil {
		row(w, "held:", heldLine(h))
	}
	row(w)
	keyRows(w, v.Keys)
	if len(v.Gone) > 0 {
		row(w)
		row(w, "GONE KID", "WHY", "AT")
	}
	for _, g := range v.Gone {
		row(w, g.Kid, g.Why, stamp(g.At))
	}
	row(w)
	row(w, "HISTORY", "BY", "WHAT", "WHY")
	for _, e := range v.History {
		why := e.Why
		if e.Forced {
			why += " (forced)"
		}
		row(w, stamp(e.At), e.By, e.What, why)
	}
}
