// Package salvage makes a key set go on from a copy of its last good version, when its document in the store is broken or
// lost and a key has to be revoked now.
//
// A copy is a file in somebody's hands, and not only its keys count: with another issuer URL, a wait for the end of the key
// would look elsewhere. So the caller needs proof that the store held the whole of it. The copy may still be an older
// version than what was broken, and lack revocations: what is left decides whether it is. What is gone by the copy or by
// what is left stays gone.
package salvage

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/keypem"
	"github.com/keypost/keypost/internal/strictyaml"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

// Remains are what a broken document still says. The zero value is that of a lost one.
type Remains struct {
	Generation int64           // 0 if it cannot be said which one the document had
	Withdrawn  bool            // it was a tombstone
	Gone       []keystore.Gone // lines in gone, as far as they can be read
	issuers    []string        // issuer URLs, as far as they can be read
	goneText   []byte          // whatever stands under gone, in any form
	keys       map[keystore.Fingerprint]bool
}

// The forms of members in YAML and JSON, for text that is neither any more. JSON may stand in a string, with its quotes escaped.
var (
	generationLabel = regexp.MustCompile(`\bgeneration[\\"']*[ \t]*:`)
	generationForm  = regexp.MustCompile(`\bgeneration[\\"']*[ \t]*:[ \t]*[\\"']*([0-9]{1,16})(?:[\\"',}\s]|$)`)
	withdrawnForm   = regexp.MustCompile(`\bwithdrawnAt[\\"']*[ \t]*:[ \t]*[\\"']*[0-9]`)
	fingerprintForm = regexp.MustCompile(`\bfingerprint[\\"']*[ \t]*:[ \t]*[\\"']*([A-Za-z0-9_-]{43})\b`) // only lines in gone have one
	pemForm         = regexp.MustCompile(`-----BEGIN [A-Z ]{1,40}-----[A-Za-z0-9+/=\s\\]+-----END [A-Z ]{1,40}-----`)
	escapedBreak    = regexp.MustCompile(`\\n`)
	indentForm      = regexp.MustCompile(`(?m)^[ \t]+|[ \t]+$`)
	issuersForm     = regexp.MustCompile(`\bissuers[\\"']*[ \t]*:((?:[\s\[,\\"'-]|[<=>|]{7}[^\n]*\n|https?://[^\s\\"',\]]+)+)`)
	urlForm         = regexp.MustCompile(`https?://[^\s\\"',\]]+`)
	memberForm      = regexp.MustCompile(`(?:[\r\n][ \t]*|[{,]\s*)[\\"']*(gone|apiVersion|kind|metadata|spec|dev|generation|history|issuers|keys|policy|rotation|withdrawnAt)[\\"']*[ \t]*:`)
	oursForm        = regexp.MustCompile(`(?m)^<<<<<<<`) // what a merge writes
	theirsForm      = regexp.MustCompile(`(?m)^>>>>>>>`)
)

// Read reads what is left of a document, which may be any text.
func Read(doc []byte) Remains {
	if len(doc) > keystore.MaxDocument {
		doc = doc[:keystore.MaxDocument]
	}
	r := Remains{keys: map[keystore.Fingerprint]bool{}, goneText: goneText(doc), Generation: generationOf(doc)}
	r.Withdrawn = withdrawnForm.Match(doc)
	for _, m := range issuersForm.FindAll(doc, -1) {
		for _, u := range urlForm.FindAll(m, -1) {
			r.issuers = append(r.issuers, string(u))
		}
	}
	for _, block := range pemForm.FindAll(doc, -1) {
		block = indentForm.ReplaceAll(escapedBreak.ReplaceAll(block, []byte("\n")), nil)
		_, _ = keypem.Each(append(block, '\n'), func(_ int, b *pem.Block) error { // a damaged one says nothing
			key, err := keypem.PublicKey(b)
			if err != nil {
				return err
			}
			k, err := keystore.NewPublic(key)
			if err == nil {
				r.keys[k.Fingerprint()] = true
			}
			return err
		})
	}
	r.Gone = goneLines(doc)
	return r
}

