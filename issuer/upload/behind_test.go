package upload

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/storetest"
)

func (w *world) revoke(id keystore.KeyID) {
	w.t.Helper()
	w.change(func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Revoke(keystore.Change{At: storetest.Time(time.Hour), Why: "stolen"}, id, keystore.RevokeOptions{})
	})
}

// empty is a copy without keys.
func empty() *fake { return &fake{jwks: []byte(`{"keys":[]}`)} }

func (w *world) load() keystore.KeySet {
	w.t.Helper()
	s, _, err := w.st.Load(w.t.Context(), "prod-a")
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) synced(c Copy) {
	w.t.Helper()
	if _, err := w.sync(c); err != nil {
		w.t.Fatal(err)
	}
}

// putBack has the store be one with a version that was the key set's before.
func (w *world) putBack(version keystore.KeySet) {
	w.t.Helper()
	w.st = storetest.NewMemStore(w.t).Store
	if err := keystore.Create(w.t.Context(), w.st, version); err != nil {
		w.t.Fatal(err)
	}
	w.u.Store = w.st
}

// from is who uploads a version whatever has come after it, and records in the same place.
func (w *world) from(version keystore.KeySet) *world {
	behind := *w
	behind.u.Store = old{version}
	return &behind
}

// revoking is what a colleague does, once: they revoke a key, and upload what is left.
func (w *world) revoking(id keystore.KeyID, c *fake) func() {
	return func() {
		c.onUpload, c.onRead = nil, nil
		w.revoke(id)
		w.synced(c)
	}
}

// revoked uploads a key set with a key, and then without it, which is revoked. It returns the key, the version with it, and the copy.
func (w *world) revoked() (keystore.KeyID, keystore.KeySet, *fake) {
	w.t.Helper()
	id, c := w.add(), empty()
	backup := w.load()
	w.synced(c)
	w.revoke(id)
	w.at = w.at.Add(time.Hour)
	if _, err := w.sync(c); err != nil || strings.Contains(string(c.jwks), string(id)) {
		w.t.Fatalf("%v, it holds %s", err, c.jwks)
	}
	return id, backup, c
}

// A backup that is put back and changed has the generation of the newest version, or a later one: it is refused all the same.
func TestABackupThatWasChangedIsNotUploaded(t *testing.T) {
	for changes, want := range map[int]string{
		1: "is generation 4 in this store, and the copy was compared with generation 4, in which key",
		3: "is generation 6 in this store, and the copy was compared with generation 4, in which key",
	} {
		w := newWorld(t, named())
		id, restored, c := w.revoked()
		w.putBack(restored)
		for range changes {
			w.add()
		}
		_, err := w.sync(c)
		e, is := errors.AsType[*BehindError](err)
		if !is || e.Revived != id || e.Uploaded || !strings.Contains(err.Error(), want) || c.uploads != 2 {
			t.Errorf("%d changes: %v, %d uploads", changes, err, c.uploads)
		}
		w.u.Force = true
		if _, err := w.sync(c); err != nil || c.uploads != 3 {
			t.Errorf("forced: %v, %d uploads", err, c.uploads)
		}
		w.u.Force = false
		if _, err := w.sync(c); err != nil || c.uploads != 3 {
			t.Errorf("what was forced is the newest from then on: %v, %d uploads", err, c.uploads)
		}
	}
}

// Of two versions of one generation nobody knows which is the newer one, whether a key has left or not.
func TestAnotherVersionOfOneGenerationIsNotUploaded(t *testing.T) {
	w, c := newWorld(t, named()), empty()
	other := w.load()
	w.add()
	w.synced(c)
	w.putBack(other)
	w.add()
	if _, err := w.sync(c); err == nil || !strings.Contains(err.Error(), "was compared with another version of that generation already, so nothing is uploaded") || c.uploads != 1 {
		t.Errorf("%v, %d uploads", err, c.uploads)
	}
}

