// Package page makes the operator's page: what is known of key sets, as HTML for people. A server answers with it below a root:
//
//	index.html          the list of key sets, and what needs attention
//	keysets/NAME.html   one key set
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
	Made         time.Time
	Build        string    // of the program
	Source       string    // where the key sets are
	Trouble      []Trouble // of the whole
	Complete     time.Time // when all key sets were last listed and read
	Mirror       *Mirror
	Certificates []Certificate
}

// Trouble is something that is wrong with the whole, and where the way out is written down.
type Trouble struct {
	Text    string
	Runbook string
}

// Mirror is the copy that the key sets are, if they are one.
type Mirror struct {
	Store    string
	Complete time.Time // when the last whole pass began
	KeySets  int
	Refused  int
}

// Certificate is one that the server shows.
type Certificate struct {
	Names []string
	From  string    // its file, or the CA's directory
	Until time.Time // zero: there is none yet
}

// List is the page with all key sets.
type List struct {
	About     About
	KeySets   int
	Issuers   int // URLs, of all key sets
	Attention int
	First     []KeySet // the first that need it
	Rows      []KeySet // the first MaxRows by name
}

// More returns how many key sets the list leaves out.
func (l List) More() int { return l.KeySets - len(l.Rows) }

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
