// Package page makes the operator's page: what is known of key sets, as HTML for people and as JSON for programs. A server answers with
// it, and a command writes it as files; both have the same pages at the same addresses below a root:
//
//	index.html          the list of key sets, and what needs attention
//	keysets/NAME.html   one key set
//
// Beside each is its twin, with .json in place of .html, which says the same.
//
// It promises that a page is small however many key sets there are, that it runs no script and fetches nothing, and that no text of a
// document, a store or a colleague can be anything but text on it. Nothing can be changed by a page, and none has a time of its own:
// when a gate opens is what the transition itself would answer.
package page

import (
	"time"

	"github.com/keypost/keypost/keystore"
)

// About is what every page says of itself: who made it, when, and of what.
type About struct {
	Made         time.Time     `json:"made"`
	Build        string        `json:"build"`             // of the program
	Source       string        `json:"source"`            // where the key sets are
	Trouble      []Trouble     `json:"trouble,omitempty"` // of the whole
	Complete     time.Time     `json:"complete,omitzero"` // when all key sets were last listed and read
	Mirror       *Mirror       `json:"mirror,omitempty"`
	Certificates []Certificate `json:"certificates,omitempty"`
}

// Trouble is something that is wrong with the whole, and where the way out is written down.
type Trouble struct {
	Text    string `json:"text"`
	Runbook string `json:"runbook,omitempty"`
}

// Mirror is the copy that the key sets are, if they are one.
type Mirror struct {
	Store    string    `json:"store"`
	Complete time.Time `json:"complete"` // when the last whole pass began
	KeySets  int       `json:"keySets"`
	Refused  int       `json:"refused"`
}

// Certificate is one that the server shows.
type Certificate struct {
	Names []string  `json:"names"`
	From  string    `json:"from"`           // its file, or the CA's directory
	Until time.Time `json:"until,omitzero"` // zero: there is none yet
}

// List is the page with all key sets.
type List struct {
	About     About `json:"about"`
	KeySets   int   `json:"keySets"`
	Issuers   int   `json:"issuers"` // URLs, of all key sets
	Attention int   `json:"attention"`
	First     []Row `json:"needAttention,omitempty"` // the first that need it
	Rows      []Row `json:"rows"`                    // the first MaxRows by name
}

// Row is a line of the list.
type Row struct {
	Name       keystore.Name          `json:"name"`
	Issuers    []string               `json:"issuers"`
	State      State                  `json:"state"`
	Generation int64                  `json:"generation,omitempty"` // stored
	Served     *Served                `json:"served,omitempty"`
	Counts     map[keystore.State]int `json:"keys,omitzero"`    // stored; nil if that is not known
	Unread     string                 `json:"unread,omitempty"` // why the stored version cannot be read
	Next       *Next                  `json:"next,omitempty"`
	Rejected   *Rejected              `json:"rejected,omitempty"`
	Changed    time.Time              `json:"changed,omitzero"`
}

// More returns how many key sets the list leaves out.
func (l List) More() int { return l.KeySets - len(l.Rows) }

// Row returns the line about a key set.
func (k KeySet) Row() Row {
	r := Row{Name: k.Name, Issuers: k.Issuers, State: k.State, Generation: k.Generation, Counts: k.Counts, Next: k.Next, Rejected: k.Rejected, Unread: k.Unread}
	if k.Served != nil {
		r.Served = &Served{Generation: k.Served.Generation, Withdrawn: k.Served.Withdrawn}
	}
	if len(k.Changes) > 0 {
		r.Changed = k.Changes[0].At
	}
	return r
}

// NeedsAttention reports whether somebody has to look at it.
func (r Row) NeedsAttention() bool { return r.Rejected != nil }

// Known reports whether it is known which keys are stored.
func (r Row) Known() bool { return r.Counts != nil }

// Bounds of the list.
const (
	MaxRows      = 1000 // key sets that it names; each of the others has its page all the same
	MaxAttention = 50   // of those that need attention
)

// runbooks is where the way out of what is wrong is written down.
const runbooks = "https://github.com/keypost/keypost/blob/main/charts/keypost/README.md#"

// Runbook returns the address of the runbook for a reason.
func Runbook(r keystore.Reason) string {
	if r == "missing" {
		return runbooks + "keypostkeysetsmissing"
	}
	return runbooks + "keypostkeysetsrejected"
}

// Runbooks for trouble of the whole.
const (
	RunbookReady       = runbooks + "keypostreplicadown"
	RunbookReading     = runbooks + "keypostreadfailing"
	RunbookMirror      = runbooks + "keypostmirrorstale"
	RunbookCertificate = runbooks + "keypostcertificateexpiring"
)