// A run of a store that is behind may be so slow that somebody uploads the newest version after it has asked. It says what it has
// done, and leaves the record at the newest version.
func TestASlowRunOfAStoreThatIsBehind(t *testing.T) {
	w, c := newWorld(t, named()), empty()
	id := w.add()
	behind := w.load()
	slow := w.from(behind)
	c.onUpload = w.revoking(id, c)
	r, err := slow.sync(c)
	e, is := errors.AsType[*BehindError](err)
	if !is || !e.Uploaded || !r.Uploaded || !strings.Contains(err.Error(), "may have brought back a key that was revoked: upload from the store that has the newest, at once") {
		t.Errorf("uploaded %t, %v", r.Uploaded, err)
	}
	if said := w.copy().Failure(); !strings.Contains(said, "may have brought back a key") {
		t.Errorf("the record says %q", said)
	}
	if _, err := slow.sync(c); err == nil || w.record().NewestCompared().Generation != behind.Generation()+1 {
		t.Errorf("again: %v, recorded %+v", err, w.record().NewestCompared())
	}
	if _, err := w.sync(c); err != nil || strings.Contains(string(c.jwks), string(id)) || w.copy().Problem() != "" {
		t.Errorf("from the newest: %v, %s", err, w.copy().Problem())
	}
}

// What somebody records after this run has asked, and before it uploads, is seen.
func TestWhatIsRecordedBeforeTheUploadCounts(t *testing.T) {
	w, c := newWorld(t, named()), empty()
	id := w.add()
	behind := w.load()
	c.onRead = w.revoking(id, c)
	_, err := w.from(behind).sync(c)
	if e, is := errors.AsType[*BehindError](err); !is || e.Uploaded || c.uploads != 1 || strings.Contains(string(c.jwks), string(id)) {
		t.Errorf("%v, %d uploads, %s", err, c.uploads, c.jwks)
	}
}

// A backup that was put back and changed is refused also where the newest version is recorded only after this run has asked: it neither
// uploads nor takes the place of the newest, which goes on.
func TestABackupThatRunsBesideTheNewest(t *testing.T) {
	w, c := newWorld(t, named()), empty()
	id := w.add()
	restored := w.load()
	w.synced(c)
	backup := *w
	backup.putBack(restored)
	for range 3 {
		backup.add()
	}
	w.revoke(id)
	c.onRead = func() {
		c.onRead = nil
		w.synced(c)
	}
	r, err := backup.sync(c)
	if e, is := errors.AsType[*BehindError](err); !is || e.Revived != id || e.Uploaded || r.Uploaded || strings.Contains(string(c.jwks), string(id)) {
		t.Errorf("%v, uploaded %t, it holds %s", err, r.Uploaded, c.jwks)
	}
	if newest := w.record().NewestCompared(); newest.Generation != restored.Generation()+1 {
		t.Errorf("generation %d is recorded as the newest", newest.Generation)
	}
	if _, err := w.sync(c); err != nil || w.copy().Problem() != "" {
		t.Errorf("from the newest: %v, %s", err, w.copy().Problem())
	}
}

// A colleague whose clock is behind records the newest version too, although their reading is not the latest by its date.
func TestANewerVersionCountsWhateverItsClockSays(t *testing.T) {
	w, c := newWorld(t, named()), empty()
	id := w.add()
	behind := w.load()
	w.synced(c)
	w.revoke(id)
	w.at = w.at.Add(-time.Minute)
	w.synced(c)
	w.u.Store, w.at = old{behind}, w.at.Add(time.Hour)
	_, err := w.sync(c)
	if _, is := errors.AsType[*BehindError](err); !is || strings.Contains(string(c.jwks), string(id)) {
		t.Errorf("%v, it holds %s", err, c.jwks)
	}
}

