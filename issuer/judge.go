package issuer

import (
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// batch is key sets that are judged together, and what becomes of them. Nobody sees anything of it before publish has stored it.
type batch struct {
	p       *Publisher
	now     time.Time
	found   []found
	listed  map[keystore.Name]keystore.Revision // nil when it is not a complete reading
	was     *snapshot
	next    snapshot
	changed bool     // what is served
	lines   []func() // of the log
}

// publish judges a batch, swaps the snapshot in and logs what changed. listed is nil when the batch is not a complete
// reading.
func (p *Publisher) publish(all []found, listed map[keystore.Name]keystore.Revision) {
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(string(a.Name), string(b.Name)) })
	was := p.current.Load()
	b := &batch{p: p, now: time.Now(), found: all, listed: listed, was: was, next: *was}
	b.next.entries = maps.Clone(was.entries)
	b.judge()
	for i := range all {
		b.keep(&all[i])
	}
	b.findMissing()
	b.finish()
	p.current.Store(&b.next)
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
	lastgood.Judge{State: b.was, Permitted: b.p.admission.Permitted(), Rejected: b.rejected}.Decide(candidates)
}

// rejected yields the key sets in the store whose documents are rejected.
func (b *batch) rejected(yield func(keystore.Name, *lastgood.Rejection) bool) {
	for n, e := range b.was.entries {
		_, stored := b.listed[n]
		if e.rejected != nil && (b.listed == nil || stored) && !yield(n, e.rejected) {
			return
		}
	}
}

// keep takes one judged key set over.
func (b *batch) keep(f *found) {
	if f.absent {
		b.noteMissing(f.Name)
		return
	}
	was, now := b.was.entries[f.Name], &entry{revision: f.revision, rejected: f.Rejected}
	if was != nil {
		now.served = was.served
	}
	if f.Rejected == nil {
		f.version.follow(now.served, b.now)
		now.served, b.changed = f.version, true
	}
	b.next.entries[f.Name] = now
	b.logNews(f.Name, was, now)
}

// findMissing concludes from a complete listing what is missing.
func (b *batch) findMissing() {
	if b.listed == nil {
		return
	}
	for _, n := range slices.Sorted(maps.Keys(b.was.entries)) {
		if _, ok := b.listed[n]; !ok {
			b.noteMissing(n)
		}
	}
}

func (b *batch) noteMissing(n keystore.Name) {
	e := b.was.entries[n]
	if e == nil || e.rejected.Is(lastgood.ReasonMissing) {
		return
	}
	missing := lastgood.Missing(b.was.Good(n))
	switch {
	case e.served == nil:
		delete(b.next.entries, n)
		b.log(zap.InfoLevel, "a rejected key set has left the store", n)
	case missing == nil && e.rejected != nil: // a tombstone
		b.next.entries[n] = &entry{revision: e.revision, served: e.served}
	case missing != nil:
		b.next.entries[n] = &entry{served: e.served, rejected: missing}
		b.log(zap.WarnLevel, "key set is missing in the store; its last good version stays served", n, generationField(e.served))
	}
}

// finish completes the next snapshot. It decides once and for all whether this process is ready, and whether what is not served does
// not exist.
func (b *batch) finish() {
	s := &b.next
	if b.changed {
		s.pages = pagesOf(s.entries)
	}
	if b.listed != nil {
		s.last = b.now
		if s.first.IsZero() {
			s.first = b.now
			if b.p.c.FirstRead != nil {
				b.p.c.FirstRead()
			}
		}
	}
	if s.complete || s.first.IsZero() {
		return // it counts all key sets, which a change of one must not
	}
	start := s.start(b.now, b.p.c.AllowEmpty)
	if !s.ready && start.Ready() {
		s.ready = true
		b.logReady(start, len(s.pages))
	}
	s.complete = s.ready && start.Without == 0 && start.KeySets > 0 // nothing at all: not filled yet, or not mounted
}
