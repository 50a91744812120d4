package storetest

import (
	"errors"
	"testing"

	"github.com/keypost/keypost/keystore"
)

func list(t *testing.T, st keystore.Reader) map[keystore.Name]keystore.Revision {
	t.Helper()
	all, err := st.List(t.Context())
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return all
}

func load(t *testing.T, st keystore.Reader, n keystore.Name) (keystore.KeySet, keystore.Revision) {
	t.Helper()
	s, rev, err := st.Load(t.Context(), n)
	if err != nil {
		t.Fatalf("Load %s: %v", n, err)
	}
	return s, rev
}

func replace(t *testing.T, st *keystore.Store, old keystore.Revision, s keystore.KeySet) keystore.Revision {
	t.Helper()
	rev, err := st.Replace(t.Context(), old, s)
	if err != nil {
		t.Fatalf("Replace %s: %v", s.Name(), err)
	}
	return rev
}

func update(t *testing.T, st *keystore.Store, n keystore.Name, change func(keystore.KeySet) (keystore.KeySet, error)) keystore.KeySet {
	t.Helper()
	s, err := keystore.Update(t.Context(), st, n, change)
	if err != nil {
		t.Fatalf("Update %s: %v", n, err)
	}
	return s
}

// next returns s with a mark and with the next generation, for a direct Replace. Only keystore.Update counts generations,
// so it goes through a store of its own.
func next(t *testing.T, s keystore.KeySet, mark string) keystore.KeySet {
	t.Helper()
	m := NewMemStore(t)
	replace(t, m.Store, "", s)
	return update(t, m.Store, s.Name(), Mark(mark))
}

func wantStored(t *testing.T, st *keystore.Store, rev keystore.Revision, s keystore.KeySet) {
	t.Helper()
	got, is := load(t, st, s.Name())
	if is != rev {
		t.Errorf("the revision of %s is %q, want %q", s.Name(), is, rev)
	}
	if text, want := Text(t, got), Text(t, s); text != want {
		t.Errorf("stored is\n%s\nwant\n%s", text, want)
	}
}

func wantAbsent(t *testing.T, st *keystore.Store, n keystore.Name) {
	t.Helper()
	if _, rev, err := st.Load(t.Context(), n); !errors.Is(err, keystore.ErrNotFound) || rev != "" {
		t.Errorf("Load %s = revision %q, %v; want none and ErrNotFound", n, rev, err)
	}
	if rev, ok := list(t, st)[n]; ok {
		t.Errorf("List has %s at revision %q", n, rev)
	}
}

func wantConflict(t *testing.T, st *keystore.Store, old keystore.Revision, s keystore.KeySet) {
	t.Helper()
	if rev, err := st.Replace(t.Context(), old, s); !errors.Is(err, keystore.ErrConflict) || rev != "" {
		t.Errorf("Replace %s at revision %q = %q, %v; want ErrConflict", s.Name(), old, rev, err)
	}
}