// Who writes observations can hold up an upload, by a generation that is none: the failure is recorded, where an alert sees it.
func TestAnUploadThatIsHeldUpIsRecorded(t *testing.T) {
	w, c := newWorld(t, named()), empty()
	w.add()
	w.synced(c)
	look := observation.ReadBack(w.at.Add(time.Minute), observation.Upload{By: "somebody", Generation: 1 << 62, Compared: &observation.Compared{Generation: 1 << 62}}, nil)
	if _, err := w.u.Records.Add(t.Context(), "prod-a", observation.Place{Issuer: party}, look); err != nil {
		t.Fatal(err)
	}
	w.at = w.at.Add(time.Hour)
	if _, err := w.sync(c); err == nil || !strings.Contains(w.copy().Failure(), "compared with generation 4611686018427387904 already, so nothing is uploaded") {
		t.Errorf("%v: %q", err, w.copy().Failure())
	}
	w.u.Force = true
	if _, err := w.sync(c); err != nil || w.copy().Failed != nil {
		t.Errorf("forced: %v, %q", err, w.copy().Failure())
	}
}

// broken is a place of records in which they are damaged, or that nobody reaches.
type broken struct {
	keystore.Backend
	err error
}

func (b broken) Get(context.Context, keystore.Name) ([]byte, keystore.Revision, error) {
	return []byte("x"), "1", b.err
}

// Who damages the record must not bring back a key that was revoked: of a store that may be behind no key is added to a copy.
func TestARecordThatCannotBeLoadedAddsNoKey(t *testing.T) {
	for want, b := range map[string]broken{
		"it does not fit the form of an observation": {},
		"permission denied":                          {err: errors.New("permission denied")},
	} {
		w := newWorld(t, named())
		id, behind, c := w.revoked()
		held := slices.Clone(c.jwks)
		w.u.Records = observation.NewStore(b)
		w.u.Store = old{behind}
		r, err := w.sync(c)
		e, is := errors.AsType[*UnknownError](err)
		if !is || e.Key != id || r.Uploaded || c.uploads != 2 || !bytes.Equal(c.jwks, held) {
			t.Errorf("%v, uploaded %t, it holds %s", err, r.Uploaded, c.jwks)
		}
		said := `what was recorded of the copy cannot be loaded, so whether key set "prod-a" is behind in this store is not known, and key ` + string(id) +
			", which the copy lacks, may have been revoked, so nothing is uploaded"
		if got := err.Error(); !strings.Contains(got, said) || !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%s; want %s … %s", got, said, want)
		}
		w.u.Force = true
		if r, err := w.sync(c); err == nil || !r.Uploaded || !strings.Contains(err.Error(), "were uploaded, and that is not recorded") || !strings.Contains(err.Error(), want) || !strings.Contains(string(c.jwks), string(id)) {
			t.Errorf("forced: %v, uploaded %t, it holds %s", err, r.Uploaded, c.jwks)
		}
		w.u.Force, w.u.Store = false, w.st // which takes the key away, and adds none
		if _, err := w.sync(c); err == nil || !strings.Contains(err.Error(), want) || !bytes.Equal(c.jwks, held) {
			t.Errorf("a revocation: %v, it holds %s", err, c.jwks)
		}
		c.jwks = []byte(`{"keys":[]}`)
		if _, err := w.sync(c); err == nil || !bytes.Equal(c.jwks, held) {
			t.Errorf("a copy without keys: %v, it holds %s", err, c.jwks)
		}
		c.jwks = []byte(`{"keys":[{"kty":"unheard-of"}]}`)
		if _, err := w.sync(c); err == nil || bytes.Equal(c.jwks, held) {
			t.Errorf("a copy that is not read: %v, it holds %s", err, c.jwks)
		}
	}
}

// readOnly is a place of records that this run cannot write.
type readOnly struct{ keystore.Backend }

func (readOnly) Put(context.Context, keystore.Name, keystore.Revision, []byte) (keystore.Revision, error) {
	return "", errors.New("no space left on device")
}

// A run that cannot record asks again before it uploads: somebody may have recorded the newest version since it asked first.
func TestARunThatCannotRecordAsksAgain(t *testing.T) {
	w, c := newWorld(t, named()), empty()
	b, err := filestore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w.u.Records = observation.NewStore(b)
	id := w.add()
	behind := w.load()
	slow := w.from(behind)
	slow.u.Records = observation.NewStore(readOnly{b})
	c.onRead = w.revoking(id, c)
	_, err = slow.sync(c)
	if _, is := errors.AsType[*BehindError](err); !is || strings.Contains(string(c.jwks), string(id)) {
		t.Errorf("%v, it holds %s", err, c.jwks)
	}
}

