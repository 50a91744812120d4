// Package rotation takes a key set from the keys that sign to the next one. It promises to take only steps whose gate is
// open, each as a stored version of its own: anyone who runs it may be stopped anywhere, and anybody may go on, also several at
// once. It holds no key and no state.
package rotation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
)

// Observer is what the world sees of an issuer.
type Observer interface {
	// Recorded returns what was seen so far of a published key. It asks nobody.
	Recorded(ctx context.Context, s keystore.KeySet, k keystore.Key) (keystore.Observed, error)
	// Look looks at every issuer URL and records what it sees. A look that shows too little is not an error. Uploads are read back by
	// who uploads, with the credentials for that.
	Look(ctx context.Context, s keystore.KeySet) error
}

// Cluster is the signer's side of a rotation: the kube-apiservers of one cluster, or a signer of another kind. Its answers
// are trusted as evidence. Its methods are called one at a time.
type Cluster interface {
	// Signers returns the kid of a token that each signer has just made, by the address at which only it answers: behind a
	// load balancer nobody would notice one that still signs with the old key. One that cannot be asked is an error, and is among
	// them without a kid.
	Signers(ctx context.Context) (map[string]keystore.KeyID, error)
	// Lists returns which signers' own clusters verify tokens of a key, by address. One that cannot be asked is an error, and is not among
	// them.
	Lists(ctx context.Context, k keystore.VerificationKey) (map[string]bool, error)
	// Stage hands a promoted key over: from then on the signers may sign with it. It is called until all of them do, so it
	// changes nothing that is done. The error is a [*ByHandError] where only a person can do it.
	Stage(ctx context.Context, k keystore.Key) error
	// Lifetime returns how long the tokens that are asked for live, at relying parties outside the cluster. What the policy
	// declares must not be less.
	Lifetime(ctx context.Context) (Lifetime, error)
}

// Lifetime is the longest life of a token that somebody asks for.
type Lifetime struct {
	Longest time.Duration // 0: nobody asks for a token, or nobody knows
	For     string        // who asks for it ("pod default/app")
	Unknown string        // why nobody knows; empty otherwise
}

// LifetimeError is a policy that declares less than how long tokens live. A key that leaves by such a policy leaves before
// its last token has expired.
type LifetimeError struct {
	KeySet   keystore.Name
	Declared time.Duration
	Lifetime
}

func (e *LifetimeError) Error() string {
	return fmt.Sprintf("the policy says that tokens live for at most %v, but %s asks for tokens of %v, which would be refused once the old key is removed", e.Declared, e.For, e.Longest)
}

// UnansweredError is that the cluster did not say what a step needs to know, or did not do it, as while a kube-apiserver restarts.
type UnansweredError struct{ Err error }

func (e *UnansweredError) Error() string { return e.Err.Error() }
func (e *UnansweredError) Unwrap() error { return e.Err }

// unanswered returns an error of the cluster, if there is one, as an [*UnansweredError].
func unanswered(err error) error {
	if err == nil {
		return nil
	}
	return &UnansweredError{err}
}

// ByHandError says what a person has to do at the cluster: one step on each line.
type ByHandError struct{ Do string }

func (e *ByHandError) Error() string { return e.Do }

// ByHand returns what is done at a control plane that nobody but its administrator may touch, in two rounds: a token that one
// kube-apiserver has signed is presented to another.
func ByHand(k keystore.KeyID) *ByHandError {
	return &ByHandError{Do: fmt.Sprintf("on every control-plane node, add the public key of %s to --service-account-key-file of kube-apiserver, and restart it\n"+
		"when all of them have it, set --service-account-signing-key-file to its private key, and restart them again; give kube-controller-manager the same file as --service-account-private-key-file\n"+
		"or, where keypost-signer signs, copy the private key's file beside its other keys instead", k)}
}

// OtherCluster stands among the servers of a rotation for those of another cluster, which have the keys that it replaces: the new key is
// that of a cluster which takes the place of theirs. Nothing that the one cluster answers shows what the other signs with, so that this
// stays until somebody says that the other one is gone for good.
const OtherCluster = "other-cluster"

