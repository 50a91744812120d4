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
func (w *Watcher) Seen() []Seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	worst := map[keystore.Name]Verdict{}
	behind := map[keystore.Name]int64{} // the oldest generation of the looks
	add := func(n keystore.Name, generation int64, verdict Verdict) {
		if v, known := worst[n]; !known || verdict < v {
			worst[n] = verdict
		}
		if g, known := behind[n]; !known || generation < g {
			behind[n] = generation
		}
	}
	for i, s := range w.status {
		add(i.KeySet, s.Generation, s.Verdict)
	}
	for n, uploads := range w.uploads {
		for _, u := range uploads {
			add(n, u.Generation, u.verdict())
		}
	}
	var all []Seen
	for _, n := range slices.Sorted(maps.Keys(w.listed.stored)) {
		switch st := w.listed.stored[n]; {
		case st.Withdrawn:
			all = append(all, Seen{st, Ended})
		case worst[st.KeySet] != 0 && behind[st.KeySet] == st.Generation:
			all = append(all, Seen{st, worst[st.KeySet]})
		}
	}
	return all
}