// A backup with a place for observations that is empty, by a mistyped URL, knows nothing of the keys that came since: nothing is
// uploaded, however often it is tried.
func TestAnOlderStoreWithoutRecordsIsNotUploaded(t *testing.T) {
	w := newWorld(t, named())
	_, backup, c := w.revoked()
	replacement := w.add()
	w.synced(c)
	held := string(c.jwks)
	older := w.from(backup)
	older.u.Records = observation.NewStore(storetest.NewMemory(t))
	for range 2 {
		r, err := older.sync(c)
		e, is := errors.AsType[*BehindError](err)
		if !is || !slices.Equal(e.Unknown, []keystore.KeyID{replacement}) || r.Uploaded || string(c.jwks) != held {
			t.Fatalf("uploaded %t, %v", r.Uploaded, err)
		}
	}
	older.u.Force = true
	if _, err := older.sync(c); err != nil || string(c.jwks) == held {
		t.Errorf("forced: %v", err)
	}
}

// A store and the records of one backup agree with each other. What the copy has lost since that backup is told, once; a key that it never had,
// or that the store takes away, is none of these.
func TestWhatTheCopyHasLostIsTold(t *testing.T) {
	w, c := newWorld(t, named()), empty()
	w.synced(c)
	id := w.add()
	if r, err := w.sync(c); err != nil || len(r.Lost) > 0 {
		t.Errorf("a key that is new: %v, lost %q", err, r.Lost)
	}
	had, backup := w.at, w.load()
	b, err := filestore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	older := w.from(backup)
	older.u.Records = observation.NewStore(b)
	if r, err := older.sync(c); err != nil || r.Uploaded { // the records of that time
		t.Fatalf("uploaded %t, %v", r.Uploaded, err)
	}
	w.revoke(id)
	w.at = w.at.Add(time.Hour)
	if r, err := w.sync(c); err != nil || !r.Uploaded || len(r.Lost) > 0 {
		t.Errorf("a revocation: uploaded %t, %v, lost %q", r.Uploaded, err, r.Lost)
	}
	if r, err := older.sync(c); err != nil || !slices.Equal(r.Lost, []keystore.KeyID{id}) || !r.Had.Equal(had) {
		t.Errorf("put back: %v, lost %q, which it had at %s", err, r.Lost, r.Had)
	}
	if r, err := older.sync(c); err != nil || len(r.Lost) > 0 {
		t.Errorf("again: %v, lost %q", err, r.Lost)
	}
}

// Once every key of a backup has been replaced, the copy has none of its keys, as another's has: that the copy is the key set's does not say
// that the store is the newest.
func TestToAdoptACopyDoesNotSayThatTheStoreIsTheNewest(t *testing.T) {
	of := newWorld(t, named())
	c := empty()
	of.synced(c)
	held := string(c.jwks)
	older := newWorld(t, named())
	older.u.Adopt = true
	for range 2 {
		r, err := older.sync(c)
		e, is := errors.AsType[*BehindError](err)
		if !is || !slices.Equal(e.Unknown, []keystore.KeyID{of.load().Keys()[0].ID()}) || r.Uploaded || string(c.jwks) != held {
			t.Fatalf("uploaded %t, %v", r.Uploaded, err)
		}
	}
	c.jwks = []byte(`{"keys":[{"kty":"unheard-of"}]}`)
	_, err := older.sync(c)
	if _, is := errors.AsType[*UnrecordedError](err); !is || c.uploads != 1 {
		t.Errorf("a copy that is not read: %v, %d uploads", err, c.uploads)
	}
	c.jwks, older.u.Force = []byte(held), true
	if r, err := older.sync(c); err != nil || !r.Adopted || !r.Uploaded {
		t.Errorf("both are said: uploaded %t, adopted %t, %v", r.Uploaded, r.Adopted, err)
	}
}

