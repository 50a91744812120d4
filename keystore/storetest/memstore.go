package storetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/keypost/keypost/keystore"
)

// Operations of a store, as a [Fault] sees them.
const (
	OpList    = "list"
	OpLoad    = "load"
	OpReplace = "replace"
)

// Op is one call of a store.
type Op struct {
	Kind string          // OpList, OpLoad or OpReplace
	Name keystore.Name   // empty for OpList
	Set  keystore.KeySet // what OpReplace wants to write
}

// Fault decides about one call: err is what the caller gets, and apply whether a Replace takes effect all the same.
// So (false, err) is "failed and not persisted" and (true, err) "failed but persisted". A Fault may also wait, until
// the context is done at most. It is called without locks and may use the store.
type Fault func(ctx context.Context, op Op) (apply bool, err error)

// MemStore is a store in memory for tests of what uses a store. It fails the test when a write breaks what holds for
// every change of a key set: the generation grows, what is gone stays gone, and no key leaves without a line in gone.
// It implements [keystore.Store] and [keystore.Watcher].
type MemStore struct {
	t        testing.TB
	mu       sync.Mutex // guards the rest
	docs     map[keystore.Name]memDocument
	writes   int
	fault    Fault
	watchers map[*func(...keystore.Name)]struct{}
}

type memDocument struct {
	data     []byte
	revision keystore.Revision
}

var (
	_ keystore.Store   = (*MemStore)(nil)
	_ keystore.Watcher = (*MemStore)(nil)
)

// NewMemStore returns an empty store.
func NewMemStore(t testing.TB) *MemStore {
	return &MemStore{t: t, docs: map[keystore.Name]memDocument{}, watchers: map[*func(...keystore.Name)]struct{}{}}
}

// Inject makes f decide about every call from now on; nil ends it.
func (m *MemStore) Inject(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// Put stores any bytes under n, as somebody with an editor or an old backup would.
func (m *MemStore) Put(n keystore.Name, data []byte) keystore.Revision {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.put(n, data)
}

// Delete takes n away, which nobody is allowed to do and somebody will.
func (m *MemStore) Delete(n keystore.Name) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.docs, n)
	m.notify(n)
}

// Writes counts the writes that took effect.
func (m *MemStore) Writes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}

func (m *MemStore) put(n keystore.Name, data []byte) keystore.Revision {
	m.writes++
	d := memDocument{data: bytes.Clone(data), revision: keystore.Revision(fmt.Sprintf("r%d", m.writes))}
	m.docs[n] = d
	m.notify(n)
	return d.revision
}

func (m *MemStore) notify(n keystore.Name) {
	for w := range m.watchers {
		go (*w)(n)
	}
}

func (m *MemStore) decide(ctx context.Context, op Op) (apply bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	m.mu.Lock()
	fault := m.fault
	m.mu.Unlock()
	if fault == nil {
		return true, nil
	}
	apply, err = fault(ctx, op)
	if !apply && err == nil {
		m.t.Errorf("storetest: the injected fault dropped a %s and reported success; no store may do that", op.Kind)
	}
	return apply, err
}

// List implements [keystore.Reader].
func (m *MemStore) List(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	if _, err := m.decide(ctx, Op{Kind: OpList}); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[keystore.Name]keystore.Revision, len(m.docs))
	for n, d := range m.docs {
		all[n] = d.revision
	}
	return all, nil
}

// Load implements [keystore.Reader].
func (m *MemStore) Load(ctx context.Context, n keystore.Name) (keystore.KeySet, keystore.Revision, error) {
	if _, err := m.decide(ctx, Op{Kind: OpLoad, Name: n}); err != nil {
		return keystore.KeySet{}, "", err
	}
	m.mu.Lock()
	d, ok := m.docs[n]
	m.mu.Unlock()
	if !ok {
		return keystore.KeySet{}, "", fmt.Errorf("%w in memory", keystore.ErrNotFound)
	}
	s, err := keystore.Parse(n, d.data)
	return s, d.revision, err
}

// Replace implements [keystore.Store].
func (m *MemStore) Replace(ctx context.Context, n keystore.Name, old keystore.Revision, s keystore.KeySet) (keystore.Revision, error) {
	if n != s.Name() {
		return "", fmt.Errorf("it is named %q", s.Name())
	}
	data, err := keystore.Encode(s)
	if err != nil {
		return "", err
	}
	apply, fault := m.decide(ctx, Op{Kind: OpReplace, Name: n, Set: s})
	if !apply {
		return "", fault
	}
	rev, err := m.swap(n, old, data)
	if err == nil {
		err = fault
	}
	if err != nil {
		return "", err
	}
	return rev, nil
}

func (m *MemStore) swap(n keystore.Name, old keystore.Revision, data []byte) (keystore.Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := m.docs[n] // the zero document has the revision of absence
	if stored.revision != old {
		return "", fmt.Errorf("%w: its revision is %q, not %q", keystore.ErrConflict, stored.revision, old)
	}
	m.checkChange(n, stored.data, data)
	return m.put(n, data), nil
}

// checkChange holds every change against what no change may do, unless the old document was none.
func (m *MemStore) checkChange(n keystore.Name, before, after []byte) {
	was, err := keystore.Parse(n, before)
	if err != nil {
		return
	}
	is, err := keystore.Parse(n, after)
	if err != nil {
		m.t.Errorf("storetest: key set %q: what was written does not parse: %v", n, err)
		return
	}
	for _, complaint := range Regressions(was, is) {
		m.t.Errorf("storetest: key set %q: %s", n, complaint)
	}
}

// Regressions says what a change from was to is did that no change may do.
func Regressions(was, is keystore.KeySet) []string {
	var bad []string
	if !is.MayReplace(was) {
		bad = append(bad, fmt.Sprintf("the generation went from %d to %d", was.Generation(), is.Generation()))
	}
	gone := is.Gone()
	for _, g := range was.Gone() {
		if !slices.Contains(gone, g) {
			bad = append(bad, fmt.Sprintf("the line of %s in gone was lost or changed", g.ID))
		}
	}
	for _, k := range was.Keys() {
		now, published := is.Key(k.ID())
		if published && now.Fingerprint() != k.Fingerprint() {
			bad = append(bad, fmt.Sprintf("key %s is another one", k.ID()))
		}
		if !published && !slices.ContainsFunc(gone, func(h keystore.Gone) bool { return h.ID == k.ID() }) {
			bad = append(bad, fmt.Sprintf("key %s left without a line in gone", k.ID()))
		}
	}
	return bad
}

// Watch implements [keystore.Watcher].
func (m *MemStore) Watch(ctx context.Context, changed func(...keystore.Name)) error {
	m.mu.Lock()
	m.watchers[&changed] = struct{}{}
	m.mu.Unlock()
	changed()
	<-ctx.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.watchers, &changed)
	return ctx.Err()
}
