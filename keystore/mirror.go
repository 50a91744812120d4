package keystore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// MirrorConfig is what a Mirror needs. From, To, Poll and Log are required.
type MirrorConfig struct {
	From     Reader
	To       *Store
	Admit    func(KeySet) *Rejection  // what the reader of To would refuse for reasons of its own
	Beat     func(MirrorStatus) error // called after every complete pass
	Complete time.Time                // when an earlier run began its last complete pass; zero when there was none
	Empty    bool                     // an empty store is a whole one: there is no issuer yet
	Marks    map[Name]Mark            // of an earlier run on the same From
	Poll     time.Duration            // how often everything is listed, beside the watch
	Log      *zap.Logger
}

// Mirror copies key sets from one store into another: whole ones only, none that a reader must reject, and it removes
// none. So the copy is at every moment the last good state, whatever happens to the source.
type Mirror struct {
	c      MirrorConfig
	ledger *ledger // of To

	mu       sync.Mutex // guards what follows; held while neither store is at work
	sources  map[Name]*source
	began    time.Time // when this run was
	tried    bool      // a pass of this run has ended, whichever way
	complete time.Time // when the listing of the last complete pass was begun
	first    time.Time // when the first complete pass of this run had been made
	ready    bool      // To held a whole copy once, at the end of a pass
	reading  trouble
	writing  trouble
}

// source is what is known of a key set in From.
type source struct {
	revision Revision          // that was judged last; empty when there is none
	digest   [sha256.Size]byte // of that version
	rejected *Rejection        // why the copy is not that version; nil when it is
}

// Mark names a version in From that was copied, so that the next run has not to read it again: ten thousand readings
// would hold up what changed during an outage. What To holds is compared with it.
type Mark string

func newMark(s *source) Mark {
	return Mark(hex.EncodeToString(s.digest[:]) + " " + string(s.revision))
}

func (m Mark) parse() (rev Revision, digest [sha256.Size]byte, ok bool) {
	sum, revision, ok := strings.Cut(string(m), " ")
	data, err := hex.DecodeString(sum)
	if !ok || err != nil || len(data) != sha256.Size || revision == "" {
		return "", digest, false
	}
	return Revision(revision), [sha256.Size]byte(data), true
}

// Marks returns the marks for the next run.
func (m *Mirror) Marks() map[Name]Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	marks := map[Name]Mark{}
	for n, s := range m.sources {
		if s.rejected == nil && s.revision != "" {
			marks[n] = newMark(s)
		}
	}
	return marks
}

// trouble is a state of which one line tells that it began and one that it ended.
type trouble struct {
	is           bool
	begins, ends string
}

// NewMirror returns a Mirror that has not looked at anything yet.
func NewMirror(c MirrorConfig) *Mirror {
	m := &Mirror{c: c, ledger: newLedger(), sources: map[Name]*source{}, began: time.Now(), complete: c.Complete}
	m.ledger.repairs = true
	for n, mark := range c.Marks {
		if rev, digest, ok := mark.parse(); ok {
			m.sources[n] = &source{revision: rev, digest: digest}
		}
	}
	m.reading.begins = "key sets cannot be read from the store; what was copied before stays"
	m.reading.ends = "key sets can be read from the store again"
	m.writing.begins = "the copy cannot be written; what was copied before stays"
	m.writing.ends = "the copy can be written again"
	return m
}

// ReadCopy reads what To holds, as every pass does first.
func (m *Mirror) ReadCopy(ctx context.Context) error {
	if err := m.ledger.read(ctx, m.c.To); err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	return nil
}

// Run copies until ctx is done: everything every Poll, and what the source's watch reports within a fraction of a
// second. Trouble is told by log and Status and is never a reason to return.
func (m *Mirror) Run(ctx context.Context) {
	Feed{Source: m.c.From, Poll: m.c.Poll, Log: m.c.Log}.Run(ctx, func(ctx context.Context, some ...Name) {
		if len(some) == 0 || m.behind() {
			_ = m.Pass(ctx) // noted
			return
		}
		_ = m.copy(ctx, some) // noted
		m.noteReady(time.Now())
	})
}

// behind tells that a look at some key sets would not do: of two with one issuer URL, the one reported first would get
// it, or the copy is not what it was.
func (m *Mirror) behind() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.first.IsZero() || m.writing.is
}

// listPatience bounds one listing, of ten thousand key sets if need be.
const listPatience = time.Minute

