package watch

import (
	"maps"
	"slices"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
)

// Verdict is what one look says about whether what is stored is what is published. The worst comes first.
type Verdict int

// The verdicts. Of an issuer that was never looked at, nothing is known.
const (
	Rogue      Verdict = iota + 1 // a stranger's key is published
	Different                     // keys are published otherwise than they are stored, longer than caches explain
	NotYet                        // some answer is older, as a cache may give it for a while
	NotSeen                       // something was not seen, or the store could not be read
	Everywhere                    // every answer of every address has the keys that are stored, and no other
	Ended                         // the issuer was withdrawn, so that nobody looks
)

// verdict returns what a look says.
func (o outcome) verdict() Verdict {
	if o.err != nil {
		return NotSeen
	}
	rogue, differs := judged(o.sight.Findings)
	switch {
	case len(rogue.Evidence) > 0:
		return Rogue
	case len(differs.Evidence) > 0:
		return Different
	case o.sight.NotCompared != "":
		return NotSeen
	case slices.ContainsFunc(o.sight.Findings, func(f finding.Finding) bool { return f.Severity != finding.OK }):
		return NotYet
	case !o.sight.Look.Complete():
		return NotSeen
	}
	return Everywhere
}

// Stored is a version of a key set as it is stored.
type Stored struct {
	KeySet     keystore.Name
	Generation int64
	Withdrawn  bool
}

// Seen is the verdict on a stored version: the worst of all issuers of the key set, and of its uploads.
type Seen struct {
	Stored
	Verdict Verdict
}

// Seen returns the verdicts on the versions that are stored, by the names of key sets. One that changed since it was looked
// at is left out until all its issuers have been looked at again and its uploads compared, which is soon.
func (w *Watcher) Seen() (all []Seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(w.sets)) {
		k := w.sets[n]
		worst, whole := Ended, !k.unread && k.revision != ""
		add := func(generation int64, v Verdict) { worst, whole = min(worst, v), whole && generation == k.Generation }
		for _, i := range k.issuers {
			add(i.Generation, i.Verdict)
		}
		for _, u := range k.uploads {
			add(u.Generation, u.verdict())
		}
		if whole && (worst < Ended || k.Withdrawn) {
			all = append(all, Seen{k.Stored, worst})
		}
	}
	return all
}
