package keystore

import (
	"context"
	"fmt"
)

// Verdict is what became of one key set in a copying between stores.
type Verdict string

// The verdicts.
const (
	Copied    Verdict = "copied"    // written, or in a dry run: would be
	Unchanged Verdict = "unchanged" // the destination has it with the same content
	Refused   Verdict = "refused"   // the destination has a newer version, or one that this may not replace
	Failed    Verdict = "failed"    // the source could not be read or the destination not be written
	Kept      Verdict = "kept"      // only the destination has it
)

// Outcome is what became of one key set. Generations are 0 where there is none.
type Outcome struct {
	Name       Name    `json:"name"`
	Verdict    Verdict `json:"verdict"`
	Generation int64   `json:"generation,omitempty"` // in the source
	Was        int64   `json:"was,omitempty"`        // in the destination before
	Reason     Reason  `json:"reason,omitempty"`
	Message    string  `json:"message,omitempty"`
}

// Copy writes every key set of from into to and returns what became of each, in order of their names. It writes
// nothing in a dry run, removes nothing ever, and refuses what a reader of to would reject: an older generation, the
// same one with other content, a key or an issuer URL that vanished, an issuer URL of another key set. Started again
// it goes on where it ended. The error is that neither store could be listed, or ctx's.
func Copy(ctx context.Context, from Reader, to *Store, dryRun bool) ([]Outcome, error) {
	listed, err := from.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the source: %w", err)
	}
	held := newLedger()
	if err := held.read(ctx, to); err != nil {
		return nil, fmt.Errorf("list the destination: %w", err)
	}
	all, err := loadAll(ctx, from, names(listed))
	if err != nil {
		return nil, err
	}
	arrivals := make([]*arrival, len(all))
	for i, one := range all {
		arrivals[i] = one.arrival()
	}
	if dryRun {
		to = nil
	}
	err = held.transfer(ctx, to, arrivals)
	return outcomes(arrivals, held, listed), err
}

func (l loaded) arrival() *arrival {
	a := &arrival{name: l.name, set: l.set, rejected: l.rejection()}
	switch {
	case l.err == nil:
		a.summary = l.set.Summary()
	case a.rejected == nil:
		a.rejected = Reject(ReasonMissing, "it has left the source meanwhile")
	}
	return a
}

func outcomes(arrivals []*arrival, held *ledger, listed map[Name]Revision) []Outcome {
	byName := map[Name]Outcome{}
	for n, e := range held.entries {
		if _, ok := listed[n]; !ok && e.good != nil {
			byName[n] = Outcome{Name: n, Verdict: Kept, Was: e.good.generation}
		}
	}
	for _, a := range arrivals {
		byName[a.name] = a.outcome()
	}
	all := []Outcome{}
	for _, n := range names(byName) {
		all = append(all, byName[n])
	}
	return all
}

func (a *arrival) outcome() Outcome {
	o := Outcome{Name: a.name, Verdict: Copied, Generation: a.summary.generation, Was: a.was}
	switch {
	case a.err != nil:
		o.Verdict, o.Message = Failed, a.err.Error()
	case a.rejected != nil:
		o.Verdict, o.Reason, o.Message = Refused, a.rejected.Reason, a.rejected.Message
		if a.summary.generation == 0 {
			o.Verdict = Failed
		}
	case a.same:
		o.Verdict = Unchanged
	}
	return o
}
