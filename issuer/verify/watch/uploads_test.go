package watch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/policy"
	"github.com/keypost/keypost/keystore/storetest"
)

const party = "gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"

// uploadScene is a scene in which relying parties hold uploads. What is read back of them is the test's.
type uploadScene struct {
	*scene
	t    *testing.T
	back *storetest.Memory // of the records
}

func newUploadScene(t *testing.T) *uploadScene {
	t.Helper()
	sc := &uploadScene{newScene(t), t, storetest.NewMemory(t)}
	sc.c.Records = observation.NewStore(sc.back)
	return sc
}

// name stores a key set whose policy names the upload.
func (sc *uploadScene) name(n keystore.Name, reach policy.Reach) {
	sc.t.Helper()
	sc.add(sc.t, string(n))
	p := keystore.Policy{RelyingParties: []string{party}, Reach: reach}
	if reach == "" {
		p.RelyingParties = append(p.RelyingParties, "aws")
	}
	sc.change(n, func(s keystore.KeySet) (keystore.KeySet, error) { return s.SetPolicy(storetest.Change(0), p) })
}

func (sc *uploadScene) change(n keystore.Name, step func(keystore.KeySet) (keystore.KeySet, error)) {
	sc.t.Helper()
	_, err := keystore.Update(sc.t.Context(), sc.store.Store, n, step)
	check(sc.t, err)
}

func (sc *uploadScene) load(n keystore.Name) keystore.KeySet {
	sc.t.Helper()
	s, _, err := sc.store.Load(sc.t.Context(), n)
	check(sc.t, err)
	return s
}

// sync records that the upload was read back with the published keys.
func (sc *uploadScene) sync(n keystore.Name) {
	sc.t.Helper()
	sc.syncAt(n, time.Now())
}

func (sc *uploadScene) syncAt(n keystore.Name, at time.Time) {
	sc.t.Helper()
	var keys []keystore.VerificationKey
	s := sc.load(n)
	for _, k := range s.Keys() {
		keys = append(keys, k.VerificationKey)
	}
	_, err := sc.c.Records.Add(sc.t.Context(), n, observation.Subject{Issuer: party},
		observation.ReadBack(at, observation.Upload{By: "timer"}, keys))
	check(sc.t, err)
}

// want holds the trouble of the upload of a key set to what it is to be.
func (sc *uploadScene) want(when string, n keystore.Name, trouble verify.UploadTrouble) {
	sc.t.Helper()
	sc.wait(reread + time.Second)
	i := slices.IndexFunc(sc.Report().Uploads, func(u Upload) bool { return u.KeySet == n })
	if i < 0 {
		sc.t.Errorf("%s: the upload of %s is not watched", when, n)
		return
	}
	u := sc.Report().Uploads[i]
	if got, why := u.Trouble(); u.Upload != party || got != trouble || (why == "") != (got == "") {
		sc.t.Errorf("%s: %s of %s is %q, want %q: %s", when, u.Upload, n, got, trouble, why)
	}
}

// An upload is judged by what was read back of it last, from the first reading to the last.
func TestWatchKnowsWhatUploadsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newUploadScene(t)
		sc.name("prod-a", keystore.ReachCopies)
		first := sc.load("prod-a").Keys()[0].ID()
		next := storetest.Key(t)
		sc.run(t)
		sc.want("before any reading", "prod-a", verify.UploadUnread)
		if err := sc.Ready(); err != nil {
			t.Errorf("nobody else is to be looked at: %v", err)
		}
		sc.sync("prod-a")
		sc.want("uploaded", "prod-a", "")
		sc.change("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) { return s.Add(storetest.Change(0), next) })
		sc.want("with another key that signs nothing yet", "prod-a", verify.UploadBehind)
		sc.sync("prod-a")
		sc.want("uploaded again", "prod-a", "")
		sc.change("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Revoke(storetest.Change(0), first, keystore.RevokeOptions{})
		})
		sc.want("with a key that was revoked", "prod-a", verify.UploadBehind)
		sc.sync("prod-a")
		sc.want("without it", "prod-a", "")
		sc.syncAt("prod-a", time.Now().Add(-24*time.Hour))
		sc.want("a day later", "prod-a", verify.UploadStale)
		sc.sync("prod-a")
		sc.want("read back", "prod-a", "")

		// What cannot be read says so, and what is known stays.
		sc.change("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Add(storetest.Change(0), storetest.Key(t))
		})
		sc.want("with a third key", "prod-a", verify.UploadBehind)
		sc.back.Inject(func(context.Context, storetest.Op) (bool, error) { return false, errors.New("the bucket is gone") })
		sc.want("without the records", "prod-a", UploadNotCompared)
		sc.back.Inject(nil)
		sc.want("with them", "prod-a", verify.UploadBehind)
		sc.sync("prod-a")
		sc.want("with the third key", "prod-a", "")
		place := observation.Subject{Issuer: party}
		check(t, sc.c.Records.AddFailure(t.Context(), "prod-a", place, observation.Failed{At: time.Now(), Why: "there is no such provider"}))
		sc.want("after a try that failed", "prod-a", verify.UploadStale)
		sc.sync("prod-a")
		sc.want("read back again", "prod-a", "")

		sc.change("prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
			return s.Withdraw(storetest.Change(0))
		})
		sc.wait(reread + time.Second)
		if len(sc.Report().Uploads) > 0 {
			t.Errorf("of an issuer that was withdrawn: %+v", sc.Report().Uploads)
		}
		if log := sc.log.String(); strings.Count(log, "is not known to have") != 8 || strings.Count(log, "has the published keys") != 6 {
			t.Errorf("logged\n%s", log)
		}
	})
}

// Where the documents are read too, both are watched, and the worse counts; absence ends neither.
func TestWatchOfDocumentsAndUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newUploadScene(t)
		sc.name("both", "")
		sc.name("copies", keystore.ReachCopies)
		sc.add(t, "documents")
		sc.run(t)
		sc.wait(time.Minute)
		sc.want("before any reading", "both", verify.UploadUnread)
		for n, looked := range map[string]bool{"both": true, "copies": false, "documents": true} {
			if got := sc.count(n) > 0; got != looked {
				t.Errorf("%s was looked at: %v", n, got)
			}
		}
		sc.sync("both")
		sc.want("uploaded", "both", "")
		sc.store.Delete("both")
		sc.wait(reread + time.Second)
		if len(sc.Report().Uploads) != 2 {
			t.Errorf("an upload of a key set that is absent is not watched: %+v", sc.Report().Uploads)
		}
	})
}

// A watch that does not know where observations are says that it knows nothing.
func TestWatchOfUploadsWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := newUploadScene(t)
		sc.c.Records = nil
		sc.name("prod-a", keystore.ReachCopies)
		sc.run(t)
		sc.want("without records", "prod-a", UploadNotCompared)
		if err := sc.Ready(); err != nil {
			t.Error(err)
		}
	})
}
