package issuer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
)

// Status is what is known of one key set, for operators: the admin listener serves it as JSON, and the command line
// reads it.
type Status struct {
	Name       keystore.Name          `json:"name"`
	Issuers    []string               `json:"issuers"`
	Generation int64                  `json:"generation"`       // of the version served; 0 when none is
	Digest     string                 `json:"digest,omitempty"` // of that version, in hex: keystore.KeySet.Digest
	Served     bool                   `json:"served"`
	Rejected   keystore.Reason        `json:"rejected,omitempty"` // why the stored version is not served; "missing" when there is none
	Message    string                 `json:"message,omitempty"`  // about that; without Rejected: why the key set must not be served here
	Keys       map[keystore.State]int `json:"keys"`               // by state
	Gone       []GoneKey              `json:"gone,omitempty"`     // of the served version
	Kids       []keystore.KeyID       `json:"-"`                  // that are served, sorted
}

// GoneKey is a line in gone. The stored version may have lost it, and keypost issuer accept puts it back.
type GoneKey struct {
	Kid         keystore.KeyID       `json:"kid"`
	Fingerprint keystore.Fingerprint `json:"fingerprint,omitempty"`
	Why         keystore.Departure   `json:"why"`
}

// Report is everything that a Publisher knows, for operators.
type Report struct {
	Complete time.Time `json:"complete,omitzero"` // when the last complete listing was taken
	Failing  bool      `json:"-"`                 // the source cannot be listed
	Issuers  []Status  `json:"issuers"`           // in order of their names
}

// Of returns the status of one key set, and whether there is such a key set.
func (r Report) Of(n keystore.Name) (Status, bool) {
	i, found := slices.BinarySearchFunc(r.Issuers, n, func(s Status, n keystore.Name) int { return cmp.Compare(s.Name, n) })
	if !found {
		return Status{}, false
	}
	return r.Issuers[i], true
}

// refusedBefore is the message about a version that a mirror did not copy into the directory.
const refusedBefore = "keypost mirror did not copy the version in its store; the log of the mirror says why"

// Report returns what is known now. Where a mirror did not copy the stored version of a key set, that is what is told of it.
func (p *Publisher) Report() Report {
	var refused map[keystore.Name]keystore.Reason
	if p.c.Refused != nil {
		refused = p.c.Refused()
	}
	current := p.current.Load()
	r := Report{Complete: current.last, Failing: current.failing, Issuers: []Status{}}
	for n, e := range current.entries {
		s := e.status(n)
		if reason := refused[n]; reason != "" && s.Rejected == "" {
			s.Rejected, s.Message = reason, refusedBefore
		}
		r.Issuers = append(r.Issuers, s)
	}
	for n, reason := range refused {
		if current.entries[n] == nil {
			r.Issuers = append(r.Issuers, Status{Name: n, Issuers: []string{}, Keys: map[keystore.State]int{}, Rejected: reason, Message: refusedBefore})
		}
	}
	slices.SortFunc(r.Issuers, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return r
}

func (e *entry) status(n keystore.Name) Status {
	s := Status{Name: n, Issuers: []string{}, Keys: map[keystore.State]int{}}
	if v := e.served; v != nil {
		s.Generation, s.Digest, s.Served, s.Kids = v.Generation(), v.Digest().String(), !v.Withdrawn(), v.kidList()
		for _, g := range v.Gone() {
			s.Gone = append(s.Gone, GoneKey{g.ID, g.Fingerprint, g.Why})
		}
		for _, u := range v.Issuers() {
			s.Issuers = append(s.Issuers, u.String())
		}
		for i, count := range v.states {
			s.Keys[states[i]] = count
		}
	}
	if e.rejected == nil {
		return s
	}
	s.Message = e.rejected.Message
	if e.rejected.Expected() {
		return s
	}
	s.Rejected = e.rejected.Reason
	return s
}

// Ready returns nil once every key set of a complete listing is served or refused; those that cannot be read are waited for
// five minutes. From then on it always does: losing the store is not a reason to take a server away that serves its last good
// versions. A Publisher that has nothing to serve is never ready unless AllowEmpty is set: its directory may be a volume
// that is not mounted, and clients sent there instead of to another replica would find no issuer.
func (p *Publisher) Ready() error {
	current := p.current.Load()
	if current.ready {
		return nil
	}
	switch start := current.start(time.Now(), p.c.AllowEmpty); {
	case current.first.IsZero():
		return errors.New("no complete listing of the key sets yet")
	case start.KeySets == 0:
		return errors.New("there is no key set, so the directory may be the wrong one or not mounted; set allowEmpty: true if there may be none")
	default:
		return fmt.Errorf("%d of %d key sets cannot be served; see /issuers", start.Without, start.KeySets)
	}
}
