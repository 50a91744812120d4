package keystore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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

func TestCreateMakesAKeySetOnce(t *testing.T) {
	st := stocked(t)
	if g := st.load(t).Generation(); g != 1 {
		t.Errorf("generation %d", g)
	}
	if err := Create(t.Context(), NewStore(st), newSet(t, Policy{})); !errors.Is(err, ErrConflict) || !strings.HasPrefix(err.Error(), `create key set "prod-a": `) {
		t.Errorf("create again: error %v", err)
	}
}

func TestCreateReadsBackAfterAWriteOfWhichNothingIsKnown(t *testing.T) {
	for name, written := range map[string]bool{"the reply was lost": true, "the request was lost": false} {
		st := &shelf{fail: func(_ int, write func()) error {
			if written {
				write()
			}
			return errors.New("connection reset")
		}}
		if err := Create(t.Context(), NewStore(st), newSet(t, Policy{})); (err == nil) != written {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestUpdateCountsGenerationsAndReturnsWhatIsStored(t *testing.T) {
	st := stocked(t)
	for n := 1; n <= 3; n++ {
		s, err := Update(t.Context(), NewStore(st), "prod-a", addKey(n))
		if err != nil || s.Generation() != int64(n+1) || s.Digest() != st.load(t).Digest() {
			t.Fatalf("update %d: generation %d, error %v", n, s.Generation(), err)
		}
	}
	s, err := Update(t.Context(), NewStore(st), "prod-a", func(s KeySet) (KeySet, error) { return s.Accept(because(t0, "x"), 40, nil) })
	if err != nil || s.Generation() != 41 {
		t.Errorf("accepted past generation 40: generation %d, error %v", s.Generation(), err)
	}
	s, err = Update(t.Context(), NewStore(st), "prod-a", func(s KeySet) (KeySet, error) { return s.Accept(because(t0, "x"), 7, nil) })
	if err != nil || s.Generation() != 42 {
		t.Errorf("accepted past generation 7: generation %d, error %v", s.Generation(), err)
	}
}

func TestUpdateOfManyWritersLosesNothing(t *testing.T) {
	st := stocked(t)
	const writers = 12
	var wg sync.WaitGroup
	for n := 1; n <= writers; n++ {
		wg.Go(func() {
			if _, err := Update(t.Context(), NewStore(st), "prod-a", addKey(n)); err != nil {
				t.Errorf("writer %d: %v", n, err)
			}
		})
	}
	wg.Wait()
	if s := st.load(t); len(s.Keys()) != writers+1 || s.Generation() != writers+1 {
		t.Errorf("%d keys in generation %d", len(s.Keys()), s.Generation())
	}
}

func TestUpdateAfterAFailedWrite(t *testing.T) {
	for _, tt := range []struct {
		name     string
		fail     func(n int, write func()) error
		stored   bool
		is       error
		replaces int
	}{
		{name: "the reply was lost", fail: func(_ int, write func()) error { write(); return errors.New("timeout") }, stored: true, replaces: 1},
		{name: "the request was lost", fail: func(int, func()) error { return errors.New("timeout") }, replaces: 1},
		{name: "read-only", fail: func(int, func()) error { return fmt.Errorf("x: %w", ErrReadOnly) }, is: ErrReadOnly, replaces: 1},
		{name: "one conflict", fail: func(n int, _ func()) error {
			if n <= 2 {
				return ErrConflict
			}
			return nil
		}, stored: true, replaces: 2},
		{name: "nothing but conflicts", fail: func(int, func()) error { return fmt.Errorf("x: %w", ErrConflict) }, is: ErrConflict, replaces: updateTries},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // Update waits between two tries
				st := stocked(t)
				st.fail = tt.fail
				_, err := Update(t.Context(), NewStore(st), "prod-a", addKey(1))
				if (err == nil) != tt.stored || tt.is != nil && !errors.Is(err, tt.is) || err != nil && !strings.HasPrefix(err.Error(), `replace key set "prod-a": `) {
					t.Errorf("error %v", err)
				}
				if st.replaces-1 != tt.replaces {
					t.Errorf("it wrote %d times; want %d", st.replaces-1, tt.replaces)
				}
				if _, there := st.load(t).Key(testKey(1).ID()); there != tt.stored {
					t.Errorf("stored is %v", there)
				}
			})
		})
	}
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
		later.generation++
		st.doc, st.rev = must(Encode(later)), st.rev+1
		return ErrConflict
	}
	if _, err := Update(t.Context(), NewStore(st), "prod-a", addKey(2)); err == nil || !strings.Contains(err.Error(), "is unknown") {
		t.Errorf("Update: %v", err)
	}
}

func TestUpdateTakesNoForeignWriteForItsOwn(t *testing.T) {
	st := stocked(t)
	st.fail = func(n int, _ func()) error {
		other := must(must(Parse("prod-a", st.doc)).Add(change(t0), testKey(9)))
		other.generation = 2
		st.doc, st.rev = must(Encode(other)), st.rev+1
		return errors.New("timeout")
	}
	if _, err := Update(t.Context(), NewStore(st), "prod-a", addKey(1)); err == nil {
		t.Error("another writer's generation 2 passed for ours")
	}
}

func TestUpdateStops(t *testing.T) {
	if _, err := Update(t.Context(), NewStore(&shelf{}), "prod-a", addKey(1)); !errors.Is(err, ErrNotFound) || !strings.HasPrefix(err.Error(), `load key set "prod-a": `) {
		t.Errorf("nothing stored: error %v", err)
	}
	st, no := stocked(t), errors.New("no")
	if _, err := Update(t.Context(), NewStore(st), "prod-a", func(s KeySet) (KeySet, error) { return s, no }); !errors.Is(err, no) || st.replaces != 1 {
		t.Errorf("the change refuses: error %v after %d writes", err, st.replaces)
	}
	if _, err := Update(t.Context(), NewStore(st), "prod-a", func(KeySet) (KeySet, error) { return KeySet{}, nil }); err == nil || st.replaces != 1 {
		t.Errorf("the change returns nothing: error %v after %d writes", err, st.replaces)
	}
	ctx, cancel := context.WithCancel(t.Context())
	st.fail = func(int, func()) error { cancel(); return ErrConflict }
	if _, err := Update(ctx, NewStore(st), "prod-a", addKey(1)); !errors.Is(err, context.Canceled) || st.replaces != 2 {
		t.Errorf("a conflict after the caller has gone: error %v after %d writes", err, st.replaces)
	}
}

// The caller's patience ends with the write; whether it happened has to be found out all the same.
func TestUpdateReadsBackAfterTheCallerHasGone(t *testing.T) {
	st := stocked(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	st.fail = func(_ int, write func()) error { write(); cancel(); return context.Canceled }
	if _, err := Update(ctx, NewStore(st), "prod-a", addKey(1)); err != nil {
		t.Error(err)
	}
}
