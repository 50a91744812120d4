package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
)

const (
	writers = 6
	updates = 4 // by each writer
)

// together calls f(0) … f(n-1) at once and waits for all.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() { <-start; f(i) })
	}
	close(start)
	wg.Wait()
}

// oneWinner lets many create a key set at once, and then many change it from the same revision.
func oneWinner(x *suite, n keystore.Name, write writer) {
	race := func(old keystore.Revision, set func(i int) keystore.KeySet) (keystore.KeySet, keystore.Revision) {
		x.Helper()
		var sets [writers]keystore.KeySet
		var revs [writers]keystore.Revision
		var errs [writers]error
		for i := range sets {
			sets[i] = set(i)
		}
		together(writers, func(i int) { revs[i], errs[i] = write(x.Context(), old, sets[i]) })
		winner := slices.Index(errs[:], nil)
		if winner < 0 {
			x.Fatalf("nobody won: %v", errs)
		}
		x.wantStored(revs[winner], sets[winner])
		for i, err := range errs {
			if i != winner && !errors.Is(err, keystore.ErrConflict) {
				x.Errorf("writer %d got %v, want ErrConflict since writer %d won", i, err, winner)
			}
		}
		return sets[winner], revs[winner]
	}
	first, rev := race("", func(int) keystore.KeySet { return KeySet(x, n) })
	race(rev, func(i int) keystore.KeySet { return x.next(first, fmt.Sprintf("w%d", i)) })
}

func noLostUpdate(x *suite) {
	x.replace("", KeySet(x, "prod-a"))
	together(writers, func(w int) {
		for i := range updates {
			if _, err := keystore.Update(x.Context(), x.Store, "prod-a", Mark(fmt.Sprintf("w%d-%d", w, i))); err != nil {
				x.Errorf("writer %d, update %d: %v", w, i, err)
			}
		}
	})
	s, _ := x.load("prod-a")
	if want := int64(1 + writers*updates); s.Generation() != want {
		x.Errorf("the generation is %d, want %d", s.Generation(), want)
	}
	marks := Marks(s)
	for w := range writers {
		for i := range updates {
			if !slices.Contains(marks, fmt.Sprintf("w%d-%d", w, i)) {
				x.Errorf("update %d of writer %d was lost", i, w)
			}
		}
	}
}

// during runs f again and again, several times at once, until work is done.
func during(work, f func()) {
	var done atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !done.Load() {
				f()
			}
		})
	}
	defer wg.Wait()
	defer done.Store(true) // also when work ends the test
	work()
}

// neverAMix writes key sets whose parts, at the start and at the end of a large document, all name the generation.
func neverAMix(x *suite) {
	keys := make([]keystore.VerificationKey, 8)
	for i := range keys {
		keys[i] = Key(x)
	}
	x.replace("", KeySet(x, "prod-a", keys...))
	var newest atomic.Int64 // the highest generation that was reported as stored
	newest.Store(1)
	during(func() {
		for range 10 {
			s := x.update("prod-a", Numbered)
			newest.Store(s.Generation())
		}
	}, func() {
		least := newest.Load()
		s, _, err := x.Load(x.Context(), "prod-a")
		if err != nil {
			x.Errorf("Load: %v", err)
			return
		}
		if s.Generation() < least {
			x.Errorf("read generation %d after %d was stored", s.Generation(), least)
		}
		if err := CheckNumbered(s); err != nil {
			x.Error(err)
		}
	})
}

// Numbered is a change for [keystore.Update] that writes the next generation into several parts of the document;
// [CheckNumbered] reports whether they still agree.
func Numbered(s keystore.KeySet) (keystore.KeySet, error) {
	g := fmt.Sprintf("g-%d", s.Generation()+1)
	return s.SetPolicy(keystore.Change{At: Time(0), By: g}, keystore.Policy{RelyingParties: []string{g}, Origins: []string{g}})
}

// CheckNumbered returns an error if s is put together from several generations. Generation 1 has no numbers.
func CheckNumbered(s keystore.KeySet) error {
	if s.Generation() == 1 {
		return nil
	}
	want := fmt.Sprintf("g-%d", s.Generation())
	history := s.History()
	for _, got := range []string{Marks(s)[0], s.Policy().Origins[0], history[len(history)-1].By} {
		if got != want {
			return fmt.Errorf("a part of generation %d says %s: it is a mix", s.Generation(), got)
		}
	}
	return nil
}

func listWhileChanging(x *suite) {
	names := make([]keystore.Name, 20)
	key := Key(x)
	for i := range names {
		names[i] = keystore.Name(fmt.Sprintf("prod-%d", i))
		x.replace("", KeySet(x, names[i], key))
	}
	during(func() {
		for _, n := range names {
			x.update(n, Mark("x"))
		}
	}, func() {
		all, err := x.List(x.Context())
		if err != nil || len(all) != len(names) {
			x.Errorf("List has %d names, %v; want %d", len(all), err, len(names))
		}
	})
}

func watch(x *suite) {
	w, ok := keystore.WatcherOf(x.Store)
	if !ok {
		return // the poll is all there is
	}
	x.replace("", KeySet(x, "prod-a"))
	ctx, cancel := context.WithCancel(x.Context())
	defer cancel()
	reports, done := make(chan []keystore.Name, 1000), make(chan error, 1)
	go func() {
		done <- w.Watch(ctx, func(names ...keystore.Name) {
			select {
			case reports <- names:
			default: // changed must return quickly
			}
		})
	}()
	wantReport(x.T, reports, func() { x.update("prod-a", Numbered) }, "prod-a")
	n := 0
	wantReport(x.T, reports, func() {
		n++
		x.replace("", KeySet(x, keystore.Name(fmt.Sprintf("new-%d", n))))
	}, "new-1")
	cancel()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, context.Canceled) {
			x.Errorf("Watch = %v after its context was done", err)
		}
	case <-time.After(10 * time.Second):
		x.Error("Watch did not return after its context was done")
	}
}

// wantReport makes changes until one is reported, since a watch takes a while to stand and may miss some.
func wantReport(t *testing.T, reports <-chan []keystore.Name, change func(), n keystore.Name) {
	t.Helper()
	for range 50 {
		change()
		again := time.After(200 * time.Millisecond)
		for waiting := true; waiting; {
			select {
			case names := <-reports:
				if len(names) == 0 || slices.Contains(names, n) {
					return
				}
			case <-again:
				waiting = false
			}
		}
	}
	t.Fatalf("no change of %s was reported", n)
}
