package issuer

import (
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/keystore"
)

// batch is key sets that are judged together, and what becomes of them. Nobody sees anything of it before apply.
type batch struct {
	p         *Publisher
	found     []found
	listed    map[keystore.Name]keystore.Revision // nil when it is not a complete reading
	withdrawn map[keystore.Name]bool              // the good tombstones of this batch

	entries map[keystore.Name]*entry // what changes; nil for one that is forgotten
	edit    edit
	lines   []func() // of the log
}

// publish judges a batch, swaps the snapshot in and logs what changed. listed is nil when the batch is not a complete
// reading.
func (p *Publisher) publish(all []found, listed map[keystore.Name]keystore.Revision) {
	p.turn.Lock()
	defer p.turn.Unlock()
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(string(a.name), string(b.name)) })
	b := &batch{p: p, found: all, listed: listed, withdrawn: map[keystore.Name]bool{}, entries: map[keystore.Name]*entry{}, edit: edit{}}
	b.judge()
	for i := range all {
		b.settle(&all[i])
	}
	b.findMissing()
	b.apply(time.Now())
	for _, line := range b.lines {
		line()
	}
}

// judge fills in the rejections of a batch: each version by itself and against the one that is served, then all of
// them against each other.
func (b *batch) judge() {
	claims := map[routeKey][]int{} // also of versions that turn out to bring a key back: such a claim is one all the same
	for i := range b.found {
		f := &b.found[i]
		if f.version == nil {
			continue
		}
		if f.rejected = b.p.admit(f); f.rejected != nil {
			continue
		}
		if f.version.Withdrawn() {
			b.withdrawn[f.name] = true
		}
		for _, at := range f.version.places() {
			claims[at] = append(claims[at], i)
		}
	}
	b.judgeReturns()
	for i := range b.found {
		if f := &b.found[i]; f.rejected == nil {
			for _, at := range f.version.places() {
				b.judgeClaim(i, at, claims[at])
			}
		}
	}
}

// judgeReturns refuses versions with a key that left one of their URLs with another key set, which is withdrawn: to
// those who trust the URL it is the same issuer. A tombstone counts only where the patterns allow its name the URL, so
// that it cannot bar keys of others. So only the names that are bound to the same place are asked, however many key
// sets there are.
func (b *batch) judgeReturns() {
	for i := range b.found {
		f := &b.found[i]
		if f.rejected != nil {
			continue
		}
		for _, at := range f.version.places() {
			for _, n := range b.p.bound[at] {
				if id, returns := b.returns(f, n, at); returns {
					f.rejected = keystore.Reject(keystore.ReasonGoneReturned, "key %s left the issuer URL https://%s%s for good with the withdrawn key set %q", id, at.Host, at.Path, n)
				}
			}
		}
	}
}

// returns reports whether f has a key that left a place with the withdrawn key set n, and which.
func (b *batch) returns(f *found, n keystore.Name, at routeKey) (kid string, returns bool) {
	tombstone := b.p.served(n)
	if b.withdrawn[n] {
		i, _ := b.index(n)
		tombstone = b.found[i].version
	}
	if n == f.name || tombstone == nil || !tombstone.Withdrawn() || !tombstone.had(at) {
		return "", false
	}
	var served *keystore.Summary
	if v := b.p.served(f.name); v != nil {
		served = &v.Summary
	}
	return f.version.Returning(served, &tombstone.Summary)
}

func (p *Publisher) allows(n keystore.Name, u keystore.IssuerURL) bool {
	return slices.ContainsFunc(p.c.Patterns, func(pat Pattern) bool { return pat.Allows(n, u) })
}

// admit judges one version without regard to other key sets.
func (p *Publisher) admit(f *found) *keystore.Rejection {
	if f.version.dev && !p.c.Dev {
		return keystore.Reject(DevRefused, "it is a development key set, which only keypostd --dev serves")
	}
	for _, u := range f.version.issuers {
		if !p.allows(f.name, u) && !f.version.Withdrawn() {
			return keystore.Reject(URLNotPermitted, "its issuer URL %s matches no pattern in issuerURLs for the name %q", u, f.name)
		}
	}
	if served := p.served(f.name); served != f.was {
		return served.follows(f.version)
	}
	return f.follows
}

// judgeClaim settles whether newcomer i gets a URL: whoever is served has it; of several newcomers nobody does, since
// choosing one by chance would let a second writer take an issuer over at the next restart.
func (b *batch) judgeClaim(i int, at routeKey, by []int) {
	f := &b.found[i]
	owner, owned := b.p.current.Load().owner(at)
	if owned && owner == f.name {
		return
	}
	rival, mayClaim := b.rival(f.name, at)
	switch {
	case owned && !b.withdrawn[owner]:
		f.rejected = keystore.Reject(URLConflict, "its issuer URL https://%s%s belongs to key set %q, which is served", at.Host, at.Path, owner)
	case len(by) > 1:
		f.rejected = keystore.Reject(URLConflict, "its issuer URL https://%s%s is also that of key set %q", at.Host, at.Path, b.found[other(by, i)].name)
	case mayClaim:
		f.rejected = keystore.Reject(URLConflict, "its issuer URL https://%s%s may also be that of key set %q, whose version in the store is not known", at.Host, at.Path, rival)
	}
}

