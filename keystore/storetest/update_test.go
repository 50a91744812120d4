package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

var errNetwork = errors.New("connection reset by peer")

// prepared returns a store with key set prod-a at generation 1.
func prepared(t *testing.T) *storetest.MemStore {
	t.Helper()
	m := storetest.NewMemStore(t)
	if err := keystore.Create(t.Context(), m.Store, storetest.KeySet(t, "prod-a")); err != nil {
		t.Fatal(err)
	}
	return m
}

func stored(t *testing.T, m *storetest.MemStore) keystore.KeySet {
	t.Helper()
	m.Inject(nil)
	s, _, err := m.Load(t.Context(), "prod-a")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// replaces makes a fault of what Put answers, by the number of its call, from 1; an answer beyond the last is
// "apply and report success".
func replaces(answers ...func(n int) (bool, error)) storetest.Fault {
	calls := 0
	return func(_ context.Context, op storetest.Op) (bool, error) {
		if op.Kind != storetest.OpPut {
			return true, nil
		}
		if calls++; calls > len(answers) {
			return true, nil
		}
		return answers[calls-1](calls)
	}
}

func lost(int) (bool, error)      { return false, errNetwork } // failed and not persisted
func persisted(int) (bool, error) { return true, errNetwork }  // failed but persisted
func conflict(int) (bool, error) {
	return false, fmt.Errorf("%w: its revision is 412", keystore.ErrConflict)
}

func TestUpdateReportsWhatHappened(t *testing.T) {
	for _, c := range []struct {
		name       string
		fault      storetest.Fault
		want       error
		calls      int   // of change
		generation int64 // stored afterwards
	}{
		{"success", nil, nil, 1, 2},
		{"failed and not persisted", replaces(lost), errNetwork, 1, 1},
		{"failed but persisted", replaces(persisted), nil, 1, 2},
		{"conflict, then success", replaces(conflict, conflict, conflict), nil, 4, 2},
		{"conflict, then failed but persisted", replaces(conflict, persisted), nil, 2, 2},
		{"conflict, then failed and not persisted", replaces(conflict, lost), errNetwork, 2, 1},
		{"read-only", replaces(func(int) (bool, error) { return false, fmt.Errorf("%w: mounted", keystore.ErrReadOnly) }), keystore.ErrReadOnly, 1, 1},
		{"conflicts for ever", func(_ context.Context, op storetest.Op) (bool, error) {
			if op.Kind == storetest.OpPut {
				return conflict(0)
			}
			return true, nil
		}, keystore.ErrConflict, 64, 1},
		{"cannot be read", func(context.Context, storetest.Op) (bool, error) { return false, errNetwork }, errNetwork, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, calls := prepared(t), 0
			m.Inject(c.fault)
			s, err := keystore.Update(t.Context(), m.Store, "prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
				calls++
				return storetest.Mark("x")(s)
			})
			if !errors.Is(err, c.want) {
				t.Errorf("Update = %v, want %v", err, c.want)
			}
			if calls != c.calls {
				t.Errorf("change was called %d times, want %d", calls, c.calls)
			}
			is := stored(t, m)
			if is.Generation() != c.generation {
				t.Errorf("stored is generation %d, want %d", is.Generation(), c.generation)
			}
			if err == nil && s.Digest() != is.Digest() {
				t.Error("Update returned something else than it stored")
			}
			if err != nil && !strings.Contains(err.Error(), `key set "prod-a"`) {
				t.Errorf("the error does not name the key set: %v", err)
			}
		})
	}
}

// A write fails in a way that leaves open what happened, and another writer is faster: what is stored is not ours.
func TestUpdateDoesNotTakeAnotherWriteForItsOwn(t *testing.T) {
	m := prepared(t)
	m.Inject(func(ctx context.Context, op storetest.Op) (bool, error) {
		if op.Kind != storetest.OpPut {
			return true, nil
		}
		m.Inject(nil)
		if _, err := keystore.Update(ctx, m.Store, "prod-a", storetest.Mark("theirs")); err != nil {
			t.Error(err)
		}
		return false, errNetwork
	})
	if _, err := keystore.Update(t.Context(), m.Store, "prod-a", storetest.Mark("ours")); !errors.Is(err, errNetwork) {
		t.Errorf("Update = %v, want the error of the failed write", err)
	}
	if marks := storetest.Marks(stored(t, m)); !slices.Equal(marks, []string{"theirs"}) {
		t.Errorf("stored are the marks %v, want theirs only", marks)
	}
}

func TestUpdateRefuses(t *testing.T) {
	boom := errors.New("gate closed")
	for _, c := range []struct {
		name   string
		change func(keystore.KeySet) (keystore.KeySet, error)
		want   error
	}{
		{"an error of the change", func(keystore.KeySet) (keystore.KeySet, error) { return keystore.KeySet{}, boom }, boom},
		{"another key set", func(keystore.KeySet) (keystore.KeySet, error) { return storetest.KeySet(t, "prod-b"), nil }, nil},
		{"no key set", func(keystore.KeySet) (keystore.KeySet, error) { return keystore.KeySet{}, nil }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := prepared(t)
			_, err := keystore.Update(t.Context(), m.Store, "prod-a", c.change)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("Update = %v, want %v", err, c.want)
			}
			if m.Writes() != 1 {
				t.Errorf("%d writes, want the first only", m.Writes())
			}
		})
	}
	m := prepared(t)
	if _, err := keystore.Update(t.Context(), m.Store, "absent", storetest.Mark("x")); !errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Update of an absent key set = %v, want ErrNotFound", err)
	}
	m.Set("prod-a", []byte("not a key set"))
	var broken *keystore.BrokenError
	if _, err := keystore.Update(t.Context(), m.Store, "prod-a", storetest.Mark("x")); !errors.As(err, &broken) {
		t.Errorf("Update of a broken key set = %v, want a BrokenError", err)
	}
}

// A store that hangs holds its caller no longer than the caller's context and one look back.
func TestUpdateOnASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := prepared(t)
		m.Inject(func(ctx context.Context, op storetest.Op) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := keystore.Update(ctx, m.Store, "prod-a", storetest.Mark("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Update = %v, want that the deadline was exceeded", err)
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("Update took %v", took)
		}
	})
}