// In a place where nothing was recorded, as one that was lost or mistyped, a store that was put back would bring back a key that was revoked,
// and nothing shows that it is older: no key is added to a copy that has some, however often it is tried. What takes keys away goes on.
func TestACopyOfWhichNothingWasRecordedIsNotAddedTo(t *testing.T) {
	w := newWorld(t, named())
	id, backup, c := w.revoked()
	held := string(c.jwks)
	older := w.from(backup)
	older.u.Records, older.u.Place = observation.NewStore(storetest.NewMemory(t)), "file://./typo"
	want := `nothing was recorded of the copy in file://./typo, so whether a key of key set "prod-a" was taken away from it is unknown, and key ` + string(id) +
		", which the copy lacks, may have been revoked, so nothing is uploaded"
	for _, adopt := range []bool{false, true, false} {
		older.u.Adopt = adopt
		r, err := older.sync(c)
		e, is := errors.AsType[*UnrecordedError](err)
		if !is || e.Key != id || r.Uploaded || string(c.jwks) != held || !strings.Contains(err.Error(), want) {
			t.Fatalf("adopt %t: uploaded %t, %v", adopt, r.Uploaded, err)
		}
		if said := older.copy().Failure(); !strings.Contains(said, "nothing was recorded of the copy in file://./typo") || older.copy().State != observation.CopyUnread {
			t.Errorf("the record says %q", said)
		}
	}
	c.jwks = []byte(`{"keys":[{"kty":"unheard-of"}]}`)
	if _, err := older.sync(c); err == nil || c.uploads != 2 {
		t.Errorf("a copy that is not read: %v, %d uploads", err, c.uploads)
	}
	c.jwks = []byte(held)
	older.u.Force = true
	if _, err := older.sync(c); err != nil || !strings.Contains(string(c.jwks), string(id)) {
		t.Errorf("forced: %v", err)
	}

	newest := *w
	newest.u.Records = observation.NewStore(storetest.NewMemory(t))
	if _, err := newest.sync(c); err != nil || string(c.jwks) != held {
		t.Errorf("a revocation: %v, it holds %s", err, c.jwks)
	}
	newest.u.Records = observation.NewStore(storetest.NewMemory(t))
	if r, err := newest.sync(c); err != nil || r.Uploaded {
		t.Errorf("what is published: %v, uploaded %t", err, r.Uploaded)
	}
	newest.add() // what was read counts from then on
	if r, err := newest.sync(c); err != nil || !r.Uploaded {
		t.Errorf("a key that is added afterwards: %v, uploaded %t", err, r.Uploaded)
	}
	newest.u.Records = observation.NewStore(storetest.NewMemory(t))
	if r, err := newest.sync(empty()); err != nil || !r.Uploaded {
		t.Errorf("a new copy: %v, uploaded %t", err, r.Uploaded)
	}
}

// A revoked key that somebody puts back is told of, although the store has had it. One that is only now taken away is not.
func TestARevokedKeyThatIsPutBackIsTold(t *testing.T) {
	w, c := newWorld(t, named()), empty()
	id := w.add()
	w.synced(c)
	with := c.jwks
	w.revoke(id)
	w.at = w.at.Add(time.Hour)
	if r, err := w.sync(c); err != nil || len(r.Back) > 0 || w.copy().Problem() != "" {
		t.Fatalf("taken away: %v, back %q, %s", err, r.Back, w.copy().Problem())
	}
	c.jwks, w.at = with, w.at.Add(time.Hour)
	r, err := w.sync(c)
	if err != nil || !slices.Equal(r.Back, []keystore.KeyID{id}) || !r.Uploaded || strings.Contains(string(c.jwks), string(id)) {
		t.Errorf("put back: %v, %+v", err, r)
	}
	want := string(id) + " (taken away before), which the store never had or has taken away"
	for range 2 { // the next reading does not end it
		if said := w.copy().Intrusion(); !strings.Contains(said, want) {
			t.Errorf("the record says %q", said)
		}
		w.at = w.at.Add(time.Hour)
		if r, err := w.sync(c); err != nil || len(r.Back) > 0 || r.Uploaded {
			t.Errorf("then: %v, %+v", err, r)
		}
	}
}
