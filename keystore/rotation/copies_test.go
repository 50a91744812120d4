package rotation_test

import (
	"context"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/rotation"
)

const copyOf = "gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"

// copied is a scene in which nobody reads the documents: one relying party holds a copy.
type copied struct {
	*scene
	held map[keystore.KeyID]time.Time // since when
	read time.Time
}

func (sc *copied) Recorded(_ context.Context, s keystore.KeySet, _ keystore.Key) (keystore.Observed, error) {
	if sc.read.IsZero() {
		return keystore.Observed{}, nil
	}
	r := gate.ReadBack{Upload: copyOf, At: sc.read}
	for _, k := range s.Keys() {
		if since, has := sc.held[k.ID()]; has {
			r.Keys = append(r.Keys, gate.ReadKey{ID: k.ID(), Fingerprint: k.Fingerprint(), Since: since})
		}
	}
	return keystore.Observed{Uploads: gate.Uploads{r}}, nil
}

// sync uploads what is published, and reads it back.
func (sc *copied) sync() {
	s, _, err := sc.store.Load(sc.t.Context(), "prod-a")
	check(sc.t, err)
	held := map[keystore.KeyID]time.Time{}
	for _, k := range s.Keys() {
		held[k.ID()] = sc.now
		if since, had := sc.held[k.ID()]; had {
			held[k.ID()] = since
		}
	}
	sc.held, sc.read = held, sc.now
}

func (sc *copied) driver() rotation.Driver {
	d := sc.scene.driver()
	d.Observer = sc
	return d
}

// TestARotationThroughACopy: each step that needs the copy waits for it, and nobody looks at a public address.
func TestARotationThroughACopy(t *testing.T) {
	sc := &copied{scene: newScene(t)}
	lifetime := keystore.Duration(time.Hour)
	_, err := keystore.Update(t.Context(), sc.store, "prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.SetPolicy(sc.change(), keystore.Policy{RelyingParties: []string{copyOf}, Reach: keystore.ReachCopies, TokenLifetime: &lifetime})
	})
	check(t, err)
	sc.sync()
	sc.start()
	for _, tt := range []struct {
		what  string
		after time.Duration
		do    func()
		want  string
	}{
		{"nobody has uploaded the new key, for days", 72 * time.Hour, nil, "waiting: copies"},
		{"it was uploaded this moment", 0, sc.sync, "waiting: copies"},
		{"a second too early", time.Hour + 2*time.Minute - time.Second, sc.sync, "waiting: copies"},
		{"time enough, and read back long ago", time.Hour, nil, "waiting: copies"},
		{"read back again", 0, sc.sync, "promote, waiting: signing"},
		{"both sign with the new key", time.Hour, func() {
			sc.signers = map[string]keystore.KeyID{"10.0.0.1:6443": sc.fresh.ID(), "10.0.0.2:6443": sc.fresh.ID()}
		}, "retire, waiting: tokens"},
		{"somebody has put the old upload back", time.Minute, func() {
			delete(sc.held, sc.fresh.ID())
			sc.read = sc.now
		}, "waiting: copies"},
		{"the tokens have expired, and the upload is still the old one", 2 * time.Hour, func() { sc.read = sc.now }, "waiting: copies"},
		{"uploaded again", 0, sc.sync, "waiting: copies"},
		{"a while after that", 2 * time.Hour, sc.sync, "remove, done"},
	} {
		sc.now = sc.now.Add(tt.after)
		if tt.do != nil {
			tt.do()
		}
		if got := sc.step(sc.driver()); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
	if sc.looks != 0 {
		t.Errorf("%d looks at public addresses that nobody reads", sc.looks)
	}
}

// The timetable counts from what was read back.
func TestTimetableOfACopy(t *testing.T) {
	sc := &copied{scene: newScene(t)}
	lifetime := keystore.Duration(time.Hour)
	s, _, err := sc.store.Load(t.Context(), "prod-a")
	check(t, err)
	s, err = s.SetPolicy(sc.change(), keystore.Policy{RelyingParties: []string{copyOf}, Reach: keystore.ReachCopies, TokenLifetime: &lifetime})
	check(t, err)
	s, err = s.StartRotation(sc.change(), sc.fresh)
	check(t, err)
	later := keystore.Change{At: t0.Add(30 * time.Minute)}
	if got, want := rotation.Timetable(later, s, keystore.Observed{})[0].Opens, t0.Add(92*time.Minute); !got.Equal(want) {
		t.Errorf("nothing was read back: %v, want %v", got, want)
	}
	read := gate.Uploads{{Upload: copyOf, At: t0, Keys: []gate.ReadKey{{ID: sc.fresh.ID(), Fingerprint: sc.fresh.Fingerprint(), Since: t0}}}}
	if got, want := rotation.Timetable(later, s, keystore.Observed{Uploads: read})[0].Opens, t0.Add(62*time.Minute); !got.Equal(want) {
		t.Errorf("it was read back at first: %v, want %v", got, want)
	}
}
