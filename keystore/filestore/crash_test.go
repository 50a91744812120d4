package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"golang.org/x/sys/unix"
)

// medium is a directory on a disk that keeps what was synced and may lose everything else. Before its operation number
// cut, the power goes: nothing works from then on, and crashes tells what may be found afterwards.
type medium struct {
	dir     string
	files   map[string]*node // what a running system sees
	durable map[string]*node // what the directory's last Sync made durable
	pending []change         // what was done to the directory since
	clock   int64
	step    int
	cut     int // 0: never
	fault   func(op, path string) error

	sloppyFile, sloppyDir bool // Sync does nothing: to see that the checks notice
}

type node struct {
	ino          uint64
	mtime        int64
	data, synced []byte
}

// change is one entry of the directory's journal: name now means n, and without (a rename's source) is gone.
type change struct {
	name, without string
	n             *node
}

var errPower = errors.New("the power is off")

func newMedium(dir string, files map[string]*node) *medium {
	return &medium{dir: dir, files: maps.Clone(files), durable: maps.Clone(files), clock: 1000}
}

func (m *medium) do(op, path string) error {
	m.step++
	if m.cut != 0 && m.step >= m.cut {
		return errPower
	}
	if m.fault != nil {
		if err := m.fault(op, path); err != nil {
			return &os.PathError{Op: op, Path: path, Err: err}
		}
	}
	return nil
}

func (m *medium) note(c change) {
	m.clock++
	m.pending = append(m.pending, c)
	c.apply(m.files)
}

func (c change) apply(files map[string]*node) {
	delete(files, c.without)
	if c.n == nil {
		delete(files, c.name)
		return
	}
	files[c.name] = c.n
}

type handle struct {
	m    *medium
	n    *node // nil: the directory
	read int
	path string
}

func (m *medium) Open(path string, flag int) (file, error) {
	op := "open"
	if flag&os.O_CREATE != 0 {
		op = "create"
	}
	if err := m.do(op, path); err != nil {
		return nil, err
	}
	if path == m.dir {
		return &handle{m: m, path: path}, nil
	}
	n, exists := m.files[path]
	switch {
	case flag&os.O_CREATE == 0 && !exists:
		return nil, fs.ErrNotExist
	case flag&os.O_CREATE != 0 && exists:
		return nil, fs.ErrExist
	case flag&os.O_CREATE != 0:
		n = &node{ino: uint64(m.clock), mtime: m.clock}
		m.note(change{name: path, n: n})
	}
	return &handle{m: m, n: n, path: path}, nil
}

func (m *medium) Stat(path string) (stamp, error) {
	if err := m.do("stat", path); err != nil {
		return stamp{}, err
	}
	if path == m.dir {
		return stamp{ino: 1, mtime: m.clock, ctime: m.clock, mode: unix.S_IFDIR}, nil
	}
	n, ok := m.files[path]
	if !ok {
		return stamp{}, fs.ErrNotExist
	}
	return n.stamp(), nil
}

func (n *node) stamp() stamp {
	return stamp{ino: n.ino, size: int64(len(n.data)), mtime: n.mtime, ctime: n.mtime, mode: unix.S_IFREG}
}

func (m *medium) Names(dir string) ([]string, error) {
	if err := m.do("names", dir); err != nil {
		return nil, err
	}
	var names []string
	for path := range m.files {
		names = append(names, filepath.Base(path))
	}
	return names, nil
}

func (m *medium) Rename(from, to string) error {
	if err := m.do("rename", to); err != nil {
		return err
	}
	n, ok := m.files[from]
	if !ok {
		return fs.ErrNotExist
	}
	m.note(change{name: to, without: from, n: n})
	return nil
}

func (m *medium) Remove(path string) error {
	if err := m.do("remove", path); err != nil {
		return err
	}
	if _, ok := m.files[path]; !ok {
		return fs.ErrNotExist
	}
	m.note(change{name: path})
	return nil
}

