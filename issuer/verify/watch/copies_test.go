package watch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/storetest"
)

const party = "gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"

// copyScene is a scene in which relying parties hold copies. What is read back of them is the test's.
type copyScene struct {
	*scene
	t    *testing.T
	back *storetest.Memory // of the records
}

func newCopyScene(t *testing.T) *copyScene {
	t.Helper()
	sc := &copyScene{newScene(t), t, storetest.NewMemory(t)}
	sc.c.Records = observation.NewStore(sc.back)
	return sc
}

// name stores a key set whose policy names the copy.
func (sc *copyScene) name(n keystore.Name, reach keystore.Reach) {
	sc.t.Helper()
	sc.add(sc.t, string(n))
	p := keystore.Policy{RelyingParties: []string{party}, Reach: reach}
	if reach == "" {
		p.RelyingParties = append(p.RelyingParties, "aws")
	}
	sc.change(n, func(s keystore.KeySet) (keystore.KeySet, error) { return s.SetPolicy(storetest.Change(0), p) })
}

func (sc *copyScene) change(n keystore.Name, step func(keystore.KeySet) (keystore.KeySet, error)) {
	sc.t.Helper()
	_, err := keystore.Update(sc.t.Context(), sc.store.Store, n, step)
	check(sc.t, err)
}

func (sc *copyScene) load(n keystore.Name) keystore.KeySet {
	sc.t.Helper()
	s, _, err := sc.store.Load(sc.t.Context(), n)
	check(sc.t, err)
	return s
}

// sync records that the copy was read back with the published keys.
func (sc *copyScene) sync(n keystore.Name) {
	sc.t.Helper()
	var keys []keystore.VerificationKey
	s := sc.load(n)
	for _, k := range s.Keys() {
		keys = append(keys, k.VerificationKey)
	}
	_, err := sc.c.Records.Add(sc.t.Context(), n, observation.Place{Issuer: party},
		observation.ReadBack(time.Now(), observation.Upload{By: "timer", Generation: s.Generation()}, keys))
	check(sc.t, err)
}

// want holds the troubles of the copy of a key set, and the verdict on what is stored, to what they are to be.
func (sc *copyScene) want(when string, n keystore.Name, verdict Verdict, troubles ...CopyTrouble) {
	sc.t.Helper()
	sc.wait(reread + time.Second)
	i := slices.IndexFunc(sc.Copies(), func(c Copy) bool { return c.KeySet == n })
	if i < 0 {
		sc.t.Errorf("%s: the copy of %s is not watched", when, n)
		return
	}
	c := sc.Copies()[i]
	if got := slices.Sorted(maps.Keys(c.Troubles())); c.Upload != party || !slices.Equal(got, troubles) {
		sc.t.Errorf("%s: %s of %s has %v, want %v", when, c.Upload, n, got, troubles)
	}
	got := Verdict(0)
	for _, s := range sc.Seen() {
		if s.KeySet == n && s.Generation == sc.load(n).Generation() {
			got = s.Verdict
		}
	}
	if got != verdict {
		sc.t.Errorf("%s: the verdict on %s is %d, want %d", when, n, got, verdict)
	}
}

