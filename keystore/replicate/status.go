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

// progress is how far a run has come.
type progress struct {
	status MirrorStatus
	start  lastgood.Start // but for Waited
	began  time.Time      // when this run began
	looked bool           // To has been read
	found  bool           // To held a good version before this run wrote any
	listed time.Time      // when this run first had a complete listing
	first  time.Time      // when the first complete pass of this run ended
	tried  bool           // a pass of this run has ended, successfully or not
}

// tell publishes how far the run has come. Once To is a whole copy, nothing revokes that.
func (m *Mirror) tell() {
	p := &m.run
	p.status.Failing, p.status.Held = m.reading.now || m.writing.now, len(m.to.Names())
	p.status.Refused, p.start = map[keystore.Name]lastgood.Rejection{}, lastgood.Start{AllowEmpty: m.c.AllowEmpty}
	for n, s := range m.sources {
		p.start.Count(m.to.Good(n) != nil, s.rejected)
		if s.rejected != nil && !s.rejected.Expected() {
			p.status.Refused[n] = *s.rejected
		}
	}
	p.status.Partial = p.status.Partial && m.unready(*p, time.Now()) != nil
	told := *p
	m.told.Store(&told)
}

// Status returns the status. It may be called at any time.
func (m *Mirror) Status() MirrorStatus { return m.told.Load().status }

const noPass = "no complete pass over the store yet"

// tryPatience is how long Ready waits for the first pass although there is a copy of an earlier run.
const tryPatience = 10 * time.Second

// Ready returns nil once To holds a whole copy, and from then on: a server that starts on half a copy would answer that
// issuers do not exist. The copy of an earlier run counts only after the first pass, or if that takes long, since it may
// do not have a key that signs by now. Without one, a copy of some key sets counts once all were read or refused, and
// [lastgood.StartPatience] after the first listing without those that cannot be read. An empty copy, also of an earlier run, counts only if
// AllowEmpty is set: a mistyped prefix must not replace servers that have everything.
func (m *Mirror) Ready() error { return m.unready(*m.told.Load(), time.Now()) }

// unready returns the result of Ready at a time.
func (m *Mirror) unready(p progress, now time.Time) error {
	earlier := !m.c.Earlier.Complete.IsZero() && (p.found || m.c.AllowEmpty)
	start := p.start
	start.Waited = now.Sub(p.listed)
	switch {
	case !p.status.Partial || earlier && (p.tried || now.Sub(p.began) > tryPatience):
		return nil
	case p.listed.IsZero(), p.first.IsZero() && (start.Waited < lastgood.StartPatience || start.Nothing()):
		return errors.New(noPass)
	case start.Ready():
		return nil
	case start.KeySets == 0:
		return errors.New("the store holds no key set, which may be the wrong store")
	}
	return fmt.Errorf("%d of %d key sets have no good version yet", start.Without, start.KeySets)
}
