package filestore

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// failing returns a fault that makes one operation of the write fail; reading a document back works.
func failing(op string, err error) func(string, string) error {
	return func(is, path string) error {
		if is == op && (op != "close" || strings.HasSuffix(path, ".tmp")) {
			return err
		}
		return nil
	}
}

func TestReplaceFails(t *testing.T) {
	for _, c := range []struct {
		op       string
		err      error
		readOnly bool
	}{
		{"names", syscall.EIO, false}, // only the leftovers cannot be seen: the write itself works
		{"create", syscall.ENOSPC, false},
		{"create", syscall.EROFS, true},
		{"create", syscall.EACCES, true},
		{"create", syscall.EPERM, true},
		{"write", syscall.ENOSPC, false},
		{"write", syscall.EIO, false},
		{"sync", syscall.EIO, false},
		{"sync", syscall.EDQUOT, false},
		{"close", syscall.EIO, false},
		{"rename", syscall.ENOSPC, false},
		{"rename", syscall.EPERM, true},
		{"open", syscall.EACCES, false}, // cannot even see what is there
	} {
		t.Run(c.op+" "+c.err.Error(), func(t *testing.T) {
			sc := scenes(t)["replace"]
			m := newMedium(sc.dir, sc.files)
			m.fault = failing(c.op, c.err)
			err := sc.write(t.Context(), newBackend(sc.dir, m))
			if c.op == "names" {
				if err != nil {
					t.Errorf("Replace = %v, want success", err)
				}
				return
			}
			if !errors.Is(err, c.err) || errors.Is(err, keystore.ErrReadOnly) != c.readOnly || strings.Contains(err.Error(), "\n") {
				t.Errorf("Replace = %v, want one sentence with %v; read-only: %v", err, c.err, c.readOnly)
			}
			path := filepath.Join(sc.dir, "prod-a.yaml")
			if len(m.files) != 1 || string(m.files[path].data) != sc.old {
				t.Errorf("the directory holds %v, want only the old document", slices.Sorted(maps.Keys(m.files)))
			}
		})
	}
}

// The rename is done and its durability is not: the caller must not take that for success, and must not take it for
// "nothing happened" either. Update says so too.
func TestReplaceFailsButPersists(t *testing.T) {
	sc := scenes(t)["replace"]
	m := newMedium(sc.dir, sc.files)
	m.fault = failing("syncdir", syscall.EIO)
	st := newBackend(sc.dir, m)
	err := sc.write(t.Context(), st)
	if !errors.Is(err, syscall.EIO) || errors.Is(err, keystore.ErrConflict) || errors.Is(err, keystore.ErrReadOnly) {
		t.Errorf("Replace = %v, want an error that leaves open what happened", err)
	}
	if got := string(m.files[filepath.Join(sc.dir, "prod-a.yaml")].data); got != sc.new {
		t.Errorf("stored is\n%s\nwant the new document", got)
	}
	s, err := keystore.Update(t.Context(), keystore.NewStore(st), "prod-a", storetest.Mark("x"))
	if !errors.Is(err, keystore.ErrNotDurable) {
		t.Errorf("Update = generation %d, %v; want ErrNotDurable: a change is done only when it survives", s.Generation(), err)
	}
	m.fault = nil
	if s, _, err := keystore.NewStore(st).Load(t.Context(), "prod-a"); err != nil || s.Generation() != 3 {
		t.Errorf("stored is generation %d, %v; want 3", s.Generation(), err)
	}
}

func TestReadFaultsAreNoAbsence(t *testing.T) {
	for _, op := range []string{"open", "read", "fstat"} {
		sc := scenes(t)["replace"]
		m := newMedium(sc.dir, sc.files)
		m.fault = failing(op, syscall.EIO)
		st := newBackend(sc.dir, m)
		var broken *keystore.BrokenError
		_, _, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
		if !errors.Is(err, syscall.EIO) || errors.As(err, &broken) || errors.Is(err, keystore.ErrNotFound) {
			t.Errorf("%s fails: Load = %v, want EIO and nothing else", op, err)
		}
		all, err := st.List(t.Context())
		if _, listed := all["prod-a"]; err != nil || !listed {
			t.Errorf("%s fails: List = %v, %v; want prod-a, which is there", op, all, err)
		}
		m.fault = nil
		_, rev, err := keystore.NewStore(st).Load(t.Context(), "prod-a")
		if is, _ := st.List(t.Context()); err != nil || is["prod-a"] != rev || rev == all["prod-a"] {
			t.Errorf("once it can be read, List has revision %q (before: %q), Load %q, %v", is["prod-a"], all["prod-a"], rev, err)
		}
	}
	sc := scenes(t)["replace"]
	m := newMedium(sc.dir, sc.files)
	m.fault = failing("names", syscall.EIO)
	if all, err := newBackend(sc.dir, m).List(t.Context()); err == nil {
		t.Errorf("names fails: List = %v, want an error", all)
	}
}
