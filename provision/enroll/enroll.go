// Package enroll keeps key sets in step with the clusters of a company: a new cluster gets a key set under the pattern's URL, a new key
// of a known one comes in as next. It promises to do nothing else. It never promotes, retires, removes, revokes or withdraws; a cluster
// that is away changes nothing; one that is another cluster than before is refused until a person says otherwise.
//
// Which cluster a key set belongs to stands in its own document, written with its keys by the same compare-and-swap. So a run that is
// killed, a restart, or two runs at once leave one truth. When a cluster was last reached is known to a running process only.
package enroll

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/provision/cluster"
)

// Cluster is one of a source.
type Cluster struct {
	Name   keystore.Name
	Access *rest.Config // nil if Err is set
	Err    error        // why it is refused before it is asked
	Object string       // NAMESPACE/NAME of the Cluster object; empty without one
	Since  time.Time    // when that was made, by the clock of its API server

	ControlPlane ControlPlane
}

// Source lists the clusters. The list is complete or an error: a cluster that is not in it is reported as absent.
type Source interface {
	List(ctx context.Context) ([]Cluster, error)
}

// Report is what is known of one cluster after a pass.
type Report struct {
	Name    keystore.Name `json:"name"`
	State   State         `json:"state"`
	Since   time.Time     `json:"since,omitzero"` // of the state, as far as this process or the key set knows
	URL     string        `json:"issuer,omitempty"`
	Why     string        `json:"why,omitempty"` // it is refused or unreachable
	Waiting []Waiting     `json:"newKeys,omitempty"`
	Notes   []string      `json:"notes,omitempty"`
	Own     string        `json:"clusterIssuer,omitempty"`  // what the cluster calls itself
	Flags   []string      `json:"apiServerFlags,omitempty"` // that its kube-apiserver needs, so that it calls itself URL

	ControlPlane ControlPlane `json:"-"`
}

// Failed reports whether somebody has to act, or the cluster to come back.
func (r Report) Failed() bool { return r.State == Refused || r.State == Unreachable }

// same reports whether two reports of a cluster say the same.
func (r Report) same(o Report) bool {
	kids := slices.EqualFunc(r.Waiting, o.Waiting, func(a, b Waiting) bool { return a.Key == b.Key })
	return r.State == o.State && (r.Why == o.Why || r.State == Unreachable) && slices.Equal(r.Notes, o.Notes) && kids
}

// Config is an enrolment.
type Config struct {
	Rules
	Store  *keystore.Store
	Source Source
	Change func(why string) keystore.Change // who makes changes, and when: now
	Alone  bool                             // the source has one cluster of many: nothing else of the store is looked at without need
	Look   func(context.Context, *rest.Config) (cluster.Identity, error)
}

// Enroller makes passes, one at a time.
type Enroller struct {
	Config
	last map[keystore.Name]Report
}

// New returns an enroller. [cluster.Identify] is the look that is meant.
func New(c Config) *Enroller { return &Enroller{Config: c, last: map[keystore.Name]Report{}} }

const (
	// parallel is how many clusters are asked at once.
	parallel = 64
	// deadline is the time that one cluster has for all of its answers.
	deadline = 20 * time.Second
)

// answer is what came of asking a cluster.
type answer struct {
	Cluster
	seen cluster.Identity
	err  error
}

// ask asks every cluster and hands the answers out as they come, so that one that hangs keeps no other waiting.
func (e *Enroller) ask(ctx context.Context, all []Cluster) <-chan answer {
	answers, turns := make(chan answer, len(all)), make(chan struct{}, parallel)
	for _, c := range all {
		if c.Err != nil {
			answers <- answer{Cluster: c, err: &cluster.UnfitError{Err: c.Err}}
			continue
		}
		go func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			ctx, cancel := context.WithTimeout(ctx, deadline)
			defer cancel()
			seen, err := e.Look(ctx, c.Access)
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("no answer within %v", deadline)
			}
			answers <- answer{c, seen, err}
		}()
	}
	return answers
}

