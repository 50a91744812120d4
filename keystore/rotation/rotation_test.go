package rotation_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/rotation"
	"github.com/keypost/keypost/keystore/storetest"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// scene is a key set in a store, a cluster that signs with its first key, and a clock.
type scene struct {
	t          *testing.T
	now        time.Time
	memory     *storetest.Memory
	store      *keystore.Store
	old, fresh keystore.VerificationKey
	since      time.Time // when the world first saw the new key; zero: not yet
	looks      int
	blind      bool // looks show nothing
	stale      bool // the latest look was long ago
	signers    map[string]keystore.KeyID
	staged     []keystore.KeyID
	stageErr   error
	signersErr error
	lists      map[string]bool
	listsErr   error
	lifetime   rotation.Lifetime

	lifetimeErr error
}

func newScene(t *testing.T) *scene {
	t.Helper()
	lifetime := keystore.Duration(time.Hour)
	return newSceneDeclaring(t, &lifetime)
}

// newSceneDeclaring has a policy with a lifetime of tokens, or nil.
func newSceneDeclaring(t *testing.T, lifetime *keystore.Duration) *scene {
	t.Helper()
	memory := storetest.NewMemory(t)
	sc := &scene{t: t, now: t0, memory: memory, store: keystore.NewStore(memory), old: storetest.Key(t), fresh: storetest.Key(t)}
	sc.signers = map[string]keystore.KeyID{"10.0.0.1:6443": sc.old.ID(), "10.0.0.2:6443": sc.old.ID()}
	s, err := keystore.New(sc.change(), keystore.Spec{Name: "prod-a", Issuers: storetest.URLs(t, "https://oidc.example.com/prod-a"),
		Keys: []keystore.VerificationKey{sc.old}, Policy: keystore.Policy{RelyingParties: []string{"aws"}, TokenLifetime: lifetime}})
	check(t, err)
	check(t, keystore.Create(t.Context(), sc.store, s))
	return sc
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (sc *scene) change() keystore.Change { return keystore.Change{At: sc.now, By: "tester"} }

func (sc *scene) start() {
	sc.t.Helper()
	_, err := keystore.Update(sc.t.Context(), sc.store, "prod-a", func(s keystore.KeySet) (keystore.KeySet, error) { return s.StartRotation(sc.change(), sc.fresh) })
	check(sc.t, err)
}

func (sc *scene) driver() rotation.Driver {
	return rotation.Driver{Store: sc.store, Observer: sc, Cluster: sc, Change: sc.change}
}

// step returns what a run says, as one line.
func (sc *scene) step(d rotation.Driver) string {
	sc.t.Helper()
	o, err := d.Step(sc.t.Context(), "prod-a")
	if err != nil {
		return "error: " + err.Error()
	}
	var words []string
	for _, took := range o.Took {
		words = append(words, string(took.Step))
	}
	switch {
	case o.Waiting != nil:
		words = append(words, "waiting: "+string(o.Waiting.Gate))
	default:
		words = append(words, "done")
	}
	if o.ByHand != "" {
		words = append(words, "by hand: "+o.ByHand)
	}
	return strings.Join(words, ", ")
}

func (sc *scene) Recorded(context.Context, keystore.KeySet, keystore.Key) (keystore.Observed, error) {
	if sc.since.IsZero() {
		return keystore.Observed{}, nil
	}
	if sc.stale {
		return keystore.Observed{Since: sc.since, Fresh: sc.now.Add(-time.Hour)}, nil
	}
	return keystore.Observed{Since: sc.since, Fresh: sc.now.Add(-time.Minute)}, nil
}

func (sc *scene) Look(context.Context, keystore.KeySet) error {
	sc.looks++
	sc.stale = false
	if !sc.blind && sc.since.IsZero() {
		sc.since = sc.now
	}
	return nil
}

func (sc *scene) Signers(context.Context) (map[string]keystore.KeyID, error) {
	return maps.Clone(sc.signers), sc.signersErr
}

func (sc *scene) Lists(context.Context, keystore.VerificationKey) (map[string]bool, error) {
	return maps.Clone(sc.lists), sc.listsErr
}

func (sc *scene) Stage(_ context.Context, k keystore.Key) error {
	if k.State != keystore.Active {
		sc.t.Errorf("key %s is handed over while it is %s", k.ID(), k.State)
	}
	sc.staged = append(sc.staged, k.ID())
	return sc.stageErr
}

func (sc *scene) Lifetime(context.Context) (rotation.Lifetime, error) {
	return sc.lifetime, sc.lifetimeErr
}

// A kube-apiserver that does not list the new key, although another does, would refuse the other's tokens. One that cannot be asked, or
// a cluster where none lists it, holds nothing up.
func TestPromotionWaitsUntilTheKeyIsListed(t *testing.T) {
	for what, tt := range map[string]struct {
		lists map[string]bool
		err   error
		want  string
	}{
		"all":              {map[string]bool{"a": true, "b": true}, nil, "promote, waiting: signing"},
		"none":             {map[string]bool{"a": false, "b": false}, nil, "promote, waiting: signing"},
		"one does not":     {map[string]bool{"a": true, "b": false}, nil, "waiting: signing"},
		"one is away":      {map[string]bool{"a": true}, errors.New("b is away"), "promote, waiting: signing"},
		"nobody was asked": {nil, errors.New("forbidden"), "promote, waiting: signing"},
	} {
		sc := newScene(t)
		sc.since = t0
		sc.start()
		sc.now = sc.now.Add(100 * time.Hour)
		sc.lists, sc.listsErr = tt.lists, tt.err
		if got := sc.step(sc.driver()); got != tt.want {
			t.Errorf("%s: %s, want %s", what, got, tt.want)
		}
		if tt.want != "waiting: signing" {
			continue
		}
		o, err := sc.driver().Step(t.Context(), "prod-a")
		check(t, err)
		if !strings.Contains(o.Waiting.Need, "the kube-apiserver b does not list it") {
			t.Errorf("%s: %v", what, o.Waiting)
		}
	}
}

// TestTokensThatLiveForLonger: what the policy declares is no more than a word.
func TestTokensThatLiveForLonger(t *testing.T) {
	const refusal = "error: the policy says that tokens live for at most 1h0m0s, but pod ns/app asks for tokens of 1h0m1s, which would be refused once the old key is removed"
	sc := newScene(t)
	sc.since = t0
	sc.start()
	sc.now = sc.now.Add(100 * time.Hour)
	sc.lifetime = rotation.Lifetime{Longest: time.Hour + time.Second, For: "pod ns/app"}
	for _, tt := range []struct {
		what string
		do   func()
		want string
	}{
		{"nothing is retired yet", func() {}, "promote, waiting: signing"},
		{"it asks for longer before the old key is retired", func() {
			sc.signers = map[string]keystore.KeyID{"10.0.0.1:6443": sc.fresh.ID(), "10.0.0.2:6443": sc.fresh.ID()}
		}, refusal},
		{"exactly what is declared", func() { sc.lifetime.Longest = time.Hour }, "retire, waiting: tokens"},
		{"it asks for longer after that", func() { sc.lifetime.Longest, sc.now = time.Hour+time.Second, sc.now.Add(100*time.Hour) }, refusal},
		{"nobody knows", func() { sc.lifetime = rotation.Lifetime{Unknown: "may not list pods"} }, "remove, done"},
	} {
		tt.do()
		if got := sc.step(sc.driver()); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}

// TestUndeclaredLifetime: what is measured declares nothing, so that the key stays.
func TestUndeclaredLifetime(t *testing.T) {
	sc := newSceneDeclaring(t, nil)
	sc.since = t0
	sc.start()
	sc.now = sc.now.Add(100 * time.Hour)
	sc.signers = map[string]keystore.KeyID{"10.0.0.1:6443": sc.fresh.ID()}
	sc.lifetime = rotation.Lifetime{Longest: time.Hour, For: "pod ns/app"}
	if got, want := sc.step(sc.driver()), "promote, retire, waiting: "+string(gate.GateUndeclared); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAWholeRotation(t *testing.T) {
	sc := newScene(t)
	if got := sc.step(sc.driver()); got != "done" {
		t.Errorf("nothing was started: %s", got)
	}
	sc.start()
	for _, tt := range []struct {
		after time.Duration
		do    func()
		want  string
	}{
		{0, func() { sc.blind = true }, "waiting: observed"},
		{0, func() { sc.blind = false }, "waiting: caches"},
		{25*time.Hour + 13*time.Minute + 14*time.Second, nil, "waiting: caches"},
		{time.Second, nil, "promote, waiting: signing"},
		{time.Hour, func() { sc.signers["10.0.0.1:6443"] = sc.fresh.ID() }, "waiting: signing"},
		{time.Hour, func() { sc.signers["10.0.0.2:6443"] = sc.fresh.ID() }, "retire, waiting: tokens"},
		{time.Hour + 6*time.Minute - time.Second, nil, "waiting: tokens"},
		{time.Second, nil, "remove, done"},
		{time.Hour, nil, "done"},
	} {
		sc.now = sc.now.Add(tt.after)
		if tt.do != nil {
			tt.do()
		}
		if got := sc.step(sc.driver()); got != tt.want {
			t.Fatalf("at %v: %s; want %s", sc.now.Sub(t0), got, tt.want)
		}
	}
	if !slices.Equal(sc.staged, []keystore.KeyID{sc.fresh.ID(), sc.fresh.ID()}) || sc.looks != 2 {
		t.Errorf("staged %v, %d looks", sc.staged, sc.looks)
	}
}

// Without a cluster only the store's half is done, and nobody is believed to sign with anything.
func TestWithoutACluster(t *testing.T) {
	sc := newScene(t)
	sc.start()
	sc.since, sc.now = t0, t0.Add(48*time.Hour)
	d := sc.driver()
	d.Cluster = nil
	by := ", by hand: " + rotation.ByHand(sc.fresh.ID()).Do
	if got := sc.step(d); got != "promote, waiting: signing"+by {
		t.Error(got)
	}
	if got := sc.step(d); got != "waiting: signing"+by {
		t.Error(got)
	}
}

// A record that has become too old is looked at again, and the gate that was open opens.
func TestAnOldRecordIsLookedAtAgain(t *testing.T) {
	sc := newScene(t)
	sc.start()
	sc.since, sc.now, sc.stale = t0, t0.Add(48*time.Hour), true
	if got := sc.step(sc.driver()); got != "promote, waiting: signing" || sc.looks != 1 {
		t.Errorf("%s after %d looks", got, sc.looks)
	}
}

func TestAClusterThatDoesNotAnswer(t *testing.T) {
	sc := newScene(t)
	sc.start()
	sc.since, sc.now = t0, t0.Add(48*time.Hour)
	sc.signersErr = errors.New("10.0.0.2:6443 does not answer")
	if got := sc.step(sc.driver()); got != "error: 10.0.0.2:6443 does not answer" {
		t.Error(got)
	}
	sc.signersErr, sc.lifetimeErr = nil, errors.New("10.0.0.1:6443 lists no pods")
	sc.signers = map[string]keystore.KeyID{"10.0.0.1:6443": sc.fresh.ID()}
	if got := sc.step(sc.driver()); got != "error: 10.0.0.1:6443 lists no pods" {
		t.Error(got)
	}
	sc.lifetimeErr, sc.signers = nil, nil
	if got := sc.step(sc.driver()); !strings.Contains(got, "names no kube-apiserver") {
		t.Error(got)
	}
	sc.signers = map[string]keystore.KeyID{"10.0.0.1:6443": "a-key-that-nobody-published"}
	if got := sc.step(sc.driver()); got != "waiting: signing" {
		t.Error(got)
	}
}

func TestByHand(t *testing.T) {
	sc := newScene(t)
	sc.start()
	sc.since, sc.now = t0, t0.Add(48*time.Hour)
	sc.stageErr = fmt.Errorf("stage: %w", &rotation.ByHandError{Do: "restart them"})
	if got := sc.step(sc.driver()); got != "promote, waiting: signing, by hand: restart them" {
		t.Error(got)
	}
	sc.stageErr = errors.New("forbidden")
	if got := sc.step(sc.driver()); got != "error: forbidden" {
		t.Error(got)
	}
}

// Two that run at once take each step once, and both come to the same end.
func TestTwoAtOnce(t *testing.T) {
	sc := newScene(t)
	sc.start()
	sc.since, sc.now = t0, t0.Add(48*time.Hour)
	sc.signers = map[string]keystore.KeyID{"10.0.0.1:6443": sc.fresh.ID()}
	other, took := sc.driver(), 0
	d := sc.driver()
	d.Observer = meanwhile{sc, func() {
		o, err := other.Step(t.Context(), "prod-a")
		check(t, err)
		took += len(o.Took)
	}}
	o, err := d.Step(t.Context(), "prod-a")
	check(t, err)
	if took != 2 || len(o.Took) != 0 || o.Waiting == nil || o.Waiting.Gate != gate.GateTokens {
		t.Errorf("the faster one took %d steps, the other %v and waits for %+v", took, o.Took, o.Waiting)
	}
}

// meanwhile is an Observer during whose answer something happens.
type meanwhile struct {
	*scene
	happens func()
}

func (m meanwhile) Recorded(ctx context.Context, s keystore.KeySet, k keystore.Key) (keystore.Observed, error) {
	m.happens()
	return m.scene.Recorded(ctx, s, k)
}

// A rotation that was turned around between two looks is not stepped on with what was seen before.
func TestTurnedAroundMeanwhile(t *testing.T) {
	sc := newScene(t)
	sc.start()
	sc.since, sc.now = t0, t0.Add(48*time.Hour)
	d := sc.driver()
	d.Observer = meanwhile{sc, func() {
		_, err := keystore.Update(t.Context(), sc.store, "prod-a", func(s keystore.KeySet) (keystore.KeySet, error) { return s.RollBack(sc.change()) })
		check(t, err)
	}}
	o, err := d.Step(t.Context(), "prod-a")
	check(t, err)
	if k, _ := o.Set.Key(sc.fresh.ID()); k.State != keystore.Retired || o.Waiting == nil || o.Waiting.Gate != gate.GateTokens {
		t.Errorf("the new key is %s; waiting for %+v", k.State, o.Waiting)
	}
}

func TestTimetable(t *testing.T) {
	sc := newScene(t)
	s, _, err := sc.store.Load(t.Context(), "prod-a")
	check(t, err)
	if got := rotation.Timetable(sc.change(), s, keystore.Observed{}); got != nil {
		t.Errorf("without a rotation: %v", got)
	}
	s, err = s.StartRotation(sc.change(), sc.fresh)
	check(t, err)
	promote := t0.Add(25*time.Hour + 13*time.Minute + 15*time.Second)
	remove := promote.Add(time.Hour + 6*time.Minute)
	want := []rotation.Entry{{Step: keystore.StepPromote, Opens: promote}, {Step: keystore.StepRetire, Opens: promote}, {Step: keystore.StepRemove, Opens: remove}}
	if got := rotation.Timetable(sc.change(), s, keystore.Observed{}); !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	s, err = s.Promote(keystore.Change{At: promote}, sc.fresh.ID(), keystore.Observed{Since: t0, Fresh: promote})
	check(t, err)
	sc.now = promote
	if got := rotation.Timetable(sc.change(), s, keystore.Observed{}); !slices.Equal(got, want[1:]) {
		t.Errorf("promoted: %v; want %v", got, want[1:])
	}
	undeclared, err := keystore.New(sc.change(), keystore.Spec{Name: "prod-a", Issuers: s.Issuers(), Keys: []keystore.VerificationKey{sc.old}})
	check(t, err)
	undeclared, err = undeclared.StartRotation(sc.change(), sc.fresh)
	check(t, err)
	if got := rotation.Timetable(sc.change(), undeclared, keystore.Observed{}); !got[2].Opens.IsZero() || got[0].Opens.IsZero() {
		t.Errorf("no token lifetime: %v", got)
	}
}

// While one operator waits for an answer of the cluster, another turns the rotation around and takes the new key out. The
// first must not hand it over any more.
func TestAKeyThatLeftIsNotHandedOver(t *testing.T) {
	sc := newScene(t)
	sc.start()
	sc.since, sc.now = t0, t0.Add(48*time.Hour)
	d := sc.driver()
	if got := sc.step(d); got != "promote, waiting: signing" {
		t.Fatal(got)
	}
	sc.staged = nil
	d.Cluster = slowCluster{sc, func() {
		_, err := keystore.Update(t.Context(), sc.store, "prod-a", func(s keystore.KeySet) (keystore.KeySet, error) { return s.RollBack(sc.change()) })
		check(t, err)
		_, err = sc.driver().Step(t.Context(), "prod-a") // all sign with the old key: the new one is retired
		check(t, err)
		sc.now = sc.now.Add(2 * time.Hour)
		o, err := sc.driver().Step(t.Context(), "prod-a")
		if err != nil || o.Waiting != nil {
			t.Fatalf("%+v, %v", o.Waiting, err)
		}
	}}
	if got := sc.step(d); got != "done" || len(sc.staged) != 0 {
		t.Errorf("%s; staged %v", got, sc.staged)
	}
}

// slowCluster is a Cluster during whose answer something happens.
type slowCluster struct {
	*scene
	happens func()
}

func (c slowCluster) Signers(ctx context.Context) (map[string]keystore.KeyID, error) {
	c.happens()
	return c.scene.Signers(ctx)
}

// Whatever cannot be read or written ends a run with its error, and what was stored before is part of the outcome.
func TestWhatFailsEndsARun(t *testing.T) {
	boom := errors.New("it fails")
	nth := func(kind string, n int) storetest.Fault { // and all after it
		return func(_ context.Context, op storetest.Op) (bool, error) {
			if op.Kind != kind {
				return true, nil
			}
			if n--; n < 0 {
				return false, boom
			}
			return true, nil
		}
	}
	for name, tt := range map[string]struct {
		fault    storetest.Fault
		observer rotation.Observer
		stale    bool
		took     int
		state    keystore.State // of the new key in the outcome; empty: nothing was read
	}{
		"the key set cannot be read":                    {fault: nth(storetest.OpGet, 0)},
		"the step cannot be stored":                     {fault: nth(storetest.OpPut, 0), state: keystore.Next},
		"nothing can be read after the step":            {fault: nth(storetest.OpGet, 2), took: 1, state: keystore.Active},
		"whether the key may still sign cannot be read": {fault: nth(storetest.OpGet, 3), took: 1, state: keystore.Active},
		"the records cannot be read":                    {observer: blindObserver{recorded: boom}, state: keystore.Next},
		"no look can be made":                           {observer: blindObserver{look: boom}, state: keystore.Next},
	} {
		sc := newScene(t)
		sc.start()
		sc.since, sc.now = t0, t0.Add(48*time.Hour)
		d := sc.driver()
		if tt.observer != nil {
			d.Observer = tt.observer
		}
		sc.memory.Inject(tt.fault)
		o, err := d.Step(t.Context(), "prod-a")
		if !errors.Is(err, boom) || len(o.Took) != tt.took || len(sc.staged) != 0 {
			t.Errorf("%s: took %v, staged %v, error %v", name, o.Took, sc.staged, err)
		}
		if k, _ := o.Set.Key(sc.fresh.ID()); k.State != tt.state {
			t.Errorf("%s: the new key of the outcome is %q, want %q", name, k.State, tt.state)
		}
	}
}

// blindObserver has seen nothing.
type blindObserver struct{ recorded, look error }

func (b blindObserver) Recorded(context.Context, keystore.KeySet, keystore.Key) (keystore.Observed, error) {
	return keystore.Observed{}, b.recorded
}
func (b blindObserver) Look(context.Context, keystore.KeySet) error { return b.look }

// A server that is not listed for a while comes back as it was: nothing is retired without it, and while it signs with a
// retired key that is not removed, and its time counts anew once nothing signs with it.
func TestAServerThatComesBack(t *testing.T) {
	sc := newScene(t)
	sc.start()
	sc.since, sc.now = t0, t0.Add(48*time.Hour)
	const one, two = "10.0.0.1:6443", "10.0.0.2:6443"
	unasked := errors.New(two + " does not answer")
	for _, tt := range []struct {
		what  string
		after time.Duration
		one   int // 1 signs with the old key, 2 with the new one, 0 is not listed, -1 does not answer
		two   int
		gone  []string
		want  string
	}{
		{"both sign with the old key", 0, 1, 1, nil, "promote, waiting: signing"},
		{"one is restarted, the other dead and no longer listed", time.Minute, 2, 0, nil, "waiting: signing"},
		{"it is still dead long after that", 100 * time.Hour, 2, 0, nil, "waiting: signing"},
		{"it is listed and does not answer", time.Minute, 2, -1, nil, "error: " + unasked.Error()},
		{"it comes back with the old key", time.Minute, 2, 1, nil, "waiting: signing"},
		{"another is said to be gone", time.Minute, 2, 0, []string{"10.0.0.3:6443"}, "waiting: signing"},
		{"it is gone for good", time.Minute, 2, 0, []string{two}, "retire, waiting: tokens"},
		{"it was not", 30 * time.Minute, 2, 1, nil, "resume, waiting: signing"},
		{"nothing is removed while it signs", 100 * time.Hour, 2, 1, nil, "waiting: signing"},
		{"it is not listed again", time.Minute, 2, 0, nil, "waiting: signing"},
		{"it has the new key", time.Minute, 2, 2, nil, "retire, waiting: tokens"},
		{"its time counts anew", 66*time.Minute - time.Second, 2, 2, nil, "waiting: tokens"},
		{"one that does not answer holds nothing that is closed", 0, 2, -1, nil, "waiting: tokens"},
		{"and does what is open", time.Second, 2, -1, nil, "error: " + unasked.Error()},
		{"one is put back to the old key in the last moment, the other does not answer", 0, 1, -1, nil, "error: " + unasked.Error()},
		{"both have the new key", time.Minute, 2, 2, nil, "retire, waiting: tokens"},
		{"and keep it", 66 * time.Minute, 2, 2, nil, "remove, done"},
	} {
		sc.now, sc.signersErr = sc.now.Add(tt.after), nil
		sc.signers = map[string]keystore.KeyID{}
		for address, what := range map[string]int{one: tt.one, two: tt.two} {
			switch what {
			case 1, 2:
				sc.signers[address] = []keystore.KeyID{sc.old.ID(), sc.fresh.ID()}[what-1]
			case -1:
				sc.signers[address], sc.signersErr = "", unasked
			}
		}
		d := sc.driver()
		d.Gone = tt.gone
		if got := sc.step(d); got != tt.want {
			t.Fatalf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}

// One cluster takes the place of another under one issuer. What the new one answers shows nothing of the old one, whose key is retired only
// once somebody says that it is gone, and is active again if it was not.
func TestAnotherClusterTakesOver(t *testing.T) {
	sc := newScene(t)
	sc.start()
	_, err := keystore.Update(t.Context(), sc.store, "prod-a", func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.SetServers(sc.change(), []string{rotation.OtherCluster})
	})
	check(t, err)
	sc.since, sc.now = t0, t0.Add(48*time.Hour)
	const oldServer, newServer, byHand = "10.0.0.1:6443", "10.9.0.1:6443", "by hand: move what runs to the cluster that the rotation leads to\ndelete the other one"
	oldCluster, newCluster := map[string]keystore.KeyID{oldServer: sc.old.ID()}, map[string]keystore.KeyID{newServer: sc.fresh.ID()}
	for _, tt := range []struct {
		what    string
		after   time.Duration
		signers map[string]keystore.KeyID
		gone    []string
		want    string
	}{
		{"the new cluster is asked", 0, newCluster, nil, "promote, waiting: signing"},
		{"and again, long after", 100 * time.Hour, newCluster, nil, "waiting: signing"},
		{"the old one is asked", time.Minute, oldCluster, nil, "waiting: signing, " + byHand},
		{"the old one is said to be gone while it is asked", time.Minute, oldCluster, []string{rotation.OtherCluster, newServer}, "waiting: signing, " + byHand},
		{"a server that was seen of it is not said to be gone", time.Minute, newCluster, []string{rotation.OtherCluster}, "waiting: signing"},
		{"all of it is gone", time.Minute, newCluster, []string{rotation.OtherCluster, oldServer}, "retire, waiting: tokens"},
		{"it was not", time.Minute, oldCluster, nil, "resume, waiting: signing"},
		{"it is", time.Minute, newCluster, []string{oldServer}, "retire, waiting: tokens"},
		{"its last token has expired", 66 * time.Minute, newCluster, nil, "remove, done"},
	} {
		sc.now, sc.signers = sc.now.Add(tt.after), tt.signers
		d := sc.driver()
		d.Gone = tt.gone
		if got := sc.step(d); got != tt.want {
			t.Fatalf("%s: %q, want %q", tt.what, got, tt.want)
		}
		if tt.gone == nil && len(sc.staged) > 0 && tt.what != "it was not" {
			t.Errorf("%s: the old cluster was handed the key of the new one: %v", tt.what, sc.staged)
		}
		sc.staged = nil
	}
}

// What is waited for is named: the server, and what to do about one that is gone.
func TestWhatHoldsARotationIsNamed(t *testing.T) {
	sc := newScene(t)
	sc.start()
	sc.since, sc.now = t0, t0.Add(48*time.Hour)
	need := func() string {
		t.Helper()
		o, err := sc.driver().Step(t.Context(), "prod-a")
		check(t, err)
		return o.Waiting.Need
	}
	need()
	sc.signers = map[string]keystore.KeyID{"10.0.0.1:6443": sc.fresh.ID()}
	if got := need(); !strings.Contains(got, "10.0.0.2:6443 was there before") || !strings.Contains(got, "--gone 10.0.0.2:6443") {
		t.Error(got)
	}
	sc.signers["10.0.0.2:6443"] = sc.fresh.ID()
	need()
	sc.signers["10.0.0.2:6443"] = sc.old.ID()
	sc.lifetime = rotation.Lifetime{Longest: 2 * time.Hour, For: "pod ns/app"} // holds the removal, not what is seen
	o, err := sc.driver().Step(t.Context(), "prod-a")
	check(t, err)
	want := rotation.Taken{Step: rotation.StepResume, Key: sc.old.ID(), Why: "the kube-apiserver 10.0.0.2:6443 signs with it"}
	if !slices.Equal(o.Took, []rotation.Taken{want}) || o.Waiting.Need != want.Why {
		t.Errorf("%+v, waiting for %+v", o.Took, o.Waiting)
	}
	history := o.Set.History()
	if last := history[len(history)-1]; last.Why != want.Why {
		t.Errorf("the history says %+v", last)
	}
}

// A server that signs with the new key before it is promoted is named, and opens no gate. One that does not answer stops nothing.
func TestAServerThatSignsTooEarly(t *testing.T) {
	sc := newScene(t)
	sc.start()
	sc.since = t0
	sc.signers["10.0.0.2:6443"] = sc.fresh.ID()
	o, err := sc.driver().Step(t.Context(), "prod-a")
	if err != nil || !slices.Equal(o.Early, []string{"10.0.0.2:6443"}) || o.Waiting == nil || o.Waiting.Step != "promote" {
		t.Errorf("early %q, waiting %+v, %v", o.Early, o.Waiting, err)
	}
	sc.signers, sc.signersErr = map[string]keystore.KeyID{"10.0.0.1:6443": "", "10.0.0.2:6443": ""}, errors.New("no answer")
	o, err = sc.driver().Step(t.Context(), "prod-a")
	if err != nil || o.Early != nil || o.Waiting == nil || o.Unasked != "no answer" {
		t.Errorf("early %q, waiting %+v, unasked %q, %v", o.Early, o.Waiting, o.Unasked, err)
	}
}
