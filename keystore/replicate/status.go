package replicate

import (
	"errors"
	"fmt"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// MirrorStatus is the status of a Mirror, for operators.
type MirrorStatus struct {
	Complete time.Time                            // when the last complete pass began, in this run or an earlier one; zero for never
	Partial  bool                                 // the mirror has not been ready yet
	Failing  bool                                 // From cannot be read or To cannot be written
	Held     int                                  // key sets with a good version in To
	Refused  map[keystore.Name]lastgood.Rejection // key sets whose version in From is not the one in To
}

// Status returns the status. It may be called at any time.
func (m *Mirror) Status() MirrorStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return MirrorStatus{
		Complete: m.complete, Partial: !m.ready, Failing: m.reading.now || m.writing.now,
		Held: len(m.to.goodNames()), Refused: m.refused(),
	}
}

// refused returns the key sets whose version in From is not the one in To. The caller holds mu.
func (m *Mirror) refused() map[keystore.Name]lastgood.Rejection {
	all := map[keystore.Name]lastgood.Rejection{}
	for n, s := range m.sources {
		if s.rejected != nil && !s.rejected.Expected() {
			all[n] = *s.rejected
		}
	}
	return all
}

const noPass = "no complete pass over the store yet"

// tryPatience is how long Ready waits for the first pass although there is a copy of an earlier run.
const tryPatience = 10 * time.Second

// Ready returns nil once To holds a whole copy, and from then on: a server that starts on half a copy would answer that
// issuers do not exist. The copy of an earlier run counts only after the first pass, or if that takes long, since it may
// do not have a key that signs by now. Without one, a copy of some key sets counts once all were read or refused, and
// [lastgood.StartPatience] after the first listing without those that cannot be read. An empty copy, also of an earlier run, counts only if
// AllowEmpty is set: a mistyped prefix must not replace servers that have everything.
func (m *Mirror) Ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unready(time.Now())
}

// noteReady records at the end of a pass whether To is a whole copy. Later passes never revoke that.
func (m *Mirror) noteReady(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ready = m.ready || m.unready(now) == nil
}

// unready returns the result of Ready at a time. It changes no state.
func (m *Mirror) unready(now time.Time) error {
	earlier := !m.c.Earlier.Complete.IsZero() && (m.found || m.c.AllowEmpty)
	switch {
	case m.ready || earlier && (m.tried || now.Sub(m.began) > tryPatience):
		return nil
	case m.listed.IsZero():
		return errors.New(noPass)
	}
	start := lastgood.Start{Waited: now.Sub(m.listed), AllowEmpty: m.c.AllowEmpty}
	for n, s := range m.sources {
		start.Count(m.to.Good(n) != nil, s.rejected)
	}
	switch {
	case m.first.IsZero() && (start.Waited < lastgood.StartPatience || start.Nothing()):
		return errors.New(noPass)
	case start.Ready():
		return nil
	case start.KeySets == 0:
		return errors.New("the store holds no key set, which may be the wrong store")
	}
	return fmt.Errorf("%d of %d key sets have no good version yet", start.Without, start.KeySets)
}