// Pass reads everything once. It returns nil when the listing was complete and every key set in it was read, and is in
// To now or must not be.
func (m *Mirror) Pass(ctx context.Context) error {
	err := m.pass(ctx)
	m.mu.Lock()
	m.tried = true
	m.mu.Unlock()
	m.noteReady(time.Now())
	return err
}

func (m *Mirror) pass(ctx context.Context) error {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, 2*listPatience)
	defer cancel()
	if err := m.ReadCopy(limited); err != nil {
		return m.note(ctx, &m.writing, err)
	}
	listed, err := m.c.From.List(limited)
	if err != nil {
		return m.note(ctx, &m.reading, err)
	}
	if err := m.copy(ctx, m.changed(listed)); err != nil {
		return err
	}
	m.noteComplete(began, listed)
	_ = m.note(ctx, &m.reading, nil)
	if m.c.Beat != nil {
		err = m.c.Beat(m.Status())
	}
	return m.note(ctx, &m.writing, err)
}

// changed returns the key sets whose listed version was not judged, or may be judged otherwise now, or is not what To
// holds.
func (m *Mirror) changed(listed map[Name]Revision) []Name {
	m.mu.Lock()
	defer m.mu.Unlock()
	var changed []Name
	for n, rev := range listed {
		was := m.sources[n]
		if was == nil || was.revision != rev || was.rejected.passes() || was.rejected == nil && !m.ledger.holds(n, was.digest) {
			changed = append(changed, n)
		}
	}
	slices.Sort(changed)
	return changed
}

// passes tells that a rejection may end without a change of the document.
func (r *Rejection) passes() bool {
	return r != nil && (r.Reason == ReasonURLConflict || r.Reason == ReasonUnreadable)
}

// copy reads key sets and writes those that may be written.
func (m *Mirror) copy(ctx context.Context, some []Name) error {
	all, err := loadAll(ctx, m.c.From, some)
	if err != nil {
		return err
	}
	arrivals := make([]*arrival, len(all))
	for i, one := range all {
		a := one.arrival()
		if a.rejected == nil && m.c.Admit != nil {
			a.rejected = m.c.Admit(a.set)
		}
		arrivals[i] = a
	}
	if err := m.ledger.transfer(ctx, m.c.To, arrivals); err != nil {
		return err
	}
	var unread, unwritten []error
	for i, a := range arrivals {
		m.settle(a, all[i].revision)
		switch {
		case a.err != nil:
			unwritten = append(unwritten, a.err)
		case a.rejected != nil && a.rejected.Reason == ReasonUnreadable:
			unread = append(unread, fmt.Errorf("read key set %q: %w", a.name, all[i].err))
		}
	}
	return errors.Join(m.noteSome(ctx, &m.reading, unread), m.noteSome(ctx, &m.writing, unwritten))
}

// noteSome notes the trouble with some key sets, by its first line: the others' will be the same.
func (m *Mirror) noteSome(ctx context.Context, t *trouble, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return m.note(ctx, t, fmt.Errorf("%w (%d key sets in all)", errs[0], len(errs)))
}

// note keeps a state of trouble, logs its begin and end, and returns err, or that of ctx: a stop says nothing about a
// store.
func (m *Mirror) note(ctx context.Context, t *trouble, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was := t.is
	t.is = err != nil
	switch {
	case t.is && !was:
		m.c.Log.Warn(t.begins, zap.Error(err))
	case was && !t.is:
		m.c.Log.Info(t.ends)
	}
	return err
}

// settle takes over what became of one key set, and logs what is new.
func (m *Mirror) settle(a *arrival, rev Revision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.sources[a.name]
	if a.err != nil { // it is judged again
		if was != nil {
			was.revision = ""
		}
		return
	}
	if a.rejected != nil && a.rejected.Reason == ReasonMissing {
		m.noteMissing(a.name)
		return
	}
	m.sources[a.name] = &source{rev, a.summary.digest, a.rejected}
	m.logChange(a, was)
}

func (m *Mirror) logChange(a *arrival, was *source) {
	name := zap.String("key_set", string(a.name))
	wasRejected := was != nil && was.rejected != nil
	switch {
	case a.rejected != nil && wasRejected && *was.rejected == *a.rejected: // told
	case a.rejected != nil:
		m.c.Log.Warn("key set refused; the last good version, if any, stays", name,
			zap.String("reason", string(a.rejected.Reason)), zap.String("message", a.rejected.Message), zap.Int64("kept_generation", a.was))
	case !a.same:
		level := zap.InfoLevel
		if m.first.IsZero() { // one line tells of all that are copied at the start
			level = zap.DebugLevel
		}
		m.c.Log.Log(level, "key set copied", name, zap.Int64("generation", a.summary.generation), zap.Int64("previous_generation", a.was))
	case wasRejected:
		m.c.Log.Info("key set is as it was copied again", name, zap.Int64("generation", a.summary.generation))
	}
}