func other(by []int, i int) int {
	if by[0] == i {
		return by[1]
	}
	return by[0]
}

// rival returns a key set that the patterns allow a place too, that is in the store, and of which nobody knows whether
// it claims the place: it cannot be read, or waits for the end of a conflict.
func (b *batch) rival(n keystore.Name, at routeKey) (keystore.Name, bool) {
	for _, other := range b.p.bound[at] {
		_, stored := b.listed[other]
		if other != n && (b.listed == nil || stored) && b.unclear(other) {
			return other, true
		}
	}
	return "", false
}

// unclear reports whether it is not known what URLs a key set claims.
func (b *batch) unclear(n keystore.Name) bool {
	e := b.p.entry(n)
	if i, inBatch := b.index(n); inBatch {
		f := &b.found[i]
		return f.version == nil && !f.absent && f.rejected.Reason == Unreadable && (e == nil || e.served == nil)
	}
	return e.is(URLConflict) || e.is(Unreadable) && e.served == nil
}

func (b *batch) index(n keystore.Name) (int, bool) {
	return slices.BinarySearchFunc(b.found, n, func(f found, n keystore.Name) int { return strings.Compare(string(f.name), string(n)) })
}

func (p *Publisher) entry(n keystore.Name) *entry {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.entries[n]
}

// settle takes one judged key set over into the entries and, when it is good, into the edit.
func (b *batch) settle(f *found) {
	was := b.p.entry(f.name)
	if f.absent {
		b.noteMissing(f.name)
		return
	}
	now := &entry{revision: f.revision, rejected: f.rejected}
	if was != nil {
		now.served = was.served
	}
	if f.rejected == nil {
		b.replace(f.name, now.served, f.version)
		now.served = f.version
	}
	b.entries[f.name] = now
	b.noteChange(f.name, was, now)
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
func (b *batch) owns(n keystore.Name, at routeKey) bool {
	if pg, edited := b.edit[at]; edited {
		return pg != nil && pg.Owner == string(n)
	}
	owner, owned := b.p.current.Load().owner(at)
	return owned && owner == n
}

// findMissing draws the conclusion of a complete listing: what is missing.
func (b *batch) findMissing() {
	if b.listed == nil {
		return
	}
	var missing []keystore.Name
	for n := range b.p.entries { // only the holder of the turn changes it
		if _, ok := b.listed[n]; !ok {
			missing = append(missing, n)
		}
	}
	slices.Sort(missing)
	for _, n := range missing {
		if _, settled := b.entries[n]; !settled {
			b.noteMissing(n)
		}
	}
}

// noteMissing: absence is never deletion. A key set that was never good is forgotten, one that is withdrawn is kept
// without an alarm; every other one stays served and is told of.
func (b *batch) noteMissing(n keystore.Name) {
	e := b.p.entry(n)
	switch {
	case e == nil || e.missing:
	case e.served == nil:
		b.entries[n] = nil
		b.say(forgottenLine, n)
	case e.served.Withdrawn() && e.rejected == nil:
	case e.served.Withdrawn():
		b.entries[n] = &entry{revision: e.revision, served: e.served}
	default:
		b.entries[n] = &entry{served: e.served, missing: true}
		b.say(missingLine, n, generationField(e.served))
	}
}

// apply makes the batch known: what is served and what is said of it change together.
func (b *batch) apply(now time.Time) {
	p := b.p
	was := p.current.Load()
	next := was.with(b.edit)
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
		next.complete = b.advance(next.issuers(), now)
	}
	if len(b.edit) > 0 || next.complete != was.complete {
		p.current.Store(next)
	}
}

// advance decides once and for all whether this process is ready, and returns whether what is not served now does not
// exist. It is called with mu held.
func (b *batch) advance(issuers int, now time.Time) (settled bool) {
	p, is := b.p, *b.p.progress.Load()
	is.listed, is.total, is.unserved = !p.first.IsZero(), len(p.entries), 0
	for _, e := range p.entries {
		if e.served == nil {
			is.unserved++
		}
	}
	switch {
	case is.ready || !is.listed:
	case is.nothing():
		is.ready = p.c.AllowEmpty && (is.unserved == 0 || now.Sub(p.first) >= startPatience)
	default:
		is.ready = is.unserved == 0 || now.Sub(p.first) >= startPatience
	}
	if is.ready && !p.progress.Load().ready {
		b.sayReady(is, issuers)
	}
	p.progress.Store(&is)
	return is.ready && is.unserved == 0 && is.total > 0 // nothing at all: not filled yet, or not mounted
}

// progress is how far a Publisher has come since its start.
type progress struct {
	listed          bool // everything was, once
	ready           bool
	total, unserved int // key sets, and those of which no version was ever good
}

// nothing reports whether there is no good version of anything.
func (s progress) nothing() bool { return s.unserved == s.total }
