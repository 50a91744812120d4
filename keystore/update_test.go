package keystore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// shelf is a backend of one document in memory whose Put can be made to fail.
type shelf struct {
	mu       sync.Mutex
	doc      []byte
	rev      int
	replaces int
	fail     func(n int, write func()) error // n counts the calls of Put from 1; nil: no failure
}

func (st *shelf) List(context.Context) (map[Name]Revision, error) { return nil, errors.New("not used") }

func (st *shelf) Get(ctx context.Context, n Name) ([]byte, Revision, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	if st.doc == nil {
		return nil, "", fmt.Errorf("%q: %w", n, ErrNotFound)
	}
	return st.doc, Revision(fmt.Sprint(st.rev)), nil
}

func (st *shelf) Put(_ context.Context, _ Name, old Revision, data []byte) (Revision, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.replaces++
	if st.doc == nil && old != "" || st.doc != nil && string(old) != fmt.Sprint(st.rev) {
		return "", ErrConflict
	}
	write := func() { st.doc, st.rev = data, st.rev+1 }
	if st.fail != nil {
		if err := st.fail(st.replaces, write); err != nil {
			return "", err
		}
	}
	write()
	return Revision(fmt.Sprint(st.rev)), nil
}

func (st *shelf) load(t *testing.T) KeySet {
	t.Helper()
	s, _, err := NewStore(st).Load(t.Context(), "prod-a")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func addKey(n int) func(KeySet) (KeySet, error) {
	return func(s KeySet) (KeySet, error) { return s.Add(change(t0), testKey(n)) }
}

func stocked(t *testing.T) *shelf {
	t.Helper()
	st := &shelf{}
	if err := Create(t.Context(), NewStore(st), newSet(t, awsPolicy())); err != nil {
		t.Fatal(err)
	}
	return st
}

// A proxy sends a write twice, and the second is answered with a conflict. The change is not applied again.
func TestUpdateAppliesNoChangeTwice(t *testing.T) {
	st := stocked(t)
	st.fail = func(_ int, write func()) error { write(); return ErrConflict }
	if _, err := Update(t.Context(), NewStore(st), "prod-a", addKey(1)); err != nil || st.replaces != 2 {
		t.Errorf("Update: %v after %d writes", err, st.replaces)
	}
	st.fail = func(_ int, write func()) error { // and somebody else has built on the first
		write()
		later := must(must(Parse("prod-a", st.doc)).Add(change(t0), testKey(9)))
		later.body.Generation++
		st.doc, st.rev = must(Encode(later)), st.rev+1
		return ErrConflict
	}
	if _, err := Update(t.Context(), NewStore(st), "prod-a", addKey(2)); err == nil || !strings.Contains(err.Error(), "is unknown") {
		t.Errorf("Update: %v", err)
	}
}