// Pass looks at every cluster of the source once, and calls told with the report of each as it is known. The error is that of the
// source or of the store; then nothing is known of the rest.
func (e *Enroller) Pass(ctx context.Context, told func(r Report, changed bool)) error {
	clusters, err := e.Source.List(ctx)
	if err != nil {
		return fmt.Errorf("list the clusters: %w", err)
	}
	clusters = distinct(clusters)
	p := pass{Enroller: e, told: told}
	if err := p.read(ctx, clusters); err != nil {
		return err
	}
	answers := e.ask(ctx, clusters)
	for range clusters {
		r := p.judge(ctx, <-answers)
		if ctx.Err() != nil { // then a look or a write that failed says nothing about the cluster
			return context.Cause(ctx)
		}
		p.tell(r)
	}
	p.absent(clusters)
	return nil
}

// Run makes a pass every so often until ctx is done, and calls failed with what came of each: nil, or why it ended early.
func (e *Enroller) Run(ctx context.Context, every time.Duration, told func(r Report, changed bool), failed func(error)) {
	for {
		err := e.Pass(ctx, told)
		if ctx.Err() != nil {
			return
		}
		failed(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// distinct leaves one cluster of each name. Of several Cluster objects the one that was made first keeps the name, and each other one is
// refused under the name of its object, which no key set can have. Of several files none keeps it: nobody could say whose the key set is.
func distinct(all []Cluster) []Cluster {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Cluster) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Object, b.Object)) })
	times, first := map[keystore.Name]int{}, map[keystore.Name]string{}
	for _, c := range all {
		times[c.Name]++
	}
	var once []Cluster
	for _, c := range all {
		object, again := first[c.Name]
		switch {
		case c.Object == "" && again: // the one before said it
			continue
		case c.Object == "" && times[c.Name] > 1:
			first[c.Name], c = "", Cluster{Name: c.Name, Err: fmt.Errorf("%d clusters of the source have this name", times[c.Name])}
		case again:
			c = Cluster{Name: keystore.Name(c.Object), Err: fmt.Errorf("the name %s belongs to the Cluster %s, which was made first", c.Name, object)}
		default:
			first[c.Name] = c.Object
		}
		once = append(once, c)
	}
	return once
}

// pass is one look at everything.
type pass struct {
	*Enroller
	told  func(Report, bool)
	store catalog.Contents
	whole bool // store has every key set
}

// read reads the key sets: all, or that of the one cluster.
func (p *pass) read(ctx context.Context, clusters []Cluster) (err error) {
	if !p.Alone {
		p.store, err = catalog.ReadAll(ctx, p.Store)
		p.whole = true
		return err
	}
	for _, c := range clusters {
		s, _, err := p.Store.Load(ctx, c.Name)
		switch {
		case err == nil:
			p.store.Sets = append(p.store.Sets, s)
		case !errors.Is(err, keystore.ErrNotFound):
			return fmt.Errorf("load key set %q: %w", c.Name, err)
		}
	}
	return nil
}

// others reads the whole store before something is written into it.
func (p *pass) others(ctx context.Context) (err error) {
	if !p.whole {
		p.store, err = catalog.ReadAll(ctx, p.Store)
		p.whole = err == nil
	}
	return err
}

func (p *pass) stored(n keystore.Name) *keystore.KeySet {
	i := slices.IndexFunc(p.store.Sets, func(s keystore.KeySet) bool { return s.Name() == n })
	if i < 0 {
		return nil
	}
	return &p.store.Sets[i]
}

