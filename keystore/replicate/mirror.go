package replicate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// MirrorConfig is the configuration of a Mirror. From, To, Poll and Log are required.
type MirrorConfig struct {
	From       keystore.Backend
	To         keystore.Backend
	Admit      func(keystore.KeySet) *lastgood.Rejection // refuses key sets that the reader of To would refuse by its configuration
	Permitted  func(keystore.Name, keystore.Route) bool  // by the same configuration: see lastgood.Judge; nil = every one is
	OnPass     func(MirrorStatus) error                  // called after every complete pass
	Earlier    Heartbeat                                 // of an earlier run; the zero Heartbeat if there was none
	AllowEmpty bool                                      // From may be empty: there is no issuer yet
	Poll       time.Duration                             // between two complete passes, beside the watch
	Log        *zap.Logger
}

// Mirror keeps a copy of a store, byte for byte and by the rules of [Copy]: it writes none that a reader must reject, and
// removes none. So the copy is always the last good state, whatever happens to the source. One goroutine reads and copies. The
// methods that tell of the state are safe for concurrent use.
type Mirror struct {
	c  MirrorConfig
	to *destination

	mu       sync.Mutex // guards what follows; held while neither store is at work
	sources  map[keystore.Name]*source
	began    time.Time // when this run began
	found    bool      // To held a good version before this run wrote any
	looked   bool      // To has been read
	tried    bool      // a pass of this run has ended, successfully or not
	complete time.Time // when the last complete pass began
	listed   time.Time // when this run first had a complete listing
	first    time.Time // when the first complete pass of this run ended
	ready    bool      // To held a whole copy at the end of some pass
	reading  trouble
	writing  trouble
}

// source is the state of a key set in From.
type source struct {
	revision keystore.Revision   // the one that was judged last; empty if there is none
	digest   [sha256.Size]byte   // of that version
	rejected *lastgood.Rejection // why the copy is not that version; nil if it is
}

// trouble is a state that is logged with one line when it begins and one when it ends.
type trouble struct {
	now          bool
	begins, ends string
}

// NewMirror returns a Mirror that has not looked at anything yet.
func NewMirror(c MirrorConfig) *Mirror {
	m := &Mirror{c: c, to: newDestination(c.To), sources: map[keystore.Name]*source{}, began: time.Now(), complete: c.Earlier.Complete}
	m.to.repairs = true
	m.reading = trouble{begins: "key sets cannot be read from the store", ends: "key sets can be read from the store again"}
	m.writing = trouble{begins: "the copy cannot be written", ends: "the copy can be written again"}
	return m
}

// ReadCopy reads what To holds, as every pass does first.
func (m *Mirror) ReadCopy(ctx context.Context) error {
	if err := m.to.read(ctx); err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.looked {
		m.looked, m.found = true, len(m.to.goodNames()) > 0
	}
	return nil
}

// Run copies until ctx is done: everything at intervals of Poll, and within a fraction of a second what the source's watch
// reports. Errors appear in the log and in Status; Run does not return for one.
func (m *Mirror) Run(ctx context.Context) {
	watcher, _ := m.c.From.(keystore.Watcher)
	ChangeFeed{Watcher: watcher, Poll: m.c.Poll, Log: m.c.Log}.Run(ctx, func(ctx context.Context, some ...keystore.Name) {
		if len(some) == 0 || m.behind() {
			_ = m.Pass(ctx) // logged
			return
		}
		_ = m.copy(ctx, some) // logged
		m.noteReady(time.Now())
	})
}

// behind reports whether a complete pass is needed. Before the first one, of two key sets with one issuer URL the one that
// is reported first would get it. After a failed write the copy may not be what it was.
func (m *Mirror) behind() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.first.IsZero() || m.writing.now
}

// listTimeout bounds one listing, of ten thousand key sets if need be.
const listTimeout = time.Minute

// Pass copies everything once. It returns nil if the listing was complete, every listed key set was read, and each is in To
// now or was rejected.
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
	limited, cancel := context.WithTimeout(ctx, 2*listTimeout)
	defer cancel()
	if err := m.ReadCopy(limited); err != nil {
		return m.noteTrouble(ctx, &m.writing, err)
	}
	listed, err := m.c.From.List(limited)
	if err != nil {
		return m.noteTrouble(ctx, &m.reading, err)
	}
	m.noteAllMissing(listed)
	if err := m.copy(ctx, m.changed(listed)); err != nil {
		return err
	}
	m.noteComplete(began, len(listed))
	m.noteReady(time.Now())
	_ = m.noteTrouble(ctx, &m.reading, nil)
	if m.c.OnPass != nil {
		err = m.c.OnPass(m.Status())
	}
	return m.noteTrouble(ctx, &m.writing, err)
}

// changed returns the key sets whose listed version has not been judged yet, may be judged differently now, or is not in
// To.
func (m *Mirror) changed(listed map[keystore.Name]keystore.Revision) []keystore.Name {
	m.mu.Lock()
	defer m.mu.Unlock()
	var changed []keystore.Name
	for n, rev := range listed {
		was := m.sources[n]
		if was == nil || was.revision != rev || was.rejected.Transient() || was.rejected == nil && !m.to.holds(n, was.digest) {
			changed = append(changed, n)
		}
	}
	slices.Sort(changed)
	return changed
}

