package watch

import (
	"slices"
	"time"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/finding"
)

// Condition is something that is wrong with an issuer, or with what is known of it.
type Condition string

// The conditions. The first two are what was seen, and each lasts until the addresses that showed it show something
// better: one that does not answer, or a store that cannot be read, ends none. The others are about the latest look.
const (
	RogueKey        Condition = "rogue_key"         // a stranger's key is published
	ServedNotStored Condition = "served_not_stored" // keys are published otherwise than they are stored, longer than caches explain

	Unreachable Condition = "unreachable"  // nothing answered
	Incomplete  Condition = "incomplete"   // something may be served that was not seen
	NotCompared Condition = "not_compared" // with the store, which could not be read, or has it no more
	NotRecorded Condition = "not_recorded" // the look could not be stored
)

// Conditions returns every condition.
func Conditions() []Condition {
	return []Condition{RogueKey, ServedNotStored, Unreachable, Incomplete, NotCompared, NotRecorded}
}

// Status is what is known of an issuer.
type Status struct {
	Issuer
	Looked     time.Time            // the end of the latest look, whatever came of it; zero before the first
	Complete   time.Time            // the end of the latest complete look, which was recorded where looks are; zero for none
	NotAfter   time.Time            // when the first certificate expires of those seen in the latest look with one
	Conditions map[Condition]Detail // that hold
}

// Detail is why a condition holds.
type Detail struct {
	Evidence []string // sentences
	At       []string // the addresses that showed it, as HOST:PORT
}

// outcome is what came of a look.
type outcome struct {
	sight       verify.Sight
	err         error // the look was not made: nothing of sight is known
	notRecorded error
	complete    time.Time // the latest complete look of the record; zero without records
	at          time.Time // the end
}

// after returns the status after another look.
func (s Status) after(o outcome) Status {
	was := s.Conditions
	s.Conditions, s.Looked = map[Condition]Detail{}, o.at
	set := func(c Condition, d Detail) {
		if len(d.Evidence) > 0 {
			s.Conditions[c] = d
		}
	}
	keep := func(c Condition) {
		if d, held := was[c]; held {
			s.Conditions[c] = d
		}
	}
	failed := func(c Condition) bool { // an address that showed it
		return slices.ContainsFunc(was[c].At, func(a string) bool { return slices.Contains(o.sight.Failed, a) })
	}
	if o.err != nil {
		set(Unreachable, Detail{Evidence: []string{o.err.Error()}})
		for _, c := range []Condition{RogueKey, ServedNotStored} {
			keep(c)
		}
		return s
	}
	if o.sight.Look.Answers == 0 {
		set(Unreachable, Detail{Evidence: o.sight.Look.Gaps, At: o.sight.Look.Addresses})
	}
	set(Incomplete, Detail{Evidence: o.sight.Look.Gaps})
	if o.notRecorded != nil {
		set(NotRecorded, Detail{Evidence: []string{o.notRecorded.Error()}})
	}
	if o.sight.NotCompared != "" {
		set(NotCompared, Detail{Evidence: []string{o.sight.NotCompared}})
	}
	if len(o.sight.Chains) > 0 {
		s.NotAfter = expiry(o.sight.Chains)
	}
	rogue, differs := judged(o.sight.Findings)
	for c, d := range map[Condition]Detail{RogueKey: rogue, ServedNotStored: differs} {
		if len(d.Evidence) == 0 && (failed(c) || o.sight.NotCompared != "") {
			keep(c)
		} else {
			set(c, d)
		}
	}
	switch {
	case !o.complete.IsZero():
		s.Complete = o.complete
	case o.sight.Look.Complete() && o.notRecorded == nil:
		s.Complete = o.sight.Look.End
	}
	return s
}

// judged sorts what fails of a comparison.
func judged(findings []finding.Finding) (rogue, differs Detail) {
	for _, f := range findings {
		if f.Severity != finding.Fail {
			continue // a cache may hold an older copy for some time
		}
		d := &differs
		if f.Rogue() {
			d = &rogue
		}
		d.Evidence = append(d.Evidence, f.Evidence)
		for _, a := range f.At {
			if !slices.Contains(d.At, a) {
				d.At = append(d.At, a)
			}
		}
	}
	return rogue, differs
}

// expiry returns when the first certificate of the chains expires. The root is not the server's.
func expiry(chains []verify.Chain) time.Time {
	var first time.Time
	for _, chain := range chains {
		for _, c := range chain.Certificates[:max(1, len(chain.Certificates)-1)] {
			if first.IsZero() || c.NotAfter.Before(first) {
				first = c.NotAfter
			}
		}
	}
	return first
}