// generationOf returns the latest generation that a document says to have: a merge leaves two. It is 0 if there is none, one
// that cannot be read, or a merge of which the second half is missing.
func generationOf(doc []byte) (latest int64) {
	found := generationForm.FindAllSubmatch(doc, -1)
	if len(found) < len(generationLabel.FindAll(doc, -1)) || len(oursForm.FindAll(doc, -1)) != len(theirsForm.FindAll(doc, -1)) {
		return 0
	}
	for _, m := range found {
		if n, err := strconv.ParseInt(string(m[1]), 10, 64); err == nil {
			latest = max(latest, n)
		}
	}
	return latest
}

// goneText returns what stands in a document under each member gone, up to the next member of its kind.
func goneText(doc []byte) (under []byte) {
	doc = slices.Concat([]byte("\n"), doc)
	members := memberForm.FindAllSubmatchIndex(doc, -1)
	for i, m := range members {
		if string(doc[m[2]:m[3]]) != "gone" {
			continue
		}
		end := len(doc)
		if i+1 < len(members) {
			end = members[i+1][0]
		}
		under = append(append(under, '\n'), doc[m[1]:end]...)
	}
	return under
}

// bars reports whether the kid or the fingerprint of a key stands under gone, in whatever quotes.
func (r Remains) bars(k keystore.VerificationKey) bool {
	kid := string(k.ID())
	forms := []string{string(k.Fingerprint()), kid, strings.ReplaceAll(kid, "'", "''"), strings.ReplaceAll(kid, "/", `\/`)}
	if asJSON, err := json.Marshal(kid); err == nil {
		forms = append(forms, string(asJSON[1:len(asJSON)-1]))
	}
	forms = append(forms, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(kid))
	return slices.ContainsFunc(forms, func(form string) bool {
		for at := 0; ; at++ {
			i := bytes.Index(r.goneText[at:], []byte(form))
			if i < 0 {
				return false
			}
			at += i
			if end := at + len(form); delimits(r.goneText[:at], false) && delimits(r.goneText[end:], true) {
				return true
			}
		}
	})
}