// noteComplete draws the conclusion of a complete listing: what is missing.
func (m *Mirror) noteComplete(began time.Time, listed map[Name]Revision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := range m.ledger.goodVersions() {
		if _, ok := listed[n]; !ok {
			m.noteMissing(n)
		}
	}
	for n := range m.sources {
		if _, ok := listed[n]; !ok {
			m.noteMissing(n)
		}
	}
	m.complete = began
	if m.first.IsZero() {
		m.first = time.Now()
		m.c.Log.Info("every key set of a complete listing has been read", zap.Int("listed", len(listed)), zap.Int("refused", m.refused()))
	}
}

// noteMissing: absence is never deletion. What was never good is forgotten, and a tombstone may leave.
func (m *Mirror) noteMissing(n Name) {
	good := m.ledger.good(n)
	was := m.sources[n]
	switch {
	case good == nil:
		delete(m.sources, n)
	case good.withdrawn:
		m.sources[n] = &source{}
	case was == nil || was.rejected == nil || was.rejected.Reason != ReasonMissing:
		m.sources[n] = &source{rejected: Reject(ReasonMissing, "the store does not hold it")}
		m.c.Log.Warn("key set is missing in the store; its last good version stays",
			zap.String("key_set", string(n)), zap.Int64("kept_generation", good.generation))
	}
}

func (m *Mirror) refused() (n int) {
	for _, s := range m.sources {
		if s.rejected != nil {
			n++
		}
	}
	return n
}

// MirrorStatus is what a Mirror knows, for operators.
type MirrorStatus struct {
	Complete time.Time      // when the listing of the last complete pass was begun, in this run or an earlier one; zero for never
	Failing  bool           // From cannot be read or To not be written
	Held     int            // key sets of which To has a good version
	Refused  map[Reason]int // key sets whose version in From is not the one in To
}

// Status may be called at any time.
func (m *Mirror) Status() MirrorStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := MirrorStatus{Complete: m.complete, Failing: m.reading.is || m.writing.is, Refused: map[Reason]int{}}
	for range m.ledger.goodVersions() {
		st.Held++
	}
	for _, s := range m.sources {
		if s.rejected != nil {
			st.Refused[s.rejected.Reason]++
		}
	}
	return st
}

// startPatience is how long a key set without a good version keeps a copy from counting as filled. Without an end, one
// broken document would keep every replacement of a dying replica out of service.
const startPatience = 5 * time.Minute

// tryPatience is how long a copy of an earlier run waits for the first pass of this one.
const tryPatience = 10 * time.Second

// Ready is nil once To holds a whole copy, and stays nil: a server beside it that begins on half a copy would tell
// relying parties that issuers do not exist. A copy of an earlier run counts when the store cannot be read now: it may
// be a day old, and lack a key that may sign. The first copy of an empty store does not count unless the configuration
// says so: a mistyped prefix must not replace servers that have everything.
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
	case len(m.sources) == 0 && !m.c.Empty:
		return errors.New("the store holds no key set, which may be the wrong store")
	}
	unheld := 0
	for n := range m.sources {
		if m.ledger.good(n) == nil {
			unheld++
		}
	}
	switch {
	case unheld == 0:
		return nil
	case unheld == len(m.sources) && !m.c.Empty:
		return fmt.Errorf("none of %d key sets has a good version", unheld)
	case now.Sub(m.first) < startPatience:
		return fmt.Errorf("%d of %d key sets have no good version yet", unheld, len(m.sources))
	}
	return nil
}

// Refusals returns why the version in From of a key set is not the one in To, for each of which it is not.
func (m *Mirror) Refusals() map[Name]Rejection {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[Name]Rejection{}
	for n, s := range m.sources {
		if s.rejected != nil {
			all[n] = *s.rejected
		}
	}
	return all
}

// Has tells whether a last good version in To has that issuer URL.
func (m *Mirror) Has(issuer string) bool {
	_, has := m.ledger.owner(issuer)
	return has
}
