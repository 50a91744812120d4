package watch

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/keypost/keypost/keystore"
)

// Issuer is one issuer URL of a key set. Each is looked at by itself.
type Issuer struct {
	KeySet keystore.Name
	URL    string
}

func (i Issuer) compare(j Issuer) int {
	return cmp.Or(cmp.Compare(i.KeySet, j.KeySet), cmp.Compare(i.URL, j.URL))
}

// soonest bounds how long an issuer that was not known before waits for its first look.
const soonest = 15 * time.Second

// point returns a point of an interval that depends on the URL alone: issuers are spread over it, and each has the same
// point after a restart and in every process.
func point(url string, interval time.Duration) time.Duration {
	sum := sha256.Sum256([]byte(url))
	return time.Duration(binary.BigEndian.Uint64(sum[:8]) >> 1 % uint64(interval)) //nolint:gosec // below interval, which is positive
}

// turns is what a schedule knows of an issuer.
type turns struct {
	point   time.Duration // of its looks, from the beginning of each interval
	first   time.Time     // when the first look is due
	last    time.Time     // when the latest look began; zero for none
	running bool
	hurried time.Time // a look before the next at its point is due then; zero for none
}

func newTurns(url string, every time.Duration, now time.Time) *turns {
	return &turns{point: point(url, every), first: now.Add(point(url, min(soonest, every)))}
}

// due returns when the issuer is to be looked at: soon for the first time, and later on at its point of each interval, so
// that no two looks are further apart than one interval.
func (e turns) due(every time.Duration) time.Time {
	switch {
	case e.last.IsZero():
		return e.first
	case !e.hurried.IsZero():
		return e.hurried
	}
	// Intervals are counted from 1970, so that they are the same ones after a restart.
	n := time.Duration(e.last.UnixNano())
	return time.Unix(0, int64((n-e.point)/every*every+e.point+every))
}

// schedule says when which issuer is looked at. It holds no clock.
type schedule struct {
	every   time.Duration
	issuers map[Issuer]*turns
}

func newSchedule(every time.Duration) *schedule {
	return &schedule{every: every, issuers: map[Issuer]*turns{}}
}

// set adds the issuers that are new and drops those that are not among all. A look that is running ends by itself.
func (s *schedule) set(all []Issuer, now time.Time) {
	keep := make(map[Issuer]*turns, len(all))
	for _, i := range all {
		if keep[i] = s.issuers[i]; keep[i] == nil {
			keep[i] = newTurns(i.URL, s.every, now)
		}
	}
	s.issuers = keep
}

// begin returns the issuers whose time has come, those that have waited longest first and at most n, and counts them as
// running. An issuer is not looked at twice at a time.
func (s *schedule) begin(now time.Time, n int) []Issuer {
	var ready []Issuer
	at := map[Issuer]time.Time{}
	for i, e := range s.issuers {
		if e.last.After(now) { // the clock was set back
			e.last = now
		}
		if at[i] = e.due(s.every); !e.running && !at[i].After(now) {
			ready = append(ready, i)
		}
	}
	slices.SortFunc(ready, func(a, b Issuer) int { return at[a].Compare(at[b]) })
	ready = ready[:min(n, len(ready))]
	for _, i := range ready {
		s.issuers[i].running, s.issuers[i].last, s.issuers[i].hurried = true, now, time.Time{}
	}
	return ready
}

// hurry has an issuer looked at soon.
func (s *schedule) hurry(i Issuer, now time.Time) {
	if e := s.issuers[i]; e != nil && e.hurried.IsZero() {
		e.hurried = now.Add(point(i.URL, min(soonest, s.every)))
	}
}

// end counts an issuer as looked at.
func (s *schedule) end(i Issuer) {
	if e := s.issuers[i]; e != nil {
		e.running = false
	}
}

// next returns when the next issuer is due, zero if none is waiting.
func (s *schedule) next() time.Time {
	var first time.Time
	for _, e := range s.issuers {
		if at := e.due(s.every); !e.running && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