// between reports whether a rotation goes from one cluster to another.
func between(r *keystore.Rotation) bool { return slices.Contains(r.Servers, OtherCluster) }

// replaceByHand is ByHand where another cluster takes over.
const replaceByHand = "move what runs to the cluster that the rotation leads to\ndelete the other one"

// Facts are what a step is decided by, besides the key set.
type Facts struct {
	Observed keystore.Observed         // of the new key; before a removal, what was read back of uploads only
	Signers  map[string]keystore.KeyID // as [Cluster] returns them; nil if nobody asked
	Lists    map[string]bool           // of the new key, as [Cluster] returns them; nil if nobody asked
}

// unlisted returns the signers that do not list the new key although another does. With an external signer beside each kube-apiserver
// (KEP-740) a promotion makes the others sign with it within seconds, and these would refuse its tokens. Where none lists it,
// each learns of it by hand.
func (f Facts) unlisted() (servers []string) {
	listed := false
	for _, server := range slices.Sorted(maps.Keys(f.Lists)) {
		if listed = listed || f.Lists[server]; !f.Lists[server] {
			servers = append(servers, text.OneLine(server, 300))
		}
	}
	if !listed {
		return nil
	}
	return servers
}

// StepResume is the step back: a retired key is again what it was before, since a signer signs with it.
const StepResume keystore.RotationStep = "resume"

// Take takes the next step of the rotation of s, or the step back, and returns it and the key that it was taken with. The error
// is a [*keystore.NotYetError] while the step's gate is closed. There must be a rotation.
func Take(c keystore.Change, s keystore.KeySet, f Facts) (keystore.KeySet, Taken, error) {
	r := s.Rotation()
	if r.Step == keystore.StepPromote {
		n, err := s.Promote(c, r.Kid, f.Observed)
		if servers := f.unlisted(); err == nil && len(servers) > 0 {
			n, err = s, &keystore.NotYetError{Step: string(r.Step), Key: r.Kid, Gate: gate.GateSigning,
				Need: fmt.Sprintf("the kube-apiserver %s does not list it, although another does, and would refuse its tokens; look at the signer and the mirror beside it", strings.Join(servers, ", "))}
		}
		return n, Taken{Step: r.Step, Key: r.Kid}, err
	}
	// A key whose tokens are made again stays for as long as the last of those lives, not the last from before it was retired.
	for _, server := range slices.Sorted(maps.Keys(f.Signers)) {
		id := f.Signers[server]
		if k, published := s.Key(id); published && k.State == keystore.Retired && slices.Contains(r.Replaces, id) {
			c.Why = fmt.Sprintf("the kube-apiserver %s signs with it", server)
			n, err := s.Resume(c, id)
			return n, Taken{StepResume, id, c.Why}, err
		}
	}
	for _, k := range s.Keys() {
		if !slices.Contains(r.Replaces, k.ID()) {
			continue
		}
		took := Taken{Step: r.Step, Key: k.ID()}
		switch {
		case r.Step == keystore.StepRetire && k.State != keystore.Retired:
			missing := unseen(r, f.Signers)
			if between(r) && len(f.Signers) > 0 {
				return s, took, &keystore.NotYetError{Step: string(r.Step), Key: k.ID(), Gate: gate.GateSigning,
					Need: fmt.Sprintf("it is the key of another cluster than that of the new key; when that one is deleted, ask the one that stays, with --gone %s",
						text.Quoted(strings.Join(missing, ",")))}
			}
			if len(missing) > 0 && len(f.Signers) > 0 {
				return s, took, &keystore.NotYetError{Step: string(r.Step), Key: k.ID(), Gate: gate.GateSigning,
					Need: fmt.Sprintf("the kube-apiserver %s was there before in this rotation and is not listed now, so nobody knows what it signs with when it comes back; "+
						"one that never does is left out with --gone %s", strings.Join(missing, ", "), text.Quoted(strings.Join(missing, ",")))}
			}
			n, err := s.Retire(c, k.ID(), keystore.Evidence{Minted: f.Signers})
			return n, took, err
		case r.Step == keystore.StepRemove && k.State == keystore.Retired:
			n, err := s.Remove(c, k.ID(), keystore.Removal{Uploads: f.Observed.Uploads})
			return n, took, err
		}
	}
	return s, Taken{}, fmt.Errorf("key set %q: its rotation has no step %q", s.Name(), r.Step)
}

