package replicate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
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
// methods that tell of the state are safe for concurrent use: they go by what that goroutine told last.
type Mirror struct {
	c       MirrorConfig
	to      *destination
	sources map[keystore.Name]*source
	reading trouble
	writing trouble
	run     progress
	told    atomic.Pointer[progress]
}

// source is the state of a key set in From.
type source struct {
	revision keystore.Revision   // the one that was judged last; empty if there is none
	digest   keystore.Digest     // of that version
	rejected *lastgood.Rejection // why the copy is not that version; nil if it is
}

// trouble is a state that is logged with one line when it begins and one when it ends.
type trouble struct {
	now          bool
	begins, ends string
}

// NewMirror returns a Mirror that has not looked at anything yet.
func NewMirror(c MirrorConfig) *Mirror {
	m := &Mirror{c: c, sources: map[keystore.Name]*source{}}
	m.to = &destination{backend: c.To, repairs: true, copies: map[keystore.Name]stored{}}
	m.reading = trouble{begins: "key sets cannot be read from the store", ends: "key sets can be read from the store again"}
	m.writing = trouble{begins: "the copy cannot be written", ends: "the copy can be written again"}
	m.run = progress{status: MirrorStatus{Complete: c.Earlier.Complete, Partial: true}, began: time.Now()}
	m.tell()
	return m
}

// ReadCopy reads what To holds, as every pass does first.
func (m *Mirror) ReadCopy(ctx context.Context) error {
	if err := m.to.read(ctx); err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	if !m.run.looked {
		m.run.looked, m.run.found = true, len(m.to.Names()) > 0
	}
	m.tell()
	return nil
}

// Run copies until ctx is done: everything at intervals of Poll, and within a fraction of a second what the source's watch
// reports. Errors appear in the log and in Status; Run does not return for one.
func (m *Mirror) Run(ctx context.Context) {
	watcher, _ := m.c.From.(keystore.Watcher)
	ChangeFeed{Watcher: watcher, Poll: m.c.Poll, Log: m.c.Log}.Run(ctx, func(ctx context.Context, some ...keystore.Name) {
		// Before the first complete pass, of two key sets with one issuer URL the one that is reported first would get it. After a
		// failed write the copy may not be what it was.
		if len(some) == 0 || m.run.first.IsZero() || m.writing.now {
			_ = m.Pass(ctx) // logged
			return
		}
		_ = m.copy(ctx, some) // logged
		m.tell()
	})
}

// listTimeout bounds one listing, of ten thousand key sets if need be.
const listTimeout = time.Minute

// Pass copies everything once. It returns nil if the listing was complete, every listed key set was read, and each is in To
// now or was rejected.
func (m *Mirror) Pass(ctx context.Context) error {
	err := m.pass(ctx)
	m.run.tried = true
	m.tell()
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
	m.tell()
	if err := m.copy(ctx, m.changed(listed)); err != nil {
		return err
	}
	_ = m.noteTrouble(ctx, &m.reading, nil)
	m.run.status.Complete, m.run.tried = began, true
	first := m.run.first.IsZero()
	if first {
		m.run.first = time.Now()
	}
	if m.tell(); first {
		m.c.Log.Info("every key set of a complete listing has been read", zap.Int("listed", len(listed)), zap.Int("refused", len(m.Status().Refused)))
	}
	if m.c.OnPass != nil {
		err = m.c.OnPass(m.Status())
	}
	return m.noteTrouble(ctx, &m.writing, err)
}

// changed returns the key sets whose listed version has not been judged yet, may be judged differently now, or is not in
// To.
func (m *Mirror) changed(listed map[keystore.Name]keystore.Revision) []keystore.Name {
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
	if err := m.to.transfer(ctx, documents, m.judge(some)); err != nil {
		return err
	}
	var unread, unwritten []error
	for _, doc := range documents {
		m.note(doc)
		switch {
		case doc.err != nil && doc.Rejected == nil:
			unwritten = append(unwritten, doc.err)
		case doc.Rejected.Is(lastgood.ReasonUnreadable) && doc.Rejected.Waits():
			unread = append(unread, fmt.Errorf("read key set %q: %w", doc.Name, doc.err))
		}
	}
	return errors.Join(m.troubleWithSome(ctx, &m.reading, unread), m.troubleWithSome(ctx, &m.writing, unwritten))
}

// judge returns the Judge of a batch.
func (m *Mirror) judge(batch []keystore.Name) lastgood.Judge {
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
	if !m.run.listed.IsZero() {
		j.Waited = time.Since(m.run.listed)
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
	was := t.now
	t.now = err != nil
	switch {
	case t.now && !was:
		stays := "what was copied before stays"
		if len(m.to.Names()) == 0 {
			stays = "nothing was copied before"
		}
		m.c.Log.Warn(t.begins+"; "+stays, zap.Error(err))
	case was && !t.now:
		m.c.Log.Info(t.ends)
	}
	return err
}

// note records the result of copying one key set, and logs a change.
func (m *Mirror) note(doc *document) {
	was := m.sources[doc.Name]
	switch {
	case doc.Rejected.Is(lastgood.ReasonMissing):
		m.noteMissing(doc.Name)
	case doc.Rejected == nil && doc.err != nil: // judge it again
		if was != nil {
			was.revision = ""
		}
	default:
		now := &source{revision: doc.revision, rejected: doc.Rejected}
		if doc.Version != nil {
			now.digest = doc.Version.Digest()
		}
		m.sources[doc.Name] = now
		m.logNews(doc, was)
	}
}

func (m *Mirror) logNews(doc *document, was *source) {
	var before *lastgood.Rejection
	if was != nil {
		before = was.rejected
	}
	name := zap.String("key_set", string(doc.Name))
	switch {
	case !doc.Rejected.IsNew(before) && doc.Rejected != nil:
	case doc.Rejected.Expected():
		m.c.Log.Info("key set is not copied, as nobody reads its documents", name, zap.String("message", doc.Rejected.Message))
	case doc.Rejected != nil:
		m.c.Log.Warn("key set refused; the last good version, if any, stays", name,
			zap.String("reason", string(doc.Rejected.Reason)), zap.String("message", doc.Rejected.Message), zap.Int64("kept_generation", doc.was))
	case !doc.same:
		level := zap.InfoLevel
		if m.run.first.IsZero() { // one line counts all that are copied at the start
			level = zap.DebugLevel
		}
		m.c.Log.Log(level, "key set copied", name, zap.Int64("generation", doc.generation()), zap.Int64("previous_generation", doc.was))
	case before != nil:
		m.c.Log.Info("key set is as it was copied again", name, zap.Int64("generation", doc.generation()))
	}
}

// noteAllMissing records the key sets that a complete listing does not have.
func (m *Mirror) noteAllMissing(listed map[keystore.Name]keystore.Revision) {
	if m.run.listed.IsZero() {
		m.run.listed = time.Now()
	}
	known := slices.Concat(m.to.Names(), slices.Sorted(maps.Keys(m.sources)))
	for _, n := range known {
		if _, ok := listed[n]; !ok {
			m.noteMissing(n)
		}
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
