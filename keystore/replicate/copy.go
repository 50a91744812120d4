package replicate

import (
	"cmp"
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
	d := &destination{backend: to, dryRun: dryRun, copies: map[keystore.Name]stored{}}
	if err := d.read(ctx); err != nil {
		return nil, fmt.Errorf("list the destination: %w", err)
	}
	documents, err := loadAll(ctx, from, slices.Sorted(maps.Keys(listed)), nil)
	if err != nil {
		return nil, err
	}
	err = d.transfer(ctx, documents, lastgood.Judge{Waited: lastgood.StartPatience}) // anyone who runs it sees what cannot be read
	outcomes := []Outcome{}
	for _, doc := range documents {
		outcomes = append(outcomes, doc.outcome())
	}
	for _, n := range d.Names() {
		if _, ok := listed[n]; !ok {
			outcomes = append(outcomes, Outcome{Name: n, Verdict: Kept, Was: d.Good(n).Generation()})
		}
	}
	slices.SortFunc(outcomes, func(a, b Outcome) int { return cmp.Compare(a.Name, b.Name) })
	return outcomes, err
}

func (d *document) outcome() Outcome {
	o := Outcome{Name: d.Name, Verdict: Copied, Generation: d.generation(), Was: d.was}
	switch {
	case d.Rejected != nil:
		o.Verdict, o.Reason, o.Message = Refused, d.Rejected.Reason, d.Rejected.Message
		if d.Version == nil {
			o.Verdict = Failed
		}
	case d.err != nil:
		o.Verdict, o.Message = Failed, d.err.Error()
	case d.same:
		o.Verdict = Unchanged
	}
	return o
}
