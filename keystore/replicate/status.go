package replicate

import (
	"errors"
	"fmt"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// MirrorStatus is what a Mirror knows, for operators.
type MirrorStatus struct {
	Complete time.Time               // when the listing of the last complete pass was begun, in this run or an earlier one; zero for never
	Failing  bool                    // From cannot be read or To not be written
	Held     int                     // key sets of which To has a good version
	Refused  map[keystore.Reason]int // key sets whose version in From is not the one in To
}

// Status may be called at any time.
func (m *Mirror) Status() MirrorStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := MirrorStatus{Complete: m.complete, Failing: m.reading.now || m.writing.now, Held: len(m.to.goodNames()), Refused: map[keystore.Reason]int{}}
	for _, s := range m.sources {
		if s.rejected != nil {
			st.Refused[s.rejected.Reason]++
		}
	}
	return st
}

// tryPatience is how long a copy of an earlier run waits for the first pass of this one.
const tryPatience = 10 * time.Second

// Ready is nil once To holds a whole copy, and stays nil: a server beside it that begins on half a copy would tell
// relying parties that issuers do not exist. A copy of an earlier run counts when the store cannot be read now: it may
// be a day old, and lack a key that may sign. The first copy of an empty store does not count unless AllowEmpty
// is set: a mistyped prefix must not replace servers that have everything.
func (m *Mirror) Ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unready(time.Now())
}

// noteReady keeps what a pass has reached: what comes later never withdraws it.
func (m *Mirror) noteReady(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready = m.ready || m.unready(now) == nil
}

// unready is Ready at a time. It changes nothing, so that it does not matter who asks when.
func (m *Mirror) unready(now time.Time) error {
	earlier := !m.c.Complete.IsZero()
	switch {
	case m.ready || earlier && (m.tried || now.Sub(m.began) > tryPatience):
		return nil
	case m.first.IsZero():
		return errors.New("no complete pass over the store yet")
	}
	start := lastgood.Start{KeySets: len(m.sources), Waited: now.Sub(m.first), AllowEmpty: m.c.AllowEmpty}
	for n := range m.sources {
		if m.to.Good(n) == nil {
			start.Without++
		}
	}
	switch {
	case start.Ready():
		return nil
	case start.KeySets == 0:
		return errors.New("the store holds no key set, which may be the wrong store")
	case start.Nothing():
		return fmt.Errorf("none of %d key sets has a good version", start.KeySets)
	}
	return fmt.Errorf("%d of %d key sets have no good version yet", start.Without, start.KeySets)
}

func (m *Mirror) refused() (n int) {
	for _, s := range m.sources {
		if s.rejected != nil {
			n++
		}
	}
	return n
}

// Refusals returns why the version in From of a key set is not the one in To, for each of which it is not.
func (m *Mirror) Refusals() map[keystore.Name]lastgood.Rejection {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[keystore.Name]lastgood.Rejection{}
	for n, s := range m.sources {
		if s.rejected != nil {
			all[n] = *s.rejected
		}
	}
	return all
}

// Has reports whether a last good version in To has an issuer URL that requests reach as they reach this one.
func (m *Mirror) Has(issuer string) bool {
	_, has := m.to.Owner(lastgood.RouteOf(issuer))
	return has
}