// judge decides about a cluster and writes what follows.
func (p *pass) judge(ctx context.Context, a answer) Report {
	r := Report{Name: a.Name, Own: a.seen.Issuer, ControlPlane: a.ControlPlane}
	if a.err != nil {
		_, unfit := errors.AsType[*cluster.UnfitError](a.err)
		if r.State, r.Why = Unreachable, a.err.Error(); unfit || cluster.Refused(a.err) {
			r.State = Refused
		}
		return r
	}
	if err := p.store.Unread[a.Name]; err != nil {
		r.State, r.Why = Refused, fmt.Sprintf("its key set cannot be read: %v", err)
		return r
	}
	d := p.Decide(a.Name, a.seen, p.stored(a.Name))
	var s keystore.KeySet
	var warnings []string
	if stored := p.stored(a.Name); stored != nil {
		s = *stored
	}
	if d.Writes() {
		var err error
		if s, d, warnings, err = p.write(ctx, a, d); err != nil { // other clusters go on: the trouble may be with this key set only
			d = refused("%v", err)
		}
	}
	if r.State, r.Why = d.State, d.Why; d.State == Refused {
		return r
	}
	r.URL, r.Waiting = d.URL.String(), waiting(s, a.seen, p.Change("").At)
	r.Flags = flagsOf(r.URL, r.Own)
	r.Notes = append(warnings, notes(s, a.seen, d.URL)...)
	if len(r.Waiting) > 0 {
		r.State, r.Since = NewKey, r.Waiting[0].Since
	}
	return r
}

// write carries a decision out. Another process may have been faster; then it is decided anew, by what that wrote.
func (p *pass) write(ctx context.Context, a answer, d Decision) (keystore.KeySet, Decision, []string, error) {
	if err := p.others(ctx); err != nil {
		return keystore.KeySet{}, d, nil, err
	}
	if p.stored(a.Name) == nil {
		s, warnings, err := p.add(ctx, a, d)
		if !errors.Is(err, keystore.ErrConflict) {
			return s, d, warnings, err
		}
	}
	shared, err := p.store.CheckKeys(a.Name, d.Add, false)
	if err != nil {
		return keystore.KeySet{}, d, nil, err
	}
	var same keystore.KeySet
	s, err := keystore.Update(ctx, p.Store, a.Name, func(s keystore.KeySet) (keystore.KeySet, error) {
		if d = p.Decide(a.Name, a.seen, &s); !d.Writes() {
			same = s
			return s, errUnchanged
		}
		return d.Change(p.Change(keystore.Enrolled), a.seen.ID, s)
	})
	switch {
	case errors.Is(err, errUnchanged):
		return same, d, nil, nil
	case err != nil:
		return s, d, nil, err
	}
	return s, d, warn(shared), nil
}

// errUnchanged ends an update that another process has made.
var errUnchanged = errors.New("nothing is to be changed")

// add makes the key set of a new cluster.
func (p *pass) add(ctx context.Context, a answer, d Decision) (keystore.KeySet, []string, error) {
	spec := keystore.Spec{Name: a.Name, Issuers: []keystore.IssuerURL{d.URL}, Keys: d.Add, Policy: p.Policy, Cluster: a.seen.ID}
	added, err := p.store.Add(ctx, p.Store, spec, catalog.AddOptions{Change: p.Change(keystore.Enrolled)})
	return added.KeySet, warn(added.Shared), err
}

// warn says which keys other key sets have too. It does not refuse them: else one cluster could keep another one out by listing its key.
func warn(shared []catalog.Shared) (all []string) {
	for _, s := range shared {
		all = append(all, fmt.Sprintf("key %s is also in key set %q: anyone who signs with it can speak for both issuers", s.Key, s.In))
	}
	return all
}

// absent reports the enrolled key sets for which the source has no cluster.
func (p *pass) absent(clusters []Cluster) {
	for _, s := range p.store.Sets {
		u, ok := p.URL(s.Name())
		listed := slices.ContainsFunc(clusters, func(c Cluster) bool { return c.Name == s.Name() })
		if !p.Alone && ok && !listed && !s.Withdrawn() && len(s.Clusters()) > 0 && slices.Contains(s.Issuers(), u) {
			p.tell(Report{Name: s.Name(), State: Absent, URL: u.String()})
		}
	}
}

// tell completes a report by what was said before.
func (p *pass) tell(r Report) {
	was, known := p.last[r.Name]
	if r.State == InStep && was.State == Enrolled {
		was.State = InStep // no news
	}
	changed := !known || !r.same(was)
	if r.Since.IsZero() {
		if r.Since = p.Change("").At; known && r.State == was.State {
			r.Since = was.Since
		}
	}
	p.last[r.Name] = r
	p.told(r, changed)
}
