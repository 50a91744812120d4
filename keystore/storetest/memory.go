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

// Operations of a backend, as a [Fault] sees them.
const (
	OpList = "list"
	OpGet  = "get"
	OpPut  = "put"
)

// Op is one call of a backend.
type Op struct {
	Kind string        // OpList, OpGet or OpPut
	Name keystore.Name // empty for OpList
	Doc  []byte        // the document that OpPut wants to write
}

// Fault decides about one call: err is what the caller gets, and apply whether a Put takes effect all the same.
// So (false, err) is "failed and not persisted" and (true, err) "failed but persisted". A Fault may also wait, until
// the context is done at most. It is called without locks and may use the backend.
type Fault func(ctx context.Context, op Op) (apply bool, err error)

// Memory is a backend in memory for tests of what uses stores; it fails on demand. It fails the test when a Put breaks
// what holds for every change of a key set: the generation grows, gone lines stay, and no key leaves without a line in
// gone. It implements [keystore.Backend] and [keystore.Watcher].
type Memory struct {
	t        testing.TB
	mu       sync.Mutex // guards the rest
	docs     map[keystore.Name]memDocument
	writes   int
	fault    Fault
	watchers map[*func(...keystore.Name)]struct{}
}

// MemStore is a [Memory] with the [keystore.Store] on top of it. It is a [keystore.Reader] and a [keystore.Watcher].
type MemStore struct {
	*Memory
	*keystore.Store
}

type memDocument struct {
	data     []byte
	revision keystore.Revision
}

var (
	_ keystore.Backend = (*Memory)(nil)
	_ keystore.Watcher = (*Memory)(nil)
	_ keystore.Reader  = (*MemStore)(nil)
	_ keystore.Watcher = (*MemStore)(nil)
)

// NewMemory returns an empty backend.
func NewMemory(t testing.TB) *Memory {
	return &Memory{t: t, docs: map[keystore.Name]memDocument{}, watchers: map[*func(...keystore.Name)]struct{}{}}
}

// NewMemStore returns an empty store.
func NewMemStore(t testing.TB) *MemStore {
	m := NewMemory(t)
	return &MemStore{m, keystore.NewStore(m)}
}

// List implements [keystore.Reader].
func (m *MemStore) List(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	return m.Store.List(ctx)
}

// Inject makes f decide about every call from now on; nil ends it.
func (m *Memory) Inject(f Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = f
}

// Set stores any bytes under n, as somebody with an editor or an old backup would.
func (m *Memory) Set(n keystore.Name, data []byte) keystore.Revision {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.put(n, data)
}

// Delete removes n, which no program of ours does, but an operator may.
func (m *Memory) Delete(n keystore.Name) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.docs, n)
	m.notify(n)
}

// Writes counts the writes that took effect.
func (m *Memory) Writes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes
}

func (m *Memory) put(n keystore.Name, data []byte) keystore.Revision {
	m.writes++
	d := memDocument{data: bytes.Clone(data), revision: keystore.Revision(fmt.Sprintf("r%d", m.writes))}
	m.docs[n] = d
	m.notify(n)
	return d.revision
}

func (m *Memory) notify(n keystore.Name) {
	for w := range m.watchers {
		go (*w)(n)
	}
}

func (m *Memory) decide(ctx context.Context, op Op) (apply bool, err error) {
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

// List implements [keystore.Backend].
func (m *Memory) List(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
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

// Get implements [keystore.Backend].
func (m *Memory) Get(ctx context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	if _, err := m.decide(ctx, Op{Kind: OpGet, Name: n}); err != nil {
		return nil, "", err
	}
	m.mu.Lock()
	d, ok := m.docs[n]
	m.mu.Unlock()
	if !ok {
		return nil, "", fmt.Errorf("%w in memory", keystore.ErrNotFound)
	}
	return bytes.Clone(d.data), d.revision, nil
}

// Put implements [keystore.Backend].
func (m *Memory) Put(ctx context.Context, n keystore.Name, old keystore.Revision, doc []byte) (keystore.Revision, error) {
	apply, fault := m.decide(ctx, Op{Kind: OpPut, Name: n, Doc: doc})
	if !apply {
		return "", fault
	}
	rev, err := m.swap(n, old, doc)
	if err == nil {
		err = fault
	}
	if err != nil {
		return "", err
	}
	return rev, nil
}

func (m *Memory) swap(n keystore.Name, old keystore.Revision, data []byte) (keystore.Revision, error) {
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
func (m *Memory) checkChange(n keystore.Name, before, after []byte) {
	was, err := keystore.Parse(n, before)
	if err != nil {
		return
	}
	is, err := keystore.Parse(n, after)
	if err != nil {
		m.t.Errorf("storetest: key set %q: what was written does not parse: %v", n, err)
		return
	}
	for _, complaint := range regressions(was, is) {
		m.t.Errorf("storetest: key set %q: %s", n, complaint)
	}
}

// regressions returns what is wrong with a change from was to is: what no change may do.
func regressions(was, is keystore.KeySet) []string {
	var bad []string
	if is.Generation() <= was.Generation() && was.Generation() < keystore.MaxFirstGeneration { // else an accept has lowered it
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
func (m *Memory) Watch(ctx context.Context, changed func(...keystore.Name)) error {
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