func (h *handle) Read(p []byte) (int, error) {
	if err := h.m.do("read", h.path); err != nil {
		return 0, err
	}
	k := copy(p, h.n.data[h.read:])
	h.read += k
	if k == 0 {
		return 0, io.EOF
	}
	return k, nil
}

func (h *handle) Write(p []byte) (int, error) {
	if err := h.m.do("write", h.path); err != nil {
		h.n.data = append(h.n.data, p[:len(p)/2]...) // a full disk takes what fits
		return len(p) / 2, err
	}
	h.m.clock++
	h.n.mtime = h.m.clock
	h.n.data = append(h.n.data, p...)
	return len(p), nil
}

func (h *handle) Sync() error {
	op := "sync"
	if h.n == nil {
		op = "syncdir"
	}
	if err := h.m.do(op, h.path); err != nil {
		return err
	}
	switch {
	case h.n != nil && !h.m.sloppyFile:
		h.n.synced = slices.Clone(h.n.data)
	case h.n == nil && !h.m.sloppyDir:
		h.m.durable, h.m.pending = maps.Clone(h.m.files), nil
	}
	return nil
}

func (h *handle) Close() error { return h.m.do("close", h.path) }

func (h *handle) Stat() (stamp, error) { return h.n.stamp(), h.m.do("fstat", h.path) }

// crashes returns every state in which the directory may be found after the power was cut now: any of the pending
// changes may have reached the medium, and of bytes that were not synced nothing, a part, zeros, or all.
func (m *medium) crashes() []map[string]*node {
	var all []map[string]*node
	for subset := range 1 << len(m.pending) {
		files := maps.Clone(m.durable)
		for i, c := range m.pending {
			if subset&(1<<i) != 0 {
				c.apply(files)
			}
		}
		for torn := range 4 {
			all = append(all, tear(files, torn))
		}
	}
	return all
}

func tear(files map[string]*node, how int) map[string]*node {
	after := map[string]*node{}
	for path, n := range files {
		data := n.data
		if string(n.synced) != string(data) {
			switch how {
			case 0:
				data = n.synced
			case 1:
				data = data[:len(data)/2]
			case 2:
				data = make([]byte, len(data))
			}
		}
		after[path] = &node{ino: n.ino, mtime: n.mtime, data: data, synced: data}
	}
	return after
}

// scene is a directory with key set prod-a (or without) and a change that is to be written.
type scene struct {
	dir      string
	files    map[string]*node
	old, new string // documents; old is empty when the change creates
	write    func(context.Context, *Backend) error
}

func scenes(t *testing.T) map[string]scene {
	dir := t.TempDir()
	first := storetest.KeySet(t, "prod-a")
	m := storetest.NewMemStore(t)
	if err := keystore.Create(t.Context(), m.Store, first); err != nil {
		t.Fatal(err)
	}
	second, err := keystore.Update(t.Context(), m.Store, "prod-a", storetest.Numbered)
	if err != nil {
		t.Fatal(err)
	}
	path, leftover := filepath.Join(dir, "prod-a.yaml"), filepath.Join(dir, ".keypost-KILLED.tmp")
	old := []byte(storetest.Text(t, first))
	there := func(path string, data []byte) map[string]*node {
		return map[string]*node{path: {ino: 7, mtime: 7, data: data, synced: data}}
	}
	replace := func(ctx context.Context, st *Backend) error {
		_, err := st.Put(ctx, "prod-a", revisionOf(old), []byte(storetest.Text(t, second)))
		return err
	}
	withLeftover := there(path, old)
	withLeftover[leftover] = &node{ino: 8, mtime: 8, data: old[:100]}
	return map[string]scene{
		"replace":                 {dir, there(path, old), string(old), storetest.Text(t, second), replace},
		"replace with a leftover": {dir, withLeftover, string(old), storetest.Text(t, second), replace},
		"create": {dir, map[string]*node{}, "", string(old), func(ctx context.Context, st *Backend) error {
			_, err := st.Put(ctx, "prod-a", "", old)
			return err
		}},
	}
}

