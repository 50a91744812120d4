package catalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

// Dispute is a key about which a stored key set and its served version disagree.
type Dispute struct {
	Key  keystore.VerificationKey // as it is served, or stored if it is not served
	Side string                   // which version has the key, for the operator
	Gone bool                     // one of the versions has the key in gone, revoked or removed: it cannot be kept
}

// The sides of a dispute.
const (
	servedOnly = "served, not stored"
	storedOnly = "stored, not served"
	storedGone = "stored; revoked or removed in the served version"
	servedGone = "served; revoked or removed in the stored version"
	otherKey   = "served; the stored key of that ID is another one"
)

// Stored reports whether only the stored version publishes the key. The served one may have revoked it.
func (d Dispute) Stored() bool { return d.Side == storedOnly || d.Side == storedGone }

// Disputes compares a stored key set with the keys that are served under its issuer URL, by key ID and material, since
// a decision about a key needs both. A key that is served and gone in the store is decided already, if the store knows
// which key it was. goneServed are the lines in gone of the served version, as far as they are known; a key that one of
// them bars can only be gone.
func Disputes(stored keystore.KeySet, served []keystore.VerificationKey, goneServed []keystore.Gone) []Dispute {
	var list []Dispute
	for _, k := range served {
		have, published := stored.Key(k.ID())
		switch {
		case published && have.Fingerprint() != k.Fingerprint():
			list = append(list, Dispute{Key: k, Side: otherKey})
		case published || stored.RecordsGone(keystore.Gone{ID: k.ID(), Fingerprint: k.Fingerprint()}):
		default:
			d := Dispute{Key: k, Side: servedOnly}
			if _, d.Gone = stored.GoneLine(k); d.Gone {
				d.Side = servedGone
			}
			list = append(list, d)
		}
	}
	for _, k := range stored.Keys() {
		if !slices.ContainsFunc(served, func(p keystore.VerificationKey) bool { return p.ID() == k.ID() }) {
			d := Dispute{Key: k.VerificationKey, Side: storedOnly}
			if d.Gone = slices.ContainsFunc(goneServed, func(g keystore.Gone) bool { return g.Bars(k.VerificationKey) }); d.Gone {
				d.Side = storedGone
			}
			list = append(list, d)
		}
	}
	return list
}

// LostLines returns the lines in gone that the served version has and the stored one lost. Nobody has to think about those:
// what is gone stays gone.
func LostLines(stored keystore.KeySet, servedGone []keystore.Gone) []keystore.Gone {
	return slices.DeleteFunc(slices.Clone(servedGone), stored.RecordsGone)
}

// Verdict holds what an operator decides about disputed keys: key IDs, or unique prefixes of them.
type Verdict struct {
	Keep    []string // the cluster may sign with it: it is published, as active
	Gone    []string // it never comes back
	Revoked []string // as Gone, and no other key set may have it: somebody else may hold its private half
}

// UndecidedError reports disputes that a verdict leaves open.
type UndecidedError struct{ Open []Dispute }

func (e *UndecidedError) Error() string {
	return text.Count(len(e.Open), "key is", "keys are") + " undecided, and nothing was changed"
}

// Decide makes a decision of every dispute. The error is an [*UndecidedError], or of the kind [Contradiction], [Barred], [NoKey] or
// [BadPrefix].
func Decide(disputes []Dispute, v Verdict) (decided keystore.Decided, err error) {
	keep, errKeep := chosen(disputes, "keep", v.Keep)
	gone, errGone := chosen(disputes, "gone", v.Gone)
	revoked, errRevoked := chosen(disputes, "revoked", v.Revoked)
	if err := cmp.Or(errKeep, errGone, errRevoked); err != nil {
		return decided, err
	}
	maps.Copy(gone, revoked)
	var open []Dispute
	for _, d := range disputes {
		switch id := d.Key.ID(); {
		case keep[id] && gone[id]:
			return decided, errorf(Contradiction, "", "key %s is both kept and gone", id)
		case keep[id] && d.Gone:
			return decided, errorf(Barred, "", "key %s was revoked or removed, and such a key never returns: it cannot be kept", id)
		case keep[id]:
			decided.Keep = append(decided.Keep, d.Key)
		case gone[id]:
			line := keystore.Gone{ID: id, Fingerprint: d.Key.Fingerprint(), Why: keystore.Removed}
			if revoked[id] {
				line.Why = keystore.Revoked
			}
			decided.Gone = append(decided.Gone, line)
		default:
			open = append(open, d)
		}
	}
	if len(open) > 0 {
		return decided, &UndecidedError{open}
	}
	return decided, nil
}

// chosen returns the keys that were typed for a list of a [Verdict], by the name of the option.
func chosen(disputes []Dispute, option string, typed []string) (map[keystore.KeyID]bool, error) {
	var ids []keystore.KeyID
	for _, d := range disputes {
		ids = append(ids, d.Key.ID())
	}
	picked := map[keystore.KeyID]bool{}
	for _, t := range typed {
		id, err := match(ids, t)
		if err != nil {
			return nil, &Error{Kind: KindOf(err), Message: fmt.Sprintf("--%s: of the keys in dispute: %v", option, err)}
		}
		picked[id] = true
	}
	return picked, nil
}

// Acceptance is a decided comparison of a stored key set with its served version.
type Acceptance struct {
	Stored  keystore.KeySet // as it was compared
	Served  int64           // the generation that is served; 0 if none is, or it is not known
	Decided keystore.Decided
}

// Accept stores the decisions. It returns an error if the key set was changed after the comparison, since the decisions
// may then be wrong.
func Accept(ctx context.Context, st *keystore.Store, c keystore.Change, a Acceptance) (keystore.KeySet, error) {
	return keystore.Update(ctx, st, a.Stored.Name(), func(now keystore.KeySet) (keystore.KeySet, error) {
		if now.Digest() != a.Stored.Digest() {
			return now, fmt.Errorf("accept: key set %q was changed meanwhile; look at it and accept again", now.Name())
		}
		return now.Accept(c, a.Served, a.Decided)
	})
}