// unseen returns the servers of a rotation, each one line, that were not asked now.
func unseen(r *keystore.Rotation, signers map[string]keystore.KeyID) (missing []string) {
	for _, server := range r.Servers {
		if _, asked := signers[server]; !asked {
			missing = append(missing, text.OneLine(server, 300))
		}
	}
	return missing
}

// Taken is a step that was taken and stored.
type Taken struct {
	Step keystore.RotationStep `json:"step"`
	Key  keystore.KeyID        `json:"kid"`
	Why  string                `json:"why,omitempty"` // of a step back
}

// Outcome is how far a rotation has come.
type Outcome struct {
	Set     keystore.KeySet // as stored last
	Took    []Taken
	Waiting *keystore.NotYetError // the gate that is closed; nil when no rotation is under way any more
	ByHand  string                // what a person has to do at the cluster before the gate opens, one step on each line; may be empty
	Unknown string                // why nobody knows how long tokens live, so that only what the policy declares counts; may be empty
	Early   []string              // signers that sign with the new key before it is promoted, by their addresses; those that answer
	Unasked string                // why nobody knows what each signer signs with, where the step goes on without; may be empty
}

// Driver takes the steps of rotations.
type Driver struct {
	Store    *keystore.Store
	Observer Observer
	Cluster  Cluster                // nil: only what can be done at the store
	Change   func() keystore.Change // of this moment
	Gone     []string               // signers that never come back, by their addresses
}

// Step takes every step of the rotation of a key set whose gate is open, and returns at the first that is closed. It never
// starts a rotation. The error is an [*UnansweredError] where the cluster could not be asked.
func (d Driver) Step(ctx context.Context, n keystore.Name) (Outcome, error) {
	var o Outcome
	for {
		s, _, err := d.Store.Load(ctx, n)
		if err != nil {
			return o, err
		}
		o.Set = s
		r := s.Rotation()
		if r == nil {
			return o, nil
		}
		f, err := d.gather(ctx, s, &o)
		if errors.Is(err, errMoved) {
			continue
		}
		if err != nil {
			return o, err
		}
		var took Taken
		after, err := keystore.Update(ctx, d.Store, n, func(s keystore.KeySet) (keystore.KeySet, error) {
			if !same(r, s.Rotation()) {
				return s, errMoved
			}
			var err error
			s, took, err = Take(d.Change(), s, f)
			return s, err
		})
		if errors.Is(err, errMoved) { // somebody else was faster: look again where it stands
			continue
		}
		if closed, is := errors.AsType[*keystore.NotYetError](err); is {
			o.Waiting = closed
			return o, nil
		}
		if err != nil {
			return o, err
		}
		o.Set, o.ByHand = after, ""
		o.Took = append(o.Took, took)
	}
}

var errMoved = errors.New("somebody else took the step")

// same reports whether a rotation, which may be over by now, is where it was.
func same(was, now *keystore.Rotation) bool {
	return now != nil && now.ID == was.ID && now.Kid == was.Kid && now.Step == was.Step
}

