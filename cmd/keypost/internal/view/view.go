// Package view prints key sets and their policies for people and programs, and reads the flags of a policy.
package view

import (
	"cmp"
	"fmt"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
)

// KeySet is a key set as it is printed.
type KeySet struct {
	Name        keystore.Name    `json:"name"`
	Generation  int64            `json:"generation"`
	Issuers     []string         `json:"issuers"`
	Keys        []Key            `json:"keys"`
	Gone        []keystore.Gone  `json:"gone,omitempty"`
	Policy      keystore.Policy  `json:"policy"`
	History     []keystore.Event `json:"history,omitempty"`
	WithdrawnAt time.Time        `json:"withdrawnAt,omitzero"`
	Dev         bool             `json:"dev,omitempty"`

	Uploads []observation.UploadStatus `json:"uploads,omitempty"` // that the policy names, where what was read back is known
}

// Key is a published key as it is printed.
type Key struct {
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

// StateText returns the state for people, as [StateText] does.
func (k Key) StateText() string { return k.text }

// Of returns the view of a key set at a time, on which depends whether a retired key is still trusted.
func Of(s keystore.KeySet, now time.Time) KeySet {
	v := KeySet{
		Name: s.Name(), Generation: s.Generation(), Issuers: URLs(s), Keys: []Key{}, Policy: s.Policy(), Gone: s.Gone(),
		History: s.History(), WithdrawnAt: s.WithdrawnAt(), Dev: s.Dev(),
	}
	for _, k := range s.Keys() {
		until, _ := s.Gates().TrustedUntil(k, now)
		v.Keys = append(v.Keys, Key{
			Kid: k.ID(), Alg: k.Alg(), State: k.State, Imported: k.Imported(), PublishedAt: k.PublishedAt, ObservedAt: k.ObservedAt,
			PromotedAt: k.PromotedAt, RetiredAt: k.RetiredAt, TrustedUntil: until, text: StateText(s, k, now),
		})
	}
	return v
}

// StateText returns the state of a key for people. It is never only "retired", which reads like "no longer trusted".
func StateText(s keystore.KeySet, k keystore.Key, now time.Time) string {
	if k.State != keystore.Retired {
		return string(k.State)
	}
	until, declared := s.Gates().TrustedUntil(k, now)
	switch {
	case !declared:
		return "retired (still trusted; no token lifetime is declared)"
	case until.After(now):
		return "retired (trusted until " + cli.Stamp(until) + ")"
	}
	return "retired (trusted until it is removed; its last token expired at " + cli.Stamp(until) + ")"
}

// URLs returns the issuer URLs of a key set; never nil.
func URLs(s keystore.KeySet) []string {
	list := []string{}
	for _, u := range s.Issuers() {
		list = append(list, u.String())
	}
	return list
}

// KeyRows prints keys as rows of a table, under a heading.
func KeyRows(w *terminal.Table, keys []Key) {
	w.Row("KID", "ALG", "STATE", "PUBLISHED")
	for _, k := range keys {
		w.Row(k.Kid, k.Alg, k.text, cli.Stamp(k.PublishedAt))
	}
}

// PrintChanged prints the keys of a key set that was just stored, under what was done to it.
func PrintChanged(f *cli.Factory, s keystore.KeySet, done ...any) error {
	v := Of(s, time.Now())
	return f.Print(v, func(w *terminal.Table) {
		w.Row(done...)
		w.Row()
		KeyRows(w, v.Keys)
	})
}

// Table prints everything that is known of a key set.
func (v KeySet) Table(w *terminal.Table) {
	w.Row("name:", v.Name)
	w.Row("generation:", v.Generation)
	for _, u := range v.Issuers {
		w.Row("issuer:", u)
	}
	if !v.WithdrawnAt.IsZero() {
		w.Row("withdrawn:", cli.Stamp(v.WithdrawnAt))
	}
	if v.Dev {
		w.Row("development:", "only keypostd --dev serves it")
	}
	w.Row("policy:", policyLine(v.Policy))
	for _, h := range v.Policy.HeldUntil {
		w.Row("held:", HeldLine(h))
	}
	UploadRows(w, v.Uploads)
	w.Row()
	KeyRows(w, v.Keys)
	if len(v.Gone) > 0 {
		w.Row()
		w.Row("GONE KID", "WHY", "AT")
	}
	for _, g := range v.Gone {
		w.Row(g.ID, g.Why, cli.Stamp(g.At))
	}
	w.Row()
	HistoryRows(w, v.History)
}

// HistoryRows prints changes: who made them, what they were, and why.
func HistoryRows(w *terminal.Table, changes []keystore.Event) {
	w.Row("HISTORY", "BY", "WHAT", "WHY")
	for _, e := range changes {
		why := e.Why
		if e.Forced {
			why += " (forced)"
		}
		what, keys := e.Change()
		w.Row(cli.Stamp(e.At), cmp.Or(e.Author(), "not said"), what, why)
		for _, move := range keys {
			w.Row("", "", "  "+move, "")
		}
	}
}

// UploadRows prints the uploads that relying parties hold, a row each.
func UploadRows(w *terminal.Table, uploads []observation.UploadStatus) {
	for _, c := range uploads {
		line := c.Problem()
		if line == "" {
			line = fmt.Sprintf("%s has the published keys (read back at %s by %s)", c.Upload, cli.Stamp(c.ReadAt), cmp.Or(c.By, "somebody unnamed"))
		}
		w.Row("upload:", line)
	}
}