// found opens the store that a crash left behind and returns the document in it, and what is wrong with the rest.
func (sc scene) found(t *testing.T, files map[string]*node) (document string, err error) {
	st := newBackend(sc.dir, newMedium(sc.dir, files))
	all, err := st.List(t.Context())
	if err != nil {
		return "", err
	}
	s, rev, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
	switch {
	case errors.Is(err, keystore.ErrNotFound) && len(all) == 0:
		return "", nil
	case err != nil:
		return "", err
	case len(all) != 1 || all["prod-a"] != rev:
		return "", fmt.Errorf("List = %v, want prod-a at %s", all, rev)
	}
	if _, err := keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("afterwards")); err != nil {
		return "", fmt.Errorf("after the crash nothing can be written: %w", err)
	}
	if bases, _ := st.disk.Names(sc.dir); len(bases) != 1 {
		return "", fmt.Errorf("the next writer left %v", bases)
	}
	return storetest.Text(t, s), nil
}

// cutEverywhere cuts the power before every step of the write, and after it has returned, and returns what a crash
// may then show that it must not. It counts the states that it looked at.
func (sc scene) cutEverywhere(t *testing.T, prepare func(*medium)) (bad []string, states int) {
	type finding struct {
		document string
		err      error
	}
	findings := map[string]finding{} // by state: most cuts leave one that another cut left too
	for cut := 1; ; cut++ {
		m := newMedium(sc.dir, sc.files)
		prepare(m)
		m.cut = cut
		err := sc.write(t.Context(), newBackend(sc.dir, m))
		done := err == nil
		if !done && !errors.Is(err, errPower) {
			t.Fatalf("power cut before step %d: %v", cut, err)
		}
		for _, files := range m.crashes() {
			states++
			f, known := findings[describe(files)]
			if !known {
				f.document, f.err = sc.found(t, files)
				findings[describe(files)] = f
			}
			switch got, err := f.document, f.err; {
			case err != nil:
				bad = append(bad, fmt.Sprintf("power cut before step %d: %v", cut, err))
			case done && got != sc.new:
				bad = append(bad, fmt.Sprintf("power cut after Replace returned: the old document is back (%d bytes)", len(got)))
			case got != sc.old && got != sc.new:
				bad = append(bad, fmt.Sprintf("power cut before step %d: neither the old nor the new document:\n%s", cut, got))
			}
		}
		if done {
			return bad, states
		}
	}
}

// describe tells states apart; the random part of a temporary file's name makes no difference.
func describe(files map[string]*node) string {
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(files)) {
		name := path
		if strings.HasSuffix(path, ".tmp") {
			name = ".tmp"
		}
		fmt.Fprintf(&b, "%s %q\n", name, files[path].data)
	}
	return b.String()
}

func TestPowerCutAtEveryStep(t *testing.T) {
	for name, sc := range scenes(t) {
		t.Run(name, func(t *testing.T) {
			bad, states := sc.cutEverywhere(t, func(*medium) {})
			for _, b := range bad {
				t.Error(b)
			}
			t.Logf("%d states after a power cut", states)
		})
	}
}

// The checks above must notice a store that forgets to sync.
func TestPowerCutShowsMissingSync(t *testing.T) {
	sc := scenes(t)["replace"]
	bad, _ := sc.cutEverywhere(t, func(m *medium) { m.sloppyFile = true })
	if !slices.ContainsFunc(bad, func(b string) bool { return strings.Contains(b, "is broken") }) {
		t.Errorf("a store that does not sync files shows %q, want broken documents", bad)
	}
	bad, _ = sc.cutEverywhere(t, func(m *medium) { m.sloppyDir = true })
	if !slices.ContainsFunc(bad, func(b string) bool { return strings.Contains(b, "the old document is back") }) {
		t.Errorf("a store that does not sync its directory shows %q, want the old document", bad)
	}
}