// delimits reports whether no kid goes on where a text begins, or ends.
func delimits(text []byte, begins bool) bool {
	if len(text) == 0 {
		return true
	}
	c := text[len(text)-1]
	if begins {
		c = text[0]
	}
	return c <= ' ' || strings.IndexByte(`"'[]{},\`, c) >= 0
}

// goneLines returns the lines in gone of a document: all members where it can be read as YAML or JSON, and else of each its
// fingerprint, which bars the key whatever its key ID was.
func goneLines(doc []byte) (lines []keystore.Gone) {
	var form struct {
		Spec struct {
			Gone []struct {
				Kid         keystore.KeyID       `json:"kid"`
				Fingerprint keystore.Fingerprint `json:"fingerprint"`
				At          string               `json:"at"`
				Why         keystore.Departure   `json:"why"`
			} `json:"gone"`
		} `json:"spec"`
	}
	asJSON, _, err := strictyaml.ToJSON(doc, keystore.MaxDocument)
	if err == nil && json.Unmarshal(asJSON, &form) == nil {
		for _, g := range form.Spec.Gone {
			at, _ := time.Parse(time.RFC3339, g.At) // without it, the line gets the time of its return
			lines = append(lines, keystore.Gone{ID: g.Kid, Fingerprint: g.Fingerprint, At: at, Why: g.Why})
		}
	}
	for _, m := range fingerprintForm.FindAllSubmatch(doc, -1) {
		f := keystore.Fingerprint(m[1])
		if !slices.ContainsFunc(lines, func(g keystore.Gone) bool { return g.Fingerprint == f }) {
			lines = append(lines, keystore.Gone{ID: keystore.KeyID(f), Fingerprint: f, Why: keystore.Revoked})
		}
	}
	return usable(lines)
}

var kidForm = regexp.MustCompile(`^[\x21-\x7e]{1,1000}$`)

// usable returns the lines that a key set may have, each without what cannot be right: a damaged line must not keep a key from
// being revoked.
func usable(lines []keystore.Gone) (good []keystore.Gone) {
	for _, g := range lines {
		if _, known := (keystore.Gone{ID: keystore.KeyID(g.Fingerprint)}).Material(); !known {
			g.Fingerprint = ""
		}
		if !kidForm.MatchString(string(g.ID)) {
			g.ID = keystore.KeyID(g.Fingerprint)
		}
		if g.ID != "" {
			good = append(good, g)
		}
	}
	return good
}

// OlderError reports that the copy may be older than what was broken or lost: it may lack revocations.
type OlderError struct{ Copied, Stored int64 } // generations; Stored is 0 if it cannot be said

func (e *OlderError) Error() string {
	if e.Stored == 0 {
		return fmt.Sprintf("nothing is left that says which generation the stored document had, and the copy has %d: revocations since generation %d may be lost", e.Copied, e.Copied)
	}
	return fmt.Sprintf("the stored document had generation %d, and the copy has %d: revocations since generation %d may be lost", e.Stored, e.Copied, e.Copied)
}

// ErrWithdrawn reports that the document was a tombstone, or that the copy is one: there is no key to revoke.
var ErrWithdrawn = errors.New("the key set was withdrawn, and nothing of it is served any more")

// Restore returns the copy, which the store is known to have held, as the version that follows what remains of the stored
// one: with every line in gone that either has, and a generation after both. The error is an [*OlderError] unless c.Force,
// [ErrWithdrawn], one that names an issuer URL that the copy lacks, or that of [keystore.KeySet.Accept]. The result keeps its
// generation only through [keystore.KeySet.Settled].
func Restore(c keystore.Change, copied keystore.KeySet, r Remains) (keystore.KeySet, error) {
	if r.Withdrawn || copied.Withdrawn() {
		return keystore.KeySet{}, ErrWithdrawn
	}
	for _, u := range r.issuers { // the key may be served there
		if !slices.ContainsFunc(copied.Issuers(), func(i keystore.IssuerURL) bool { return i.String() == u }) {
			return keystore.KeySet{}, fmt.Errorf("the stored document had the issuer URL %s, which the copy lacks", text.OneLine(u, 200))
		}
	}
	if (r.Generation == 0 || r.Generation > copied.Generation()) && !c.Force {
		return keystore.KeySet{}, &OlderError{Copied: copied.Generation(), Stored: r.Generation}
	}
	lines := slices.Clone(r.Gone)
	for _, k := range copied.Keys() {
		if read := func(g keystore.Gone) bool { return g.Bars(k.VerificationKey) }; !slices.ContainsFunc(r.Gone, read) && r.bars(k.VerificationKey) {
			lines = append(lines, keystore.Gone{ID: k.ID(), Fingerprint: k.Fingerprint(), Why: keystore.Revoked})
		}
	}
	var lost []keystore.Decision
	for _, line := range lines {
		if !copied.RecordsGone(line) {
			lost = append(lost, keystore.Decision{Lost: &line})
		}
	}
	generation := r.Generation
	if generation >= keystore.MaxFirstGeneration || generation >= copied.Generation()+keystore.MaxGenerationJump { // no publisher took it
		generation = 0
	}
	c.Force = true // it may leave no key: the decision is about the gone ones, and the caller's is next
	return copied.Accept(c, generation, lost)
}

// Missing returns how many keys are left of the document that the copy neither publishes nor knows as gone: they are not taken,
// as nothing shows that the broken document was ever a good one.
func (r Remains) Missing(copied keystore.KeySet) (missing []keystore.Fingerprint) {
	for f := range r.keys {
		known := slices.ContainsFunc(copied.Keys(), func(k keystore.Key) bool { return k.Fingerprint() == f }) ||
			slices.ContainsFunc(slices.Concat(copied.Gone(), r.Gone), func(g keystore.Gone) bool { m, _ := g.Material(); return m == f })
		if !known {
			missing = append(missing, f)
		}
	}
	slices.Sort(missing)
	return missing
}
