package observation

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/policy"
	"github.com/keypost/keypost/keystore/storetest"
)

const anUpload = "gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"

func must(t *testing.T) func(s keystore.KeySet, err error) keystore.KeySet {
	return func(s keystore.KeySet, err error) keystore.KeySet {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// holding returns a key set whose policy names an upload, with one active key and one that is next.
func holding(t *testing.T, reach policy.Reach) (keystore.KeySet, []keystore.VerificationKey) {
	t.Helper()
	keys := []keystore.VerificationKey{storetest.Key(t), storetest.Key(t)}
	s := storetest.KeySet(t, "prod-a", keys[0])
	s = must(t)(s.SetPolicy(storetest.Change(0), keystore.Policy{RelyingParties: []string{anUpload}, Reach: reach}))
	return must(t)(s.Add(storetest.Change(0), keys[1])), keys
}

// A reading is recorded as a look is, under the upload's name, and one without a key ends the key's run.
func TestReadingsAreRecorded(t *testing.T) {
	st, dir := open(t)
	s, keys := holding(t, keystore.ReachCopies)
	place := Subject{Issuer: anUpload}
	for n, read := range [][]keystore.VerificationKey{keys[:1], keys, keys, keys[:1], keys} {
		l := ReadBack(minute(n), Upload{By: "cron"}, read)
		if n == 1 {
			l.Upload.Uploaded = minute(1)
		}
		if _, err := st.Add(t.Context(), "prod-a", place, l); err != nil {
			t.Fatal(err)
		}
	}
	records, err := st.Of(t.Context(), "prod-a")
	if err != nil || len(records) != 1 || records[0].Latest.Upload == nil || records[0].Latest.Upload.By != "cron" {
		t.Fatalf("%+v, %v", records, err)
	}
	r := Uploads(records)[0]
	if r.Upload != anUpload || !r.At.Equal(minute(4)) {
		t.Errorf("%+v", r)
	}
	for i, want := range []time.Time{minute(0), minute(4)} {
		has := func(k gate.ReadKey) bool { return k.Fingerprint == keys[i].Fingerprint() && k.Since.Equal(want) }
		if !slices.ContainsFunc(r.Keys, has) {
			t.Errorf("key %d: %+v; want it since %v", i, r.Keys, want)
		}
	}
	next, _ := s.Key(keys[1].ID())
	o := Of(Key{next.ID(), next.Fingerprint()}, records, Required(s))
	if len(o.Uploads) != 1 || !o.Since.IsZero() || len(Required(s)) != 0 {
		t.Errorf("%+v", o)
	}
	public, _ := holding(t, "")
	if len(Required(public)) != 1 {
		t.Error("what an issuer's public URLs publish is required beside uploads")
	}
	files, err := filepath.Glob(filepath.Join(dir, "prod-a-*.yaml"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(text), "issuer: "+anUpload) {
		t.Errorf("%s, %v", text, err)
	}
}

// A look at an issuer URL is never evidence of an upload, nor one from a vantage.
func TestOnlyReadingsCountForUploads(t *testing.T) {
	l := lookAt(1, []Key{a})
	for _, place := range []Subject{{Issuer: issuer}, {anUpload, "eu"}} {
		r := Record{KeySet: "prod-a", Issuer: place.Issuer, Vantage: place.Vantage}.With(l)
		if got := Uploads([]Record{r}); len(got) != 0 {
			t.Errorf("%v: %+v", place, got)
		}
	}
}

// A reading by a clock that is known to be off does not count.
func TestAReadingWhoseClockIsOff(t *testing.T) {
	_, keys := holding(t, keystore.ReachCopies)
	ahead := Offset(-time.Hour)
	l := ReadBack(minute(1), Upload{}, keys)
	l.ClockAhead = &ahead
	r := Record{KeySet: "prod-a", Issuer: anUpload}.With(l)
	if got := Uploads([]Record{r}); !got[0].At.IsZero() {
		t.Errorf("%+v", got)
	}
}

func TestUploadsOf(t *testing.T) {
	s, keys := holding(t, keystore.ReachCopies)
	stranger := storetest.Key(t)
	third := storetest.Key(t)
	after := must(t)(must(t)(s.Add(storetest.Change(0), third)).Remove(storetest.Change(0), third.ID(), keystore.Removal{NeverSigned: true}))
	revoked := must(t)(must(t)(s.Add(storetest.Change(0), third)).Revoke(keystore.Change{At: storetest.Time(0), Why: "stolen"}, third.ID(), keystore.RevokeOptions{}))
	alias, err := keys[0].WithID("another-kid", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		s      keystore.KeySet
		held   []keystore.VerificationKey // nil: never read
		state  UploadState
		broken bool
		says   string
	}{
		{"never read", s, nil, UploadUnread, true, "was never read back"},
		{"the published keys", s, keys, UploadCurrent, false, ""},
		{"without the next key", s, keys[:1], UploadBehind, false, "it did not have " + string(keys[1].ID())},
		{"without the key that signs", s, keys[1:], UploadBehind, true, "it did not have " + string(keys[0].ID())},
		{"the key that signs under another kid", s, []keystore.VerificationKey{alias, keys[1]}, UploadBehind, true, "another-kid, not published"},
		{"a key of somebody else", s, append(slices.Clone(keys), stranger), UploadBehind, true, "it had " + string(stranger.ID())},
		{"a key that was removed", after, append(slices.Clone(keys), third), UploadBehind, false, "it had " + string(third.ID())},
		{"a key that was revoked", revoked, append(slices.Clone(keys), third), UploadBehind, true, "it had " + string(third.ID())},
	} {
		var records []Record
		if tt.held != nil {
			records = append(records, Record{KeySet: "prod-a", Issuer: anUpload}.With(ReadBack(minute(1), Upload{By: "cron"}, tt.held)))
		}
		got := UploadsOf(tt.s, append(records, Record{KeySet: "prod-a", Issuer: issuer}.With(lookAt(1, []Key{a}))))
		if len(got) != 1 || got[0].State != tt.state || got[0].Broken != tt.broken || (got[0].Problem() == "") != (tt.says == "") || !strings.Contains(got[0].Problem(), tt.says) {
			t.Errorf("%s: %+v: %q", tt.name, got, got[0].Problem())
		}
	}
}

// The newest version never goes back unless that is forced, and one with a key that is gone from it does not become the newest,
// whatever its generation.
func TestTheNewestVersion(t *testing.T) {
	k := storetest.Key(t)
	restored := storetest.KeySet(t, "prod-a", storetest.Key(t), k)
	revoked := must(t)(restored.Revoke(storetest.Change(time.Hour), k.ID(), keystore.RevokeOptions{}))
	at := func(s keystore.KeySet, generation int64) keystore.KeySet {
		t.Helper()
		return must(t)(keystore.Parse("prod-a", []byte(strings.Replace(storetest.Text(t, s), "  generation: 1\n", fmt.Sprintf("  generation: %d\n", generation), 1))))
	}
	st, _ := open(t)
	about := Subject{Issuer: anUpload}
	for i, tt := range []struct {
		set    keystore.KeySet
		forced bool
		newest int64
		older  bool
	}{
		{at(revoked, 4), false, 4, false},
		{at(revoked, 3), false, 4, true},
		{at(restored, 6), false, 4, true},
		{at(revoked, 5), false, 5, false},
		{at(revoked, 5+keystore.MaxGenerationJump), false, 5, false},
		{at(restored, 6), true, 6, false},
	} {
		r, err := st.Mark(t.Context(), about, tt.set, tt.forced)
		if older := r.Older(tt.set); err != nil || r.Newest.Generation != tt.newest || (older != nil) != tt.older {
			t.Errorf("step %d: %+v, older %v, %v", i, r.Newest, older, err)
		}
	}
	first := restored.Keys()[0]
	for name, g := range map[string]Key{"by its ID": {ID: first.ID()}, "by its material": {ID: "another", Fingerprint: first.Fingerprint()}} {
		if older := (Record{Newest: &Version{Gone: []Key{g}}}).Older(restored); older == nil || !slices.Equal(older.Revived, []keystore.KeyID{first.ID()}) {
			t.Errorf("%s: %v", name, older)
		}
	}
}
