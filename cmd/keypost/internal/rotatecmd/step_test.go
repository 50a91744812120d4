package rotatecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/rotation"
	"github.com/keypost/keypost/keystore/storetest"
)

// scene is a store with rotations under way, whose new keys everybody sees, and a cluster.
type scene struct {
	store    *keystore.Store
	out      bytes.Buffer
	signers  map[string]keystore.KeyID
	err      error // of the cluster
	lifetime rotation.Lifetime
}

func (sc *scene) Recorded(_ context.Context, _ keystore.KeySet, k keystore.Key) (keystore.Observed, error) {
	return keystore.Observed{Since: k.PublishedAt, Fresh: time.Now()}, nil
}
func (sc *scene) Look(context.Context, keystore.KeySet) error { return nil }
func (sc *scene) Signers(context.Context) (map[string]keystore.KeyID, error) {
	return sc.signers, sc.err
}
func (sc *scene) Lists(context.Context, keystore.VerificationKey) (map[string]bool, error) {
	return nil, sc.err
}
func (sc *scene) Stage(context.Context, keystore.Key) error           { return nil }
func (sc *scene) Lifetime(context.Context) (rotation.Lifetime, error) { return sc.lifetime, nil }

// begin stores a key set, with a rotation to a new key whose gate opens after some time.
func (sc *scene) begin(t *testing.T, n keystore.Name, wait time.Duration) *running {
	t.Helper()
	lifetime := keystore.Duration(time.Hour)
	change := keystore.Change{At: time.Now()}
	s, err := keystore.New(change, keystore.Spec{Name: n, Issuers: storetest.URLs(t, "https://oidc.example.com/"+string(n)), Keys: []keystore.VerificationKey{storetest.Key(t)},
		Policy: keystore.Policy{RelyingParties: []string{"aws"}, TokenLifetime: &lifetime, EdgeHold: keystore.DurationPtr(wait)}})
	if err == nil {
		s, err = s.StartRotation(change, storetest.Key(t))
	}
	if err == nil {
		err = keystore.Create(t.Context(), sc.store, s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &running{set: s, began: time.Now()}
}

func (sc *scene) step(t *testing.T, wait bool, c rotation.Cluster, runs ...*running) {
	t.Helper()
	o := &stepOptions{Factory: &cli.Factory{Err: &sc.out}, wait: wait}
	d := rotation.Driver{Store: sc.store, Observer: sc, Cluster: c, Change: func() keystore.Change { return keystore.Change{At: time.Now()} }}
	if err := o.stepAll(t.Context(), d, runs); err != nil {
		t.Fatal(err)
	}
}

// A key that was promoted is named, whatever fails after that.
func TestAFailureDoesNotHideWhatWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := &scene{store: keystore.NewStore(storetest.NewMemory(t)), err: errors.New("10.0.0.2:6443 does not answer")}
		r := sc.begin(t, "prod-a", time.Hour)
		kid := r.set.Rotation().Kid
		time.Sleep(48 * time.Hour)
		sc.step(t, false, sc, r)
		if got := sc.out.String(); !strings.HasPrefix(got, "prod-a: promoted key "+string(kid)+"\nprod-a waits for you:\n  1. ") {
			t.Errorf("printed %q", got)
		}
		if !errors.Is(r.err, sc.err) || r.Error != sc.err.Error() || len(r.Took) != 1 || r.Took[0].Key != kid || r.Rotation.Step != keystore.StepRetire || r.waiting != nil {
			t.Errorf("%+v, error %v", r.state, r.err)
		}
	})
}