// A copy is judged by what was read back of it last, from the first reading to the last.
func TestWatchKnowsWhatCopiesHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newCopyScene(t)
		sc.name("prod-a", keystore.ReachCopies)
		first := sc.load("prod-a").Keys()[0].ID()
		next := storetest.Key(t)
		sc.run(t)
		sc.want("before any reading", "prod-a", NotSeen, CopyUnread)
		if err := sc.Ready(); err != nil {
			t.Errorf("nobody else is to be looked at: %v", err)
		}
		sc.sync("prod-a")
		sc.want("uploaded", "prod-a", Everywhere)
		sc.change("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) { return s.Add(storetest.Change(0), next) })
		sc.want("with another key that signs nothing yet", "prod-a", NotYet, CopyBehind)
		sc.sync("prod-a")
		sc.want("uploaded again", "prod-a", Everywhere)
		sc.change("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Revoke(storetest.Change(0), first, keystore.RevokeOptions{})
		})
		sc.want("with a key that was revoked", "prod-a", Different, CopyAhead)
		sc.sync("prod-a")
		sc.want("without it", "prod-a", Everywhere)
		sc.wait(24 * time.Hour)
		sc.want("a day later", "prod-a", NotSeen, CopyStale)
		sc.sync("prod-a")
		sc.want("read back", "prod-a", Everywhere)

		// What cannot be read says so, and what is known stays.
		sc.change("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Add(storetest.Change(0), storetest.Key(t))
		})
		sc.want("with a third key", "prod-a", NotYet, CopyBehind)
		sc.back.Inject(func(context.Context, storetest.Op) (bool, error) { return false, errors.New("the bucket is gone") })
		sc.want("without the records", "prod-a", NotSeen, CopyBehind, CopyNotCompared)
		sc.back.Inject(nil)
		sc.want("with them", "prod-a", NotYet, CopyBehind)
		sc.sync("prod-a")
		sc.want("with the third key", "prod-a", Everywhere)
		place := observation.Place{Issuer: party}
		check(t, sc.c.Records.AddFailure(t.Context(), "prod-a", place, observation.Failed{At: time.Now(), Why: "there is no such provider"}))
		sc.want("after a try that failed", "prod-a", NotSeen, CopyStale)
		_, err := sc.c.Records.Add(t.Context(), "prod-a", place, observation.ReadBack(time.Now(), observation.Upload{Strangers: []observation.Key{{ID: "theirs"}}}, nil))
		check(t, err)
		sc.sync("prod-a")
		sc.want("after somebody else's key was replaced", "prod-a", Everywhere, CopyIntruded)
		if !strings.Contains(sc.log.String(), "a copy had a key that the store never had") {
			t.Errorf("logged\n%s", sc.log.String())
		}

		sc.change("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Withdraw(storetest.Change(0))
		})
		sc.wait(reread + time.Second)
		if len(sc.Copies()) > 0 || len(sc.Seen()) != 1 || sc.Seen()[0].Verdict != Ended {
			t.Errorf("of an issuer that was withdrawn: %+v, %+v", sc.Copies(), sc.Seen())
		}
		if log := sc.log.String(); strings.Count(log, "is not known to have") != 7 || strings.Count(log, "has the published keys") != 6 {
			t.Errorf("logged\n%s", log)
		}
	})
}

// Where the documents are read too, both are watched, and the worse counts; absence ends neither.
func TestWatchOfDocumentsAndCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newCopyScene(t)
		sc.name("both", "")
		sc.name("copies", keystore.ReachCopies)
		sc.add(t, "documents")
		sc.run(t)
		sc.wait(time.Minute)
		sc.want("before any reading", "both", NotSeen, CopyUnread)
		for n, looked := range map[string]bool{"both": true, "copies": false, "documents": true} {
			if got := sc.count(n) > 0; got != looked {
				t.Errorf("%s was looked at: %v", n, got)
			}
		}
		sc.sync("both")
		sc.want("uploaded", "both", Everywhere)
		sc.store.Delete("both")
		sc.wait(reread + time.Second)
		if len(sc.Copies()) != 2 {
			t.Errorf("a copy of a key set that is absent is not watched: %+v", sc.Copies())
		}
	})
}

// A watch that does not know where readings are recorded says that it knows nothing.
func TestWatchOfCopiesWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newCopyScene(t)
		sc.c.Records = nil
		sc.name("prod-a", keystore.ReachCopies)
		sc.run(t)
		sc.want("without records", "prod-a", NotSeen, CopyNotCompared)
		if err := sc.Ready(); err != nil {
			t.Error(err)
		}
	})
}