// gather asks what the next step needs to know.
func (d Driver) gather(ctx context.Context, s keystore.KeySet, o *Outcome) (f Facts, err error) {
	r := s.Rotation()
	to, _ := s.Key(r.Kid)
	o.Unasked = ""
	switch r.Step {
	case keystore.StepPromote:
		d.early(ctx, to.ID(), o)
		if f.Observed, err = d.Observe(ctx, s, to); err == nil && d.Cluster != nil {
			f.Lists = d.lists(ctx, to, o)
		}
	case keystore.StepRetire:
		if d.Cluster == nil {
			o.ByHand = ByHand(to.ID()).Do
			if between(r) {
				o.ByHand = replaceByHand
			} else if k, _ := s.Key(r.Replaces[0]); k.PromotedAt.IsZero() { // rolled back before the cluster was to sign with it
				o.ByHand = fmt.Sprintf("ask each kube-apiserver what it signs with\nlet each that signs with %s sign with %s again", k.ID(), to.ID())
			}
			break
		}
		if f.Signers, err = d.handOver(ctx, s, to, o); err == nil && allSignWith(to.ID(), f.Signers) {
			err = d.measure(ctx, s, o)
		}
	case keystore.StepRemove:
		if len(s.Policy().Uploads()) > 0 {
			if f.Observed, err = d.Observer.Recorded(ctx, s, to); err != nil {
				return f, err
			}
		}
		if d.Cluster == nil {
			o.Unasked = "no kube-apiserver was asked, since the cluster was not given"
			break
		}
		f.Signers, err = d.signers(ctx, s, o)
		switch _, took, closed := Take(d.Change(), s, f); {
		case errors.Is(err, errMoved):
		case err != nil && (took.Step == StepResume || closed != nil): // there is time to ask the others again
			o.Unasked, err = err.Error(), nil
		case err == nil && took.Step != StepResume:
			err = d.measure(ctx, s, o)
		}
	}
	return f, err
}

// early notes the signers that sign with a key already, and why not all of them could be asked. The step does not need to know.
func (d Driver) early(ctx context.Context, id keystore.KeyID, o *Outcome) {
	if o.Early = nil; d.Cluster == nil {
		return
	}
	signers, err := d.Cluster.Signers(ctx)
	if err != nil {
		o.Unasked = err.Error()
	}
	maps.DeleteFunc(signers, func(_ string, has keystore.KeyID) bool { return has != id })
	o.Early = slices.Sorted(maps.Keys(signers))
}

// lists returns who lists a key, and notes why not all of them could be asked. A server that is away verifies nothing meanwhile.
func (d Driver) lists(ctx context.Context, k keystore.Key, o *Outcome) map[string]bool {
	lists, err := d.Cluster.Lists(ctx, k.VerificationKey)
	if err != nil {
		o.Unasked = err.Error()
	}
	return lists
}

// signers returns who signs with what, which somebody does, and stores who was there: one that is not listed for a while may
// come back as it was.
func (d Driver) signers(ctx context.Context, s keystore.KeySet, o *Outcome) (map[string]keystore.KeyID, error) {
	signers, failed := d.Cluster.Signers(ctx)
	was := s.Rotation()
	known := func(r *keystore.Rotation) []string {
		all := slices.DeleteFunc(r.Servers, func(server string) bool { return slices.Contains(d.Gone, server) })
		all = slices.AppendSeq(all, maps.Keys(signers))
		slices.Sort(all)
		return slices.Compact(all)
	}
	if !slices.Equal(known(s.Rotation()), was.Servers) {
		stored, err := keystore.Update(ctx, d.Store, s.Name(), func(s keystore.KeySet) (keystore.KeySet, error) {
			r := s.Rotation()
			if !same(was, r) {
				return s, errMoved
			}
			c := d.Change()
			if len(d.Gone) > 0 {
				c.Why = strings.TrimPrefix(c.Why+"; gone for good: "+strings.Join(d.Gone, ", "), "; ")
			}
			return s.SetServers(c, known(r))
		})
		if err != nil {
			return nil, err
		}
		o.Set = stored
	}
	if failed == nil && len(signers) == 0 {
		failed = errors.New("the cluster names no kube-apiserver, so nobody knows what signs its tokens")
	}
	return signers, unanswered(failed)
}

// measure returns a [*LifetimeError] if tokens live longer than the policy declares. One that declares nothing opens no gate.
// Anyone who asks for the longest may be gone when the key is removed, so this is asked before it is retired too.
func (d Driver) measure(ctx context.Context, s keystore.KeySet, o *Outcome) error {
	declared := s.Policy().TokenLifetime
	if declared == nil {
		return nil
	}
	l, err := d.Cluster.Lifetime(ctx)
	if err != nil {
		return unanswered(err)
	}
	if o.Unknown = l.Unknown; l.Longest > time.Duration(*declared) {
		return &LifetimeError{s.Name(), time.Duration(*declared), l}
	}
	return nil
}

