package replicate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// Verdict is the result of copying one key set.
type Verdict string

// The verdicts.
const (
	Copied    Verdict = "copied"    // written, or in a dry run: would be
	Unchanged Verdict = "unchanged" // the destination has it with the same content
	Refused   Verdict = "refused"   // the destination has a newer version, or one that this may not replace
	Failed    Verdict = "failed"    // the source could not be read or the destination not be written
	Kept      Verdict = "kept"      // only the destination has it
)

// Outcome is the result of copying one key set, with details. A generation is 0 if there is none.
type Outcome struct {
	Name       keystore.Name   `json:"name"`
	Verdict    Verdict         `json:"verdict"`
	Generation int64           `json:"generation,omitempty"` // in the source
	Was        int64           `json:"was,omitempty"`        // in the destination before
	Reason     keystore.Reason `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"`
}

// Copy writes every document of from to the store to and returns the outcomes, sorted by name. It writes nothing in a dry
// run and never removes anything. It refuses what a reader of to would reject: an older generation, the same one with
// other content, a key or an issuer URL that vanished, an issuer URL of another key set. It may be repeated after an
// interruption. The error is that of listing a store, or that of ctx.
//
// A document is copied byte for byte, with unknown members, comments and layout. One whose content is stored already
// ([keystore.KeySet.Digest]) stays as it is, although comments, layout, labels or annotations may differ: else a store
// that keeps another notation would be written by every Copy.
func Copy(ctx context.Context, from, to keystore.Backend, dryRun bool) ([]Outcome, error) {
	listed, err := from.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the source: %w", err)
	}
	d := newDestination(to)
	d.dryRun = dryRun
	if err := d.read(ctx); err != nil {
		return nil, fmt.Errorf("list the destination: %w", err)
	}
	documents, err := loadAll(ctx, from, slices.Sorted(maps.Keys(listed)), nil)
	if err != nil {
		return nil, err
	}
	all := d.candidates(documents)
	err = d.transfer(ctx, all, lastgood.Judge{Waited: lastgood.StartPatience}) // anyone who runs it sees what cannot be read
	return outcomes(all, d, listed), err
}

func outcomes(all []*candidate, d *destination, listed map[keystore.Name]keystore.Revision) []Outcome {
	byName := map[keystore.Name]Outcome{}
	for _, n := range d.goodNames() {
		if _, ok := listed[n]; !ok {
			byName[n] = Outcome{Name: n, Verdict: Kept, Was: d.Good(n).Generation()}
		}
	}
	for _, c := range all {
		byName[c.Name] = c.outcome()
	}
	sorted := []Outcome{}
	for _, n := range slices.Sorted(maps.Keys(byName)) {
		sorted = append(sorted, byName[n])
	}
	return sorted
}

func (c *candidate) outcome() Outcome {
	o := Outcome{Name: c.Name, Verdict: Copied, Generation: c.generation(), Was: c.was}
	switch {
	case c.err != nil:
		o.Verdict, o.Message = Failed, c.err.Error()
	case c.Rejected != nil:
		o.Verdict, o.Reason, o.Message = Refused, c.Rejected.Reason, c.Rejected.Message
		if c.Version == nil {
			o.Verdict = Failed
		}
	case c.same:
		o.Verdict = Unchanged
	}
	return o
}