// Every step of a cluster that never answers says so, and the step that needs an answer says how else one is had.
func TestAClusterThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const said = "10.0.0.2:6443 does not answer"
		sc := &scene{store: keystore.NewStore(storetest.NewMemory(t)), err: errors.New(said)}
		r := sc.begin(t, "prod-a", time.Hour)
		told := func(step keystore.RotationStep, failed bool) {
			t.Helper()
			sc.out.Reset()
			next := &running{set: r.set, began: time.Now()}
			sc.step(t, false, sc, next)
			hint, _ := errors.AsType[*cli.HintedError](next.err)
			if r = next; r.Rotation.Step != step || (r.err != nil) != failed || !strings.Contains(sc.out.String()+r.Error, said) ||
				failed && (hint == nil || !strings.Contains(hint.Hint(&cli.Factory{}), "--apiserver")) {
				t.Errorf("%s: %+v, error %v, printed %q", step, r.state, r.err, &sc.out)
			}
		}
		told(keystore.StepPromote, false)
		time.Sleep(48 * time.Hour)
		told(keystore.StepRetire, true)
		for _, want := range []string{"\nprod-a waits for you:\n  1. on every control-plane node, add ", "\n  2. when all of them have it, set --service-account-signing-key-file ", "\nthen: keypost rotate step prod-a\n"} {
			if !strings.Contains("\n"+sc.out.String(), want) {
				t.Errorf("without %q:\n%s", want, &sc.out)
			}
		}
		sc.signers, sc.err = map[string]keystore.KeyID{"10.0.0.1:6443": r.set.Rotation().Kid}, nil
		sc.step(t, false, sc, &running{set: r.set, began: time.Now()})
		sc.err = errors.New(said)
		told(keystore.StepRemove, false)
		time.Sleep(48 * time.Hour)
		told(keystore.StepRemove, true)
	})
}

// With --wait no rotation waits for the gate of another one, and what fails stops nothing else.
func TestWaitingForSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := &scene{store: keystore.NewStore(storetest.NewMemory(t))}
		began := time.Now()
		slow, fast := sc.begin(t, "slow", 72*time.Hour), sc.begin(t, "fast", time.Hour)
		lost := &running{set: sc.begin(t, "prod-b", time.Hour).set, began: began}
		sc.store = keystore.NewStore(without{sc.store.Backend(), "prod-b"})
		sc.signers = map[string]keystore.KeyID{"10.0.0.1:6443": slow.set.Rotation().Kid}
		sc.step(t, true, nil, slow, lost, fast)
		for _, tt := range []struct {
			r       *running
			promote time.Duration
		}{{slow, 73*time.Hour + 3*time.Minute + 15*time.Second}, {fast, 25*time.Hour + 13*time.Minute + 15*time.Second}} {
			k, _ := tt.r.set.Key(tt.r.set.Rotation().Kid)
			if took := k.PromotedAt.Sub(began); k.State != keystore.Active || took < tt.promote || took > tt.promote+2*time.Second {
				t.Errorf("%s: %s after %v, want %v", tt.r.set.Name(), k.State, took, tt.promote)
			}
			if len(tt.r.Took) != 1 || tt.r.Gate != gate.GateSigning || tt.r.waiting == nil { // without a cluster a person has to act
				t.Errorf("%s: %+v", tt.r.set.Name(), tt.r.state)
			}
		}
		if lost.err == nil || lost.Error == "" || lost.KeySet != "prod-b" {
			t.Errorf("a key set that is lost: %+v", lost.state)
		}
		out := sc.out.String()
		for text, want := range map[string]int{
			"fast: promoted key": 1, "slow: promoted key": 1, "hint: keypost key retire ": 2, " --why STATEMENT\n": 2,
			"\nfast: promote key " + string(fast.set.Rotation().Kid[:8]): 25 + 10, // the first says when, each of the others how long still
			"\nslow: promote key " + string(slow.set.Rotation().Kid[:8]): 46 + 10,
		} {
			if n := strings.Count(out, text); n < want-1 || n > want+1 {
				t.Errorf("printed %q %d times; want %d", text, n, want)
			}
		}
	})
}

// without is a backend that has lost a document.
type without struct {
	keystore.Backend
	name keystore.Name
}

func (b without) Get(ctx context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	if n == b.name {
		return nil, "", keystore.ErrNotFound
	}
	return b.Backend.Get(ctx, n)
}