func allSignWith(id keystore.KeyID, signers map[string]keystore.KeyID) bool {
	return !slices.ContainsFunc(slices.Collect(maps.Values(signers)), func(k keystore.KeyID) bool { return k != id })
}

// Observe returns what was seen of a key that is next. It looks if the records do not open the gate and a look could.
func (d Driver) Observe(ctx context.Context, s keystore.KeySet, k keystore.Key) (keystore.Observed, error) {
	seen, err := d.Observer.Recorded(ctx, s, k)
	if err != nil {
		return seen, err
	}
	_, err = s.Promote(d.Change(), k.ID(), seen)
	closed, is := errors.AsType[*keystore.NotYetError](err)
	if !is || closed.Gate != gate.GateObserved && closed.Gate != gate.GateFresh {
		return seen, nil
	}
	if err := d.Observer.Look(ctx, s); err != nil {
		return seen, err
	}
	return d.Observer.Recorded(ctx, s, k)
}

// handOver returns who signs with what, after it has staged the new key if some do not sign with it.
func (d Driver) handOver(ctx context.Context, s keystore.KeySet, to keystore.Key, o *Outcome) (map[string]keystore.KeyID, error) {
	signers, err := d.signers(ctx, s, o)
	if err != nil {
		return nil, err
	}
	if allSignWith(to.ID(), signers) {
		return signers, nil
	}
	if between(s.Rotation()) { // its key is not handed to this one
		o.ByHand = replaceByHand
		return signers, nil
	}
	// The signers may have taken their time. A key that somebody has taken out meanwhile must not be handed over: its tokens
	// would be refused everywhere.
	if err := d.stillTo(ctx, s, to); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, stageWithin)
	defer cancel()
	err = d.Cluster.Stage(ctx, to)
	if byHand, is := errors.AsType[*ByHandError](err); is {
		o.ByHand, err = byHand.Do, nil
	}
	return signers, unanswered(err)
}

// stageWithin bounds how old what Stage goes by may be when it takes effect.
const stageWithin = time.Minute

// stillTo returns errMoved unless the stored rotation is that of s and its key may sign.
func (d Driver) stillTo(ctx context.Context, s keystore.KeySet, to keystore.Key) error {
	stored, _, err := d.Store.Load(ctx, s.Name())
	if err != nil {
		return err
	}
	k, there := stored.Key(to.ID())
	if !same(s.Rotation(), stored.Rotation()) || !there || k.State != keystore.Active || k.Fingerprint() != to.Fingerprint() {
		return errMoved
	}
	return nil
}

// Entry is a line of a timetable.
type Entry struct {
	Step  keystore.RotationStep
	Opens time.Time // the earliest; zero if nobody can say
}

// Timetable returns when the steps of the rotation of s that are still to be taken can be taken at the earliest, if all that
// they need happens at once: the new key is seen everywhere from now on, and every signer signs with it as soon as it may.
func Timetable(c keystore.Change, s keystore.KeySet, seen keystore.Observed) []Entry {
	r := s.Rotation()
	if r == nil {
		return nil
	}
	var all []Entry
	at := c.At
	if r.Step == keystore.StepPromote {
		if seen.Since.IsZero() {
			seen.Since = at
		}
		k, _ := s.Key(r.Kid)
		at = latest(at, s.Gates().EarliestPromotion(k, seen))
		all = append(all, Entry{Step: keystore.StepPromote, Opens: at})
	}
	if r.Step != keystore.StepRemove {
		all = append(all, Entry{Step: keystore.StepRetire, Opens: at})
	}
	remove := Entry{Step: keystore.StepRemove}
	for _, k := range s.Keys() {
		if !slices.Contains(r.Replaces, k.ID()) {
			continue
		}
		if k.State != keystore.Retired {
			k.State, k.RetiredAt = keystore.Retired, at
		}
		until, known := s.Gates().TrustedUntil(k, at)
		if !known {
			remove.Opens = time.Time{}
			break
		}
		remove.Opens = latest(remove.Opens, until)
	}
	return append(all, remove)
}

func latest(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }
