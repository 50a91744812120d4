package upload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/storetest"
)

// own is the issuer of the key set of these tests.
const own = "https://oidc.example.com/prod-a"

const party = "gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"

// fake is a relying party that holds a copy.
type fake struct {
	jwks     []byte
	issuer   string // "" for the key set's own
	uploads  int
	deaf     bool   // takes an upload and keeps what it has
	lost     error  // of an upload that has happened
	unread   error  // of reading
	refused  error  // why no token is taken
	onUpload func() // before it
	onRead   func() // after it, before anyone who reads has the answer
	ahead    time.Duration
	now      func() time.Time
}

func (f *fake) Upload(_ context.Context, jwks []byte) error {
	if f.onUpload != nil {
		f.onUpload()
	}
	f.uploads++
	if !f.deaf {
		f.jwks = slices.Clone(jwks)
	}
	return f.lost
}

func (f *fake) Read(context.Context) (Held, error) {
	r := Held{JWKS: f.jwks, Issuer: cmp.Or(f.issuer, own), Refused: f.refused}
	if f.ahead != 0 {
		r.Date = f.now().Add(-f.ahead)
	}
	if f.onRead != nil {
		f.onRead()
	}
	return r, f.unread
}

// world is a key set whose policy names a copy, and who uploads it.
type world struct {
	t  *testing.T
	u  Uploader
	st *keystore.Store
	at time.Time
}

func newWorld(t *testing.T, p keystore.Policy) *world {
	t.Helper()
	b, err := filestore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, st: storetest.NewMemStore(t).Store, at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s := storetest.KeySet(t, "prod-a")
	if err := keystore.Create(t.Context(), w.st, s); err != nil {
		t.Fatal(err)
	}
	w.change(func(s keystore.KeySet) (keystore.KeySet, error) { return s.SetPolicy(storetest.Change(0), p) })
	w.u = Uploader{Store: w.st, Records: observation.NewStore(b), By: "tester", Now: func() time.Time { return w.at }}
	return w
}

func named() keystore.Policy {
	return keystore.Policy{RelyingParties: []string{party}, Reach: keystore.ReachCopies}
}

func (w *world) change(step func(keystore.KeySet) (keystore.KeySet, error)) keystore.KeySet {
	w.t.Helper()
	s, err := keystore.Update(w.t.Context(), w.st, "prod-a", step)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) add() keystore.KeyID {
	w.t.Helper()
	k := storetest.Key(w.t)
	w.change(func(s keystore.KeySet) (keystore.KeySet, error) { return s.Add(storetest.Change(0), k) })
	return k.ID()
}

func (w *world) sync(c Holder) (Result, error) { return w.u.Sync(w.t.Context(), "prod-a", party, c) }

func (w *world) record() observation.Record {
	w.t.Helper()
	r, err := w.u.Records.Load(w.t.Context(), "prod-a", observation.Subject{Issuer: party})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// since returns since when the copy was read back with a key; zero if it was not.
func (w *world) since(id keystore.KeyID) time.Time {
	w.t.Helper()
	for _, s := range w.record().Seen {
		if s.ID == id {
			return s.Since
		}
	}
	return time.Time{}
}

func TestTheCopyGetsWhatIsPublished(t *testing.T) {
	w, c := newWorld(t, named()), &fake{jwks: []byte(`{"keys":[]}`)}
	r, err := w.sync(c)
	if err != nil || !r.Uploaded || c.uploads != 1 || !r.Read.Equal(w.at) {
		t.Fatalf("%+v, %v, %d uploads", r, err, c.uploads)
	}
	want, err := issuer.RenderJWKS(r.Set)
	if err != nil || string(c.jwks) != string(want) {
		t.Errorf("uploaded %s, served would be %s (%v)", c.jwks, want, err)
	}
	var members struct{ Keys []map[string]string }
	if err := json.Unmarshal(c.jwks, &members); err != nil || len(members.Keys) != 1 {
		t.Fatalf("%s: %v", c.jwks, err)
	}
	for m := range members.Keys[0] {
		if !strings.Contains(" kty alg use kid n e x y crv ", " "+m+" ") {
			t.Errorf("the member %s, which Google refuses", m)
		}
	}
	first := w.at
	w.at = w.at.Add(time.Hour)
	if r, err = w.sync(c); err != nil || r.Uploaded || c.uploads != 1 {
		t.Errorf("again: %+v, %v, %d uploads", r, err, c.uploads)
	}
	rec := w.record()
	if !w.since(r.Set.Keys()[0].ID()).Equal(first) || !rec.Complete.Equal(w.at) || rec.Latest.Upload.By != "tester" || rec.Newest.Generation != r.Set.Generation() {
		t.Errorf("%+v", rec)
	}
}

// What the copy was seen to be without before the upload counts anew from it.
func TestAKeyThatWasOverwrittenCountsAnew(t *testing.T) {
	w, c := newWorld(t, named()), &fake{}
	old, err := w.sync(c)
	if err != nil {
		t.Fatal(err)
	}
	id := w.add()
	without := slices.Clone(c.jwks)
	if _, err := w.sync(c); err != nil || !w.since(id).Equal(w.at) {
		t.Fatalf("%v", err)
	}
	w.at, c.jwks = w.at.Add(time.Hour), without
	if r, err := w.sync(c); err != nil || !r.Uploaded || !w.since(id).Equal(w.at) {
		t.Errorf("%+v, %v, since %v", r, err, w.since(id))
	}
	if got := w.since(old.Set.Keys()[0].ID()); !got.Equal(w.at.Add(-time.Hour)) {
		t.Errorf("the key that it had all the time, since %v", got)
	}
}

func TestWhatIsNotReadBackIsNotRecorded(t *testing.T) {
	w := newWorld(t, named())
	id := w.add()
	for name, c := range map[string]*fake{
		"an upload without effect":               {jwks: []byte(`{"keys":[]}`), deaf: true},
		"what nobody can read":                   {jwks: []byte(`not a JWKS`), deaf: true},
		"an upload that is refused":              {jwks: []byte(`{"keys":[]}`), deaf: true, lost: errors.New("403")},
		"an upload whose answer was lost":        {jwks: []byte(`{"keys":[]}`), lost: errors.New("connection reset")},
		"a relying party that cannot be read":    {unread: errors.New("403")},
		"one that fetches and holds nothing now": {unread: errors.New("it has no uploaded keys")},
	} {
		r, err := w.sync(c)
		if err == nil || !strings.HasPrefix(err.Error(), party+": ") {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if got := w.since(id); !got.IsZero() {
		t.Errorf("the key counts as held since %v", got)
	}
}

// A key set that changes during the upload is uploaded again: else a copy would be left with a key that was revoked meanwhile.
func TestTheKeySetChangesMeanwhile(t *testing.T) {
	w := newWorld(t, named())
	id := w.add()
	c := &fake{}
	c.onUpload = func() {
		c.onUpload = nil
		w.revoke(id)
	}
	r, err := w.sync(c)
	if err != nil || c.uploads != 2 || strings.Contains(string(c.jwks), string(id)) || len(r.Set.Keys()) != 1 {
		t.Errorf("%+v, %v, %d uploads of %s", r, err, c.uploads, c.jwks)
	}
	c.onUpload = func() { w.add() }
	c.jwks = nil
	if _, err := w.sync(c); err == nil || !strings.Contains(err.Error(), "again and again") {
		t.Errorf("it changes without end: %v", err)
	}
}

func TestWhatIsNotUploaded(t *testing.T) {
	for name, tt := range map[string]struct {
		policy keystore.Policy
		do     func(w *world)
		want   string
	}{
		"a copy that the policy does not name": {keystore.Policy{RelyingParties: []string{"gcp"}}, func(*world) {}, "does not name"},
		"more keys than an upload takes": {named(), func(w *world) {
			for range keystore.MaxRotating {
				w.add()
			}
		}, "publishes 9 keys, and an upload takes 8 at most"},
		"no key": {named(), func(w *world) {
			w.change(func(s keystore.KeySet) (keystore.KeySet, error) {
				return s.Revoke(keystore.Change{At: storetest.Time(time.Hour), Why: "stolen"}, s.Keys()[0].ID(), keystore.RevokeOptions{LeaveEmpty: true})
			})
		}, "publishes no key"},
		"a key set that was withdrawn": {named(), func(w *world) {
			w.change(func(s keystore.KeySet) (keystore.KeySet, error) { return s.Withdraw(storetest.Change(time.Hour)) })
		}, "was withdrawn"},
	} {
		w, c := newWorld(t, tt.policy), &fake{}
		tt.do(w)
		if _, err := w.sync(c); err == nil || !strings.Contains(err.Error(), tt.want) || c.uploads != 0 {
			t.Errorf("%s: %v, %d uploads", name, err, c.uploads)
		}
	}
}

// An upload that fails and has happened all the same has put older keys over newer ones, which another run has read back meanwhile.
func TestAFailedUploadIsNotTheLast(t *testing.T) {
	w, c := newWorld(t, named()), &fake{jwks: []byte(`{"keys":[]}`)}
	id := w.add()
	c.onUpload = func() {
		c.onUpload = nil
		w.revoke(id)
		w.synced(c)
		c.lost = errors.New("connection reset")
	}
	lost := lossy{c}
	if _, err := w.sync(lost); err != nil || strings.Contains(string(c.jwks), string(id)) {
		t.Errorf("%v, it holds %s", err, c.jwks)
	}
}

// lossy loses the answer to one upload.
type lossy struct{ *fake }

func (l lossy) Upload(ctx context.Context, jwks []byte) error {
	err := l.fake.Upload(ctx, jwks)
	l.lost = nil
	return err
}

// What another issuer has there is not overwritten: its tokens would be refused, and ours accepted as its own.
func TestAnotherIssuersPlaceIsLeftAlone(t *testing.T) {
	w, c := newWorld(t, named()), &fake{jwks: []byte(`{"keys":[]}`), issuer: "https://oidc.example.com/prod-b"}
	w.add()
	if r, err := w.sync(c); err == nil || !strings.Contains(err.Error(), "it takes tokens of the issuer https://oidc.example.com/prod-b, which is none of key set \"prod-a\"") || c.uploads != 0 || r.Uploaded {
		t.Errorf("%+v, %v, %d uploads", r, err, c.uploads)
	}
}

// full is a place without space.
type full struct{ keystore.Backend }

func (full) Get(context.Context, keystore.Name) ([]byte, keystore.Revision, error) {
	return nil, "", keystore.ErrNotFound
}

func (full) Put(context.Context, keystore.Name, keystore.Revision, []byte) (keystore.Revision, error) {
	return "", errors.New("no space left on device")
}

// Where the clocks differ the record does not count, and the result says so.
func TestClocksThatDiffer(t *testing.T) {
	w := newWorld(t, named())
	c := &fake{ahead: -30 * time.Second, now: func() time.Time { return w.at }}
	r, err := w.sync(c)
	if err != nil || r.ClockGap != "" || w.record().Complete.IsZero() {
		t.Errorf("30 s: %+v, %v", r, err)
	}
	w.at = w.at.Add(time.Hour)
	c.ahead = -2 * time.Hour
	if r, err = w.sync(c); err != nil || !strings.Contains(r.ClockGap, "differ by 2h") || w.record().Complete.Equal(w.at) {
		t.Errorf("2 h: %+v, %v", r, err)
	}
}

// TestAFailedReadingIsTold: what was read before no longer stands for the copy, until it is read again.
func TestAFailedReadingIsTold(t *testing.T) {
	w := newWorld(t, named())
	w.add()
	f := &fake{}
	w.synced(f)
	f.unread = errors.New("there is no such provider")
	if _, err := w.sync(f); err == nil {
		t.Error("no error")
	}
	if c := w.status(); c.Failed == nil || !strings.Contains(c.Problem(), " up to date failed at ") || !strings.Contains(c.Problem(), "there is no such provider") {
		t.Errorf("%+v: %s", c, c.Problem())
	}
	f.unread = nil
	if _, err := w.sync(f); err != nil || w.status().Problem() != "" {
		t.Errorf("after a success: %v, %s", err, w.status().Problem())
	}
}

// status returns how the upload compares with the key set, by its record.
func (w *world) status() observation.UploadStatus {
	w.t.Helper()
	return observation.UploadsOf(w.load(), []observation.Record{w.record()})[0]
}

// TestWhoTakesNoTokenIsTold: a provider that is disabled is brought up to date, and one that is gone or another issuer's is not.
func TestWhoTakesNoTokenIsTold(t *testing.T) {
	w := newWorld(t, named())
	w.add()
	f := &fake{refused: errors.New("it is disabled")}
	r, err := w.sync(f)
	if err != nil || !r.Uploaded || !errors.Is(r.Refused, f.refused) || r.Read.IsZero() {
		t.Errorf("disabled: %+v, %v", r, err)
	}
	if u := w.status(); u.State != observation.UploadCurrent || !strings.Contains(u.Problem(), "it is disabled") {
		t.Errorf("disabled: %+v", u)
	}
	f.refused = nil
	if r, err := w.sync(f); err != nil || r.Refused != nil || w.status().Problem() != "" {
		t.Errorf("enabled: %+v, %v, %s", r, err, w.status().Problem())
	}
	f.unread = &RefusedError{errors.New("it is deleted")}
	if _, err := w.sync(f); err == nil || !strings.Contains(w.status().Problem(), "it is deleted") {
		t.Errorf("deleted: %v, %s", err, w.status().Problem())
	}
}

func (w *world) revoke(id keystore.KeyID) {
	w.t.Helper()
	w.change(func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Revoke(keystore.Change{At: storetest.Time(time.Hour), Why: "stolen"}, id, keystore.RevokeOptions{})
	})
}

func (w *world) load() keystore.KeySet {
	w.t.Helper()
	s, _, err := w.st.Load(w.t.Context(), "prod-a")
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) synced(c Holder) {
	w.t.Helper()
	if _, err := w.sync(c); err != nil {
		w.t.Fatal(err)
	}
}

// A store that is behind, or a backup that was put back and changed since, would bring back a key that was revoked: nothing is
// uploaded, unless somebody says that it is the newest.
func TestAnOlderStoreIsNotUploaded(t *testing.T) {
	for name, later := range map[string]int{"behind": 0, "a backup that was changed once": 1, "a backup that was changed often": 3} {
		w, f := newWorld(t, named()), &fake{}
		id := w.add()
		backup := w.load()
		w.synced(f)
		w.revoke(id)
		w.synced(f)
		w.st = storetest.NewMemStore(t).Store
		if err := keystore.Create(t.Context(), w.st, backup); err != nil {
			t.Fatal(err)
		}
		w.u.Store = w.st
		for range later {
			w.add()
		}
		uploads := f.uploads
		_, err := w.sync(f)
		if _, is := errors.AsType[*OlderError](err); !is || f.uploads != uploads || strings.Contains(string(f.jwks), string(id)) {
			t.Errorf("%s: %v, %d uploads, %s", name, err, f.uploads, f.jwks)
		}
		if u := w.status(); u.Older == nil || !strings.Contains(u.Problem(), "the store is older than the upload") {
			t.Errorf("%s: %+v", name, u)
		}
		w.u.Force = true
		w.synced(f)
		w.u.Force = false
		if r, err := w.sync(f); err != nil || r.Uploaded || w.status().Problem() != "" {
			t.Errorf("%s: after it was forced: %+v, %v, %s", name, r, err, w.status().Problem())
		}
	}
}

// What is about to be uploaded is recorded before: a run that is killed leaves no older store that may upload.
func TestTheVersionIsRecordedBeforeTheUpload(t *testing.T) {
	w, f := newWorld(t, named()), &fake{}
	f.onUpload = func() {
		if newest := w.record().Newest; newest == nil || newest.Generation != w.load().Generation() {
			t.Errorf("while it uploads: %+v", newest)
		}
	}
	w.synced(f)
}

// Without a record nothing is uploaded: nobody could tell an older store from then on.
func TestNothingIsUploadedWithoutARecord(t *testing.T) {
	w, f := newWorld(t, named()), &fake{}
	w.u.Records = observation.NewStore(full{})
	if _, err := w.sync(f); err == nil || !strings.Contains(err.Error(), "no space left") || f.uploads != 0 {
		t.Errorf("%v, %d uploads", err, f.uploads)
	}
}
