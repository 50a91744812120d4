package enroll

import (
	"fmt"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/outlook"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/provision/cluster"
)

// State is what there is to say of a cluster.
type State string

// The states.
const (
	Enrolled    State = "enrolled"    // its key set was just added
	InStep      State = "in step"     // nothing is to be done
	NewKey      State = "new key"     // it lists a key that is next: published, and not to be signed with yet
	Unreachable State = "unreachable" // it did not answer; nothing changes
	Refused     State = "refused"     // what it shows, or who it is, is not taken; nothing changes
	Absent      State = "absent"      // the source has no cluster for an enrolled key set; nothing changes
)

// Rules are what an operator has decided for every cluster.
type Rules struct {
	URL    func(keystore.Name) (keystore.IssuerURL, bool) // the issuer URL of a name, if the pattern has one
	Policy keystore.Policy                                // of new key sets
	Adopt  []keystore.Name                                // key sets that people made for clusters of these names
}

// Decision is what follows from one look at one cluster.
type Decision struct {
	State State
	Why   string // it is refused
	URL   keystore.IssuerURL

	Add    []keystore.VerificationKey // come in: active in a key set that is new, else as next
	Record bool                       // the cluster is recorded as the one that signs
}

// Writes reports whether the key set is to be changed.
func (d Decision) Writes() bool { return len(d.Add) > 0 || d.Record }

func refused(format string, args ...any) Decision {
	return Decision{State: Refused, Why: fmt.Sprintf(format, args...)}
}

// Decide returns what to do about what the cluster called n showed, by its stored key set, nil for none. It never promotes, retires,
// removes, revokes or withdraws, and takes a cluster whole or not at all.
func (r Rules) Decide(n keystore.Name, seen cluster.Identity, stored *keystore.KeySet) Decision {
	u, ok := r.URL(n)
	switch {
	case !ok:
		return refused("the pattern has no issuer URL for the name %q", n)
	case len(seen.Keys)+len(seen.Left) > keystore.MaxRotating:
		return refused("it lists %d keys, and at most %d are taken of a cluster", len(seen.Keys)+len(seen.Left), keystore.MaxRotating)
	}
	d := Decision{State: Enrolled, URL: u}
	if stored == nil {
		d.Add, d.Record = seen.Keys, true
		return r.taken(d, r.Policy, 0)
	}
	if d := mayChange(*stored, seen, u, slices.Contains(r.Adopt, n)); d.State == Refused {
		return d
	}
	d.State, d.Record = InStep, !stored.IsOf(seen.ID)
	for _, k := range seen.Keys {
		have, published := stored.Key(k.ID())
		_, gone := stored.GoneLine(k)
		switch {
		case published && !have.Equal(k):
			return refused("it lists another key under the kid %s than the key set publishes", k.ID())
		case !published && !gone: // one that is gone never comes back, however long a cluster lists it
			d.Add = append(d.Add, k)
		}
	}
	return r.taken(d, stored.Policy(), len(stored.Keys()))
}

// taken refuses keys whose tokens a relying party does not take, and more keys than one takes.
func (r Rules) taken(d Decision, p keystore.Policy, have int) Decision {
	if n := have + len(d.Add); n > keystore.MaxRotating && len(d.Add) > 0 {
		return refused("the key set would publish %d keys, and at most %d are enrolled; remove old ones first", n, keystore.MaxRotating)
	}
	for _, k := range d.Add {
		if errs := party.Refusals(p.RelyingParties, string(k.ID()), k.Alg()); len(errs) > 0 {
			return refused("%v", errs[0])
		}
	}
	return d
}

// mayChange refuses a key set that is not this cluster's.
func mayChange(s keystore.KeySet, seen cluster.Identity, u keystore.IssuerURL, adopt bool) Decision {
	switch known := s.Clusters(); {
	case s.Withdrawn():
		return refused("its issuer was withdrawn at %s", s.WithdrawnAt().UTC().Format(time.RFC3339))
	case s.Dev():
		return refused("its key set is for development")
	case !slices.Contains(s.Issuers(), u):
		return refused("its key set has not the issuer URL %s of the pattern", u)
	case s.IsOf(seen.ID):
		return Decision{}
	case len(known) > 0:
		return refused("it is another cluster (its UID is %s, that of the enrolled one %s); "+
			"if it takes the place of that: keypost rotate start %s --kubeconfig FILE", seen.ID, known[0], s.Name())
	case !adopt:
		return refused("its key set was made by a person; if it is this cluster's: --adopt %s", s.Name())
	case !slices.ContainsFunc(seen.Keys, func(k keystore.VerificationKey) bool { return isActive(s, k) }):
		return refused("its key set was made by a person, and the cluster lists none of the active keys")
	}
	return Decision{}
}

func isActive(s keystore.KeySet, k keystore.VerificationKey) bool {
	have, ok := s.Key(k.ID())
	return ok && have.State == keystore.Active && have.Equal(k)
}

// Change carries out a decision about a stored key set.
func (d Decision) Change(c keystore.Change, id keystore.ClusterID, s keystore.KeySet) (keystore.KeySet, error) {
	var err error
	if d.Record {
		s, err = s.SetCluster(c, id)
	}
	for _, k := range d.Add {
		if err == nil {
			s, err = s.Add(c, k)
		}
	}
	return s, err
}

// Waiting is a key that the cluster lists and that is next.
type Waiting struct {
	Key       keystore.KeyID `json:"kid"`
	Since     time.Time      `json:"since"`
	NotBefore time.Time      `json:"promoteNotBefore,omitzero"` // zero if nobody knows
}

// waiting returns those keys, the one that waits longest first.
func waiting(s keystore.KeySet, seen cluster.Identity, now time.Time) (all []Waiting) {
	for _, k := range s.Keys() {
		if k.State != keystore.Next || !slices.ContainsFunc(seen.Keys, k.Equal) {
			continue
		}
		w := Waiting{Key: k.ID(), Since: k.PublishedAt}
		if _, gate := outlook.Of(keystore.Change{At: now}, s, k, keystore.Observed{}); gate != nil {
			if w.NotBefore = gate.Opens; w.NotBefore.IsZero() {
				w.NotBefore = gate.Earliest
			}
		}
		all = append(all, w)
	}
	slices.SortStableFunc(all, func(a, b Waiting) int { return a.Since.Compare(b.Since) })
	return all
}

// notes are what a person should know of a cluster that was not refused.
func notes(s keystore.KeySet, seen cluster.Identity, u keystore.IssuerURL) (all []string) {
	for _, k := range seen.Keys {
		if g, gone := s.GoneLine(k); gone && g.Why == keystore.Revoked {
			all = append(all, fmt.Sprintf("the cluster lists key %s, which was revoked", k.ID()))
		}
	}
	for _, k := range s.Keys() {
		if k.State == keystore.Active && !slices.ContainsFunc(seen.Keys, k.Equal) {
			all = append(all, fmt.Sprintf("key %s is active, and the cluster does not list it", k.ID()))
		}
	}
	for _, l := range seen.Left {
		all = append(all, "of the keys that the cluster lists, "+l.String())
	}
	if seen.Issuer != u.String() {
		all = append(all, fmt.Sprintf("the cluster calls itself %s: relying parties take its tokens once --service-account-issuer=%s is the first",
			seen.Issuer, u))
	}
	return all
}
