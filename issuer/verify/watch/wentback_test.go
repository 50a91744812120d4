package watch

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/storetest"
)

// wentBack is how the store went back, as far as a test compares it.
type wentBack struct {
	stored, before int64
	revived        int
}

func (sc *scene) wentBack(t *testing.T, when string, want ...wentBack) {
	t.Helper()
	sc.wait(reread + time.Second)
	var got []wentBack
	for _, b := range sc.Report().WentBack {
		got = append(got, wentBack{b.Stored, b.Recorded, len(b.Revived)})
	}
	if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
		t.Errorf("%s: %v, want %v", when, got, want)
	}
}

// A backup from before a revocation is told while the watch runs on, after a restart of it, and where the next change covers it.
func TestStoreWentBack(t *testing.T) {
	for name, recorded := range map[string]bool{"with observations": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				back := storetest.NewMemory(t)
				sc := newScene(t)
				if recorded {
					sc.c.Records = observation.NewStore(back)
				}
				check(t, keystore.Create(t.Context(), sc.store.Store, storetest.KeySet(t, "prod-a", storetest.Key(t), storetest.Key(t))))
				sc.run(t)
				sc.wentBack(t, "at first")
				backup, _, err := sc.store.Get(t.Context(), "prod-a")
				check(t, err)
				revoked, at := "", time.Hour
				change := func(step func(keystore.KeySet) (keystore.KeySet, error)) {
					_, err := keystore.Update(t.Context(), sc.store.Store, "prod-a", step)
					check(t, err)
				}
				revoke := func(s keystore.KeySet) (keystore.KeySet, error) {
					revoked = string(s.Keys()[0].ID())
					return s.Revoke(storetest.Change(at), s.Keys()[0].ID(), keystore.RevokeOptions{})
				}
				change(revoke)
				sc.wentBack(t, "after the revocation")
				sc.store.Set("prod-a", backup)
				sc.wentBack(t, "after the restore", wentBack{1, 2, 1})
				if log := sc.log.String(); strings.Count(log, "the store went back") != 1 || !strings.Contains(log, revoked) {
					t.Errorf("the log: %s", log)
				}
				change(func(s keystore.KeySet) (keystore.KeySet, error) {
					return s.Add(storetest.Change(2*time.Hour), storetest.Key(t))
				})
				change(func(s keystore.KeySet) (keystore.KeySet, error) {
					return s.Add(storetest.Change(2*time.Hour), storetest.Key(t))
				})
				sc.wentBack(t, "with a later generation that publishes the key", wentBack{3, 2, 1})
				sc.store.Set("prod-a", backup)
				if recorded {
					again := newScene(t)
					again.store, again.c.Store, again.c.Records = sc.store, sc.store, sc.c.Records
					again.run(t)
					again.wentBack(t, "after a restart of the watch", wentBack{1, 2, 1})
				}
				at = 2 * time.Hour
				change(revoke)
				sc.wentBack(t, "revoked again, with the generation of the version before", wentBack{2, 2, 0})
				change(func(s keystore.KeySet) (keystore.KeySet, error) {
					return s.Accept(storetest.Change(3*time.Hour), 2, keystore.Decided{})
				})
				sc.wentBack(t, "accepted")
			})
		})
	}
}