// restarted is a cluster with one server that is not listed at first, signs with the old key again when that was retired, and does
// not answer for a while.
type restarted struct {
	*scene
	old, fresh keystore.KeyID
	began      time.Time
}

func (c restarted) Signers(context.Context) (map[string]keystore.KeyID, error) {
	const one, two = "10.0.0.1:6443", "10.0.0.2:6443"
	now := map[string]keystore.KeyID{one: c.fresh, two: c.fresh}
	switch at := time.Since(c.began).Minutes(); {
	case at < 5:
		now[one], now[two] = c.old, c.old
	case at < 7: // they are restarted
		return map[string]keystore.KeyID{one: "", two: ""}, errors.New(one + " refuses connections")
	case at < 10:
		delete(now, two)
	case at >= 40 && at < 70:
		now[two] = c.old
	case at >= 90 && at < 101:
		now[two] = ""
		return now, errors.New(two + " does not answer")
	}
	return now, nil
}

// With --wait every server is asked again until the key is removed.
func TestWaitingWhileAServerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := &scene{store: keystore.NewStore(storetest.NewMemory(t))}
		r := sc.begin(t, "prod-a", time.Hour)
		time.Sleep(48 * time.Hour)
		rot := r.set.Rotation()
		c := restarted{sc, rot.Replaces[0], rot.Kid, time.Now()}
		sc.step(t, true, c, r)
		if took, want := time.Since(c.began), (70+66)*time.Minute; r.err != nil || r.waiting != nil || took < want || took > want+time.Minute {
			t.Errorf("it took %v, %v; want %v", took, r.err, want)
		}
		out := sc.out.String()
		for text, want := range map[string]int{
			"prod-a: promoted key": 1, "prod-a: retired key " + string(c.old): 2, "prod-a: removed key " + string(c.old): 1,
			"prod-a: resumed key " + string(c.old) + "\nprod-a: it was retired, and the kube-apiserver 10.0.0.2:6443 signs with it: ": 1,
			"prod-a: retire key " + string(c.old) + ": not yet: 10.0.0.1:6443 refuses connections\n":                                  1,
			"10.0.0.2:6443 was there before in this rotation and is not listed now":                                                   1,
			"warning: prod-a: what each kube-apiserver signs with is not known: 10.0.0.2:6443 does not answer\n":                      1,
			"nobody asked": 0,
		} {
			if n := strings.Count(out, text); n != want {
				t.Errorf("printed %q %d times; want %d in\n%s", text, n, want, out)
			}
		}
	})
}

// A removal without the cluster says that nobody was asked.
func TestARemovalWithoutTheClusterSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := &scene{store: keystore.NewStore(storetest.NewMemory(t))}
		r := sc.begin(t, "prod-a", time.Hour)
		sc.signers = map[string]keystore.KeyID{"10.0.0.1:6443": r.set.Rotation().Kid}
		time.Sleep(48 * time.Hour)
		sc.step(t, false, sc, r)
		sc.out.Reset()
		time.Sleep(2 * time.Hour)
		sc.step(t, false, nil, &running{set: r.set, began: time.Now()})
		if out := sc.out.String(); !strings.Contains(out, "prod-a: removed key ") || !strings.Contains(out, "prod-a: nobody asked whether a kube-apiserver signs with it again: ") {
			t.Errorf("printed %q", out)
		}
	})
}

// What the cluster refuses it refuses again: nobody waits for that.
func TestARefusalEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := &scene{store: keystore.NewStore(storetest.NewMemory(t)), err: fmt.Errorf("have a token minted: %w", &kubeapi.StatusError{Code: http.StatusUnauthorized})}
		r := sc.begin(t, "prod-a", time.Hour)
		time.Sleep(48 * time.Hour)
		sc.step(t, true, sc, r)
		if !errors.Is(r.err, sc.err) || r.waiting != nil {
			t.Errorf("%+v, error %v", r.state, r.err)
		}
	})
}
