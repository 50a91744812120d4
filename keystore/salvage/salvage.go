// Package salvage makes a key set go on from a copy of its last good version, when its document in the store is broken or
// lost and a key has to be revoked now.
//
// A copy is a file in somebody's hands: whoever changes it before an operator uses it could have a key of his own
// published. So a key is taken from it only with proof that the store held it: the note of the mirror that made the copy,
// which has the digest of what it read, or the key itself in what is left of the document. A key without proof is never
// left out instead, since absence is not deletion and publishers refuse a version that lacks a key. What is gone by the
// copy or by what is left stays gone.
package salvage

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/keypost/keypost/internal/keypem"
	"github.com/keypost/keypost/internal/strictyaml"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

// Remains are what a broken document still says. The zero value is that of a lost one.
type Remains struct {
	Generation int64           // 0 if it says none that could be one
	Withdrawn  bool            // it was a tombstone
	Gone       []keystore.Gone // lines in gone, as far as they can be read
	keys       map[keystore.Fingerprint]bool
}

// The forms of members in YAML and JSON, for text that is neither any more.
var (
	generationForm  = regexp.MustCompile(`\bgeneration"?[ \t]*:[ \t]*([0-9]{1,16})\b`)
	withdrawnForm   = regexp.MustCompile(`\bwithdrawnAt"?[ \t]*:[ \t]*"?[0-9]`)
	fingerprintForm = regexp.MustCompile(`\bfingerprint"?[ \t]*:[ \t]*"?([A-Za-z0-9_-]{43})\b`) // only lines in gone have one
	pemForm         = regexp.MustCompile(`-----BEGIN [A-Z ]{1,40}-----[A-Za-z0-9+/=\s\\]+-----END [A-Z ]{1,40}-----`)
	escapedBreak    = regexp.MustCompile(`\\n`)
	indentForm      = regexp.MustCompile(`(?m)^[ \t]+|[ \t]+$`)
)

// Read reads what is left of a document, which may be any text.
func Read(doc []byte) Remains {
	if len(doc) > keystore.MaxDocument {
		doc = doc[:keystore.MaxDocument]
	}
	r := Remains{keys: map[keystore.Fingerprint]bool{}}
	for _, m := range generationForm.FindAllSubmatch(doc, -1) { // a merge leaves two
		if n, err := strconv.ParseInt(string(m[1]), 10, 64); err == nil {
			r.Generation = max(r.Generation, n)
		}
	}
	r.Withdrawn = withdrawnForm.Match(doc)
	for _, block := range pemForm.FindAll(doc, -1) {
		block = indentForm.ReplaceAll(escapedBreak.ReplaceAll(block, []byte("\n")), nil)
		_, _ = keypem.Each(append(block, '\n'), func(_ int, b *pem.Block) error { // a damaged one proves nothing
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

// UnprovenError reports keys of a copy of which nothing shows that the store ever held them.
type UnprovenError struct{ Keys []keystore.VerificationKey }

func (e *UnprovenError) Error() string {
	var ids []string
	for _, k := range e.Keys {
		ids = append(ids, string(k.ID()))
	}
	return fmt.Sprintf("nothing shows that the store ever held %s of the copy: %s", text.Count(len(ids), "key", "keys"), text.List(ids, 5))
}

// ErrWithdrawn reports that the document was a tombstone, or that the copy is one: there is no key to revoke.
var ErrWithdrawn = errors.New("the key set was withdrawn, and nothing of it is served any more")

// Restore returns the copy as the version that follows what remains of the stored one: with every line in gone that either
// has, and a generation after both. noted says that the copy is what its mirror has read from this store. The error is an
// [*UnprovenError], [ErrWithdrawn], or that of [keystore.KeySet.Accept]. The result keeps its generation only through
// [keystore.KeySet.Settled].
func Restore(c keystore.Change, copied keystore.KeySet, noted bool, r Remains) (keystore.KeySet, error) {
	if r.Withdrawn || copied.Withdrawn() {
		return keystore.KeySet{}, ErrWithdrawn
	}
	var unproven []keystore.VerificationKey
	for _, k := range copied.Keys() {
		if !noted && !r.keys[k.Fingerprint()] && !slices.ContainsFunc(r.Gone, func(g keystore.Gone) bool { return g.Bars(k.VerificationKey) }) {
			unproven = append(unproven, k.VerificationKey)
		}
	}
	if len(unproven) > 0 {
		return keystore.KeySet{}, &UnprovenError{unproven}
	}
	var lost []keystore.Decision
	for _, line := range r.Gone {
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
