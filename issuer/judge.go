package issuer

import (
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// batch is key sets that are judged together, and what becomes of them. Nobody sees anything of it before apply.
type batch struct {
	p      *Publisher
	now    time.Time
	found  []found
	listed map[keystore.Name]keystore.Revision // nil when it is not a complete reading

	entries map[keystore.Name]*entry // what changes; nil for one that is forgotten
	edit    edit
	lines   []func() // of the log
}

// publish judges a batch, swaps the snapshot in and logs what changed. listed is nil when the batch is not a complete
// reading.
func (p *Publisher) publish(all []found, listed map[keystore.Name]keystore.Revision) {
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(string(a.Name), string(b.Name)) })
	b := &batch{p: p, now: time.Now(), found: all, listed: listed, entries: map[keystore.Name]*entry{}, edit: edit{}}
	b.judge()
	for i := range all {
		b.keep(&all[i])
	}
	b.findMissing()
	b.apply()
	for _, line := range b.lines {
		line()
	}
}

// judge fills in the rejections of lastgood; what this server's configuration refuses is rejected since it was read.
func (b *batch) judge() {
	candidates := make([]*lastgood.Candidate, 0, len(b.found))
	for i := range b.found {
		candidates = append(candidates, b.found[i].Candidate)
	}
	lastgood.Judge{State: servedState{b.p}, Permitted: b.p.admission.Permitted(), Rejected: b.rejected}.Decide(candidates)
}

// servedState answers a lastgood.Judge about the versions that a Publisher serves.
type servedState struct{ p *Publisher }

func (s servedState) Good(n keystore.Name) *lastgood.Summary { return s.p.served(n).summary() }

func (s servedState) Owner(r keystore.Route) (n keystore.Name, owned bool) {
	return s.p.current.Load().owner(r)
}

// rejected yields the key sets in the store whose documents are rejected.
func (b *batch) rejected(yield func(keystore.Name, *lastgood.Rejection) bool) {
	for n, e := range b.p.entries {
		_, stored := b.listed[n]
		if e.rejected != nil && (b.listed == nil || stored) && !yield(n, e.rejected) {
			return
		}
	}
}

func (p *Publisher) entry(n keystore.Name) *entry {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.entries[n]
}

// keep takes one judged key set over into the entries and, when it is good, into the edit.
func (b *batch) keep(f *found) {
	was := b.p.entry(f.Name)
	if f.absent {
		b.noteMissing(f.Name)
		return
	}
	now := &entry{revision: f.revision, rejected: f.Rejected}
	if was != nil {
		now.served = was.served
	}
	if f.Rejected == nil {
		f.version.follow(now.served, b.now)
		b.replace(f.Name, now.served, f.version)
		now.served = f.version
	}
	b.entries[f.Name] = now
	b.logNews(f.Name, was, now)
}

func (b *batch) replace(n keystore.Name, old, next *version) {
	for _, at := range old.places() {
		if b.owns(n, at) && !slices.Contains(next.places(), at) {
			b.edit[at] = nil
		}
	}
	for i, at := range next.places() {
		b.edit[at] = &next.pages[i]
	}
	next.published()
}

// owns reports whether a place is served for n, or will be after the edit.
func (b *batch) owns(n keystore.Name, at keystore.Route) bool {
	if pg, edited := b.edit[at]; edited {
		return pg != nil && pg.owner == n
	}
	owner, owned := b.p.current.Load().owner(at)
	return owned && owner == n
}

// findMissing concludes from a complete listing what is missing.
func (b *batch) findMissing() {
	if b.listed == nil {
		return
	}
	var missing []keystore.Name
	for n := range b.p.entries {
		if _, ok := b.listed[n]; !ok {
			missing = append(missing, n)
		}
	}
	slices.Sort(missing)
	for _, n := range missing {
		if _, decided := b.entries[n]; !decided {
			b.noteMissing(n)
		}
	}
}

func (b *batch) noteMissing(n keystore.Name) {
	e := b.p.entry(n)
	if e == nil || e.rejected.Is(lastgood.ReasonMissing) {
		return
	}
	missing := lastgood.Missing(e.served.summary())
	switch {
	case e.served == nil:
		b.entries[n] = nil
		b.log(zap.InfoLevel, "a rejected key set has left the store", n)
	case missing == nil && e.rejected != nil: // a tombstone
		b.entries[n] = &entry{revision: e.revision, served: e.served}
	case missing != nil:
		b.entries[n] = &entry{served: e.served, rejected: missing}
		b.log(zap.WarnLevel, "key set is missing in the store; its last good version stays served", n, generationField(e.served))
	}
}

// apply makes the result of the batch visible: what is served and what is reported about it change together.
func (b *batch) apply() {
	p, now := b.p, b.now
	was := p.current.Load()
	next := was.with(b.edit)
	if p.c.FirstRead != nil && b.listed != nil && !p.began() {
		p.c.FirstRead()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, e := range b.entries {
		if e == nil {
			delete(p.entries, n)
			continue
		}
		p.entries[n] = e
	}
	if b.listed != nil {
		p.complete = now
		if p.first.IsZero() {
			p.first = now
		}
	}
	if !was.complete { // counts all key sets, which a change of one must not
		next.complete = b.advance(len(next.pages), now)
	}
	if len(b.edit) > 0 || next.complete != was.complete {
		p.current.Store(next)
	}
}

// advance decides once and for all whether this process is ready, and reports whether what is not served now does not
// exist. It is called with mu held.
func (b *batch) advance(issuers int, now time.Time) (whole bool) {
	p := b.p
	if p.first.IsZero() {
		return false
	}
	start := p.start(now)
	if !p.ready && start.Ready() {
		p.ready = true
		b.logReady(start, issuers)
	}
	return p.ready && start.Without == 0 && start.KeySets > 0 // nothing at all: not filled yet, or not mounted
}

// start returns how far the Publisher has come. It is called with mu held.
func (p *Publisher) start(now time.Time) lastgood.Start {
	s := lastgood.Start{Waited: now.Sub(p.first), AllowEmpty: p.c.AllowEmpty}
	for _, e := range p.entries {
		s.Count(e.served != nil, e.rejected)
	}
	return s
}
