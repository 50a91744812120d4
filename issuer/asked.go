package issuer

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keypost/keypost/internal/ownlook"
	"github.com/keypost/keypost/keystore/lastgood"
)

// asked knows when each place was last asked for one of its documents, to the second: a lookup, a load and at most one
// store a second for each place, without a lock. It has 8 bytes for each place that was ever served by this process.
type asked struct {
	since   time.Time
	seconds atomic.Pointer[[]*askedBlock] // Unix time by number; grown by replacing it

	mu      sync.Mutex // guards numbers; requests do not take it
	numbers map[routeKey]uint32
}

const askedInBlock = 512

// askedBlock is as many places as grow at once. Blocks stay where they are, so that what is stored into one is never lost
// to a copy.
type askedBlock [askedInBlock]atomic.Int64

// number returns the number of a place; the first is 1, and 0 is nobody's. A place keeps its own for good, so that a new
// version of its documents goes on with the time of the old one.
func (a *asked) number(at routeKey) uint32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n, ok := a.numbers[at]; ok {
		return n
	}
	n := uint32(len(a.numbers)) + 1 //nolint:gosec // a store holds some ten thousand places
	a.numbers[at] = n
	var blocks []*askedBlock
	if have := a.seconds.Load(); have != nil {
		blocks = *have
	}
	if int(n/askedInBlock) >= len(blocks) {
		grown := append(append([]*askedBlock{}, blocks...), new(askedBlock))
		a.seconds.Store(&grown)
	}
	return n
}

// note records that the place with a number was asked for now.
func (a *asked) note(number uint32, r *http.Request) {
	if number == 0 || ownlook.Is(r.Header) {
		return
	}
	at := &(*a.seconds.Load())[number/askedInBlock][number%askedInBlock]
	if now := time.Now().Unix(); at.Load() != now { // many processors share the line, and it seldom changes
		at.Store(now)
	}
}

// of returns when each issuer URL of a version was last asked for, without those that were not since a.since.
func (a *asked) of(v *version) map[string]time.Time {
	var all map[string]time.Time
	if v == nil || v.Withdrawn() {
		return nil
	}
	for u := range v.Issuers() {
		a.mu.Lock()
		number, known := a.numbers[routeKey(lastgood.RouteOf(u))]
		a.mu.Unlock()
		if !known {
			continue
		}
		if s := (*a.seconds.Load())[number/askedInBlock][number%askedInBlock].Load(); s != 0 {
			if all == nil {
				all = map[string]time.Time{}
			}
			all[u] = time.Unix(s, 0).UTC()
		}
	}
	return all
}
