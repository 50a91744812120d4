package issuer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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
	Issuers  []Status  `json:"issuers"`
}

// Report returns the status of every key set, in order of their names.
func (p *Publisher) Report() Report {
	refused := p.refused()
	p.mu.RLock()
	defer p.mu.RUnlock()
	r := Report{Complete: p.complete, Issuers: []Status{}}
	for n := range p.entries {
		r.Issuers = append(r.Issuers, p.statusOf(n, refused[n]))
	}
	for n, reason := range refused {
		if p.entries[n] == nil {
			r.Issuers = append(r.Issuers, Status{Name: n, Issuers: []string{}, Keys: map[keystore.State]int{}, Rejected: reason, Message: refusedBefore})
		}
	}
	slices.SortFunc(r.Issuers, func(a, b Status) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return r
}

// refusedBefore is the message about a version that a mirror did not copy into the directory.
const refusedBefore = "keypost mirror did not copy the version in its store; the log of the mirror says why"

// refused returns the reasons for which a mirror left stored versions out of the directory.
func (p *Publisher) refused() map[keystore.Name]keystore.Reason {
	if p.c.Refused == nil {
		return nil
	}
	return p.c.Refused()
}

// statusOf returns the status of a key set that there is; refused is why a mirror did not copy its stored version, empty if it
// did. It is called with mu held.
func (p *Publisher) statusOf(n keystore.Name, refused keystore.Reason) Status {
	e := p.entries[n]
	s := e.status(n)
	if refused != "" && s.Rejected == "" {
		s.Rejected, s.Message = refused, refusedBefore
	}
	return s
}

// Of returns the status of one key set and the kids that it serves, and whether there is such a key set.
func (p *Publisher) Of(n keystore.Name) (s Status, kids []keystore.KeyID, ok bool) {
	refused := p.refused()
	p.mu.RLock()
	defer p.mu.RUnlock()
	e := p.entries[n]
	if e == nil {
		return Status{}, nil, false
	}
	if e.served != nil {
		kids = e.served.kidList()
	}
	return p.statusOf(n, refused[n]), kids, true
}

// Complete returns when the last complete listing was taken; zero for never.
func (p *Publisher) Complete() time.Time {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.complete
}

// Failing reports whether the source cannot be listed.
func (p *Publisher) Failing() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.failing
}

func (e *entry) status(n keystore.Name) Status {
	s := Status{Name: n, Issuers: []string{}, Keys: map[keystore.State]int{}}
	if v := e.served; v != nil {
		s.Generation, s.Digest, s.Served = v.Generation(), v.Digest().String(), !v.Withdrawn()
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
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.ready {
		return nil
	}
	switch start := p.start(time.Now()); {
	case p.first.IsZero():
		return errors.New("no complete listing of the key sets yet")
	case start.KeySets == 0:
		return errors.New("there is no key set, so the directory may be the wrong one or not mounted; set allowEmpty: true if there may be none")
	default:
		return fmt.Errorf("%d of %d key sets cannot be served; see /issuers", start.Without, start.KeySets)
	}
}