// copy reads key sets and writes those that may be written.
func (m *Mirror) copy(ctx context.Context, some []keystore.Name) error {
	documents, err := loadAll(ctx, m.c.From, some, m.c.Admit)
	if err != nil {
		return err
	}
	all := m.to.candidates(documents)
	if err := m.to.transfer(ctx, all, m.judge(some)); err != nil {
		return err
	}
	var unread, unwritten []error
	for _, c := range all {
		m.note(c)
		switch {
		case c.err != nil:
			unwritten = append(unwritten, c.err)
		case c.Rejected.Is(lastgood.ReasonUnreadable) && c.Rejected.Waits():
			unread = append(unread, fmt.Errorf("read key set %q: %w", c.Name, c.document.err))
		}
	}
	return errors.Join(m.troubleWithSome(ctx, &m.reading, unread), m.troubleWithSome(ctx, &m.writing, unwritten))
}

// judge returns the Judge of a batch.
func (m *Mirror) judge(batch []keystore.Name) lastgood.Judge {
	m.mu.Lock()
	defer m.mu.Unlock()
	rejected := map[keystore.Name]*lastgood.Rejection{}
	for n, s := range m.sources {
		if s.rejected != nil {
			rejected[n] = s.rejected
		}
	}
	for _, n := range batch {
		delete(rejected, n)
	}
	j := lastgood.Judge{Permitted: m.c.Permitted, Rejected: maps.All(rejected)}
	if !m.listed.IsZero() {
		j.Waited = time.Since(m.listed)
	}
	return j
}

// troubleWithSome notes trouble with some key sets by their first error, as the others are likely to be the same.
func (m *Mirror) troubleWithSome(ctx context.Context, t *trouble, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return m.noteTrouble(ctx, t, fmt.Errorf("%w (%d key sets in all)", errs[0], len(errs)))
}

// noteTrouble records whether there is trouble, logs its beginning and end, and returns err. If ctx is done it only returns
// the error of ctx, since a stop is not the store's fault.
func (m *Mirror) noteTrouble(ctx context.Context, t *trouble, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	was := t.now
	t.now = err != nil
	switch {
	case t.now && !was:
		stays := "what was copied before stays"
		if len(m.to.goodNames()) == 0 {
			stays = "nothing was copied before"
		}
		m.c.Log.Warn(t.begins+"; "+stays, zap.Error(err))
	case was && !t.now:
		m.c.Log.Info(t.ends)
	}
	return err
}

// note records the result of copying one key set, and logs a change.
func (m *Mirror) note(c *candidate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.sources[c.Name]
	switch {
	case c.err != nil: // judge it again
		if was != nil {
			was.revision = ""
		}
	case c.Rejected.Is(lastgood.ReasonMissing):
		m.noteMissing(c.Name)
	default:
		now := &source{revision: c.document.revision, rejected: c.Rejected}
		if c.Version != nil {
			now.digest = c.Version.Digest()
		}
		m.sources[c.Name] = now
		m.logNews(c, was)
	}
}

func (m *Mirror) logNews(c *candidate, was *source) {
	var before *lastgood.Rejection
	if was != nil {
		before = was.rejected
	}
	name := zap.String("key_set", string(c.Name))
	switch {
	case !c.Rejected.IsNew(before) && c.Rejected != nil:
	case c.Rejected.Expected():
		m.c.Log.Info("key set is not copied, as nobody reads its documents", name, zap.String("message", c.Rejected.Message))
	case c.Rejected != nil:
		m.c.Log.Warn("key set refused; the last good version, if any, stays", name,
			zap.String("reason", string(c.Rejected.Reason)), zap.String("message", c.Rejected.Message), zap.Int64("kept_generation", c.was))
	case !c.same:
		level := zap.InfoLevel
		if m.first.IsZero() { // one line counts all that are copied at the start
			level = zap.DebugLevel
		}
		m.c.Log.Log(level, "key set copied", name, zap.Int64("generation", c.generation()), zap.Int64("previous_generation", c.was))
	case before != nil:
		m.c.Log.Info("key set is as it was copied again", name, zap.Int64("generation", c.generation()))
	}
}

// noteAllMissing records the key sets that a complete listing does not have.
func (m *Mirror) noteAllMissing(listed map[keystore.Name]keystore.Revision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listed.IsZero() {
		m.listed = time.Now()
	}
	known := slices.Concat(m.to.goodNames(), slices.Sorted(maps.Keys(m.sources)))
	for _, n := range known {
		if _, ok := listed[n]; !ok {
			m.noteMissing(n)
		}
	}
}

// noteComplete records a complete pass, with the length of its listing.
func (m *Mirror) noteComplete(began time.Time, listed int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.complete, m.tried = began, true
	if m.first.IsZero() {
		m.first = time.Now()
		m.c.Log.Info("every key set of a complete listing has been read", zap.Int("listed", listed), zap.Int("refused", len(m.refused())))
	}
}

func (m *Mirror) noteMissing(n keystore.Name) {
	good, was := m.to.Good(n), m.sources[n]
	missing := lastgood.Missing(good)
	switch {
	case good == nil:
		delete(m.sources, n)
	case missing == nil: // a tombstone
		m.sources[n] = &source{}
	case was == nil || !was.rejected.Is(lastgood.ReasonMissing):
		m.sources[n] = &source{rejected: missing}
		m.c.Log.Warn("key set is missing in the store; its last good version stays",
			zap.String("key_set", string(n)), zap.Int64("kept_generation", good.Generation()))
	}
}
