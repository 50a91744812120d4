package enroll_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/enroll"
)

const next, active = keystore.Next, keystore.Active

type keyStates = map[keystore.KeyID]keystore.State

// One cluster through its life, as a person sees it.
func TestLife(t *testing.T) {
	dir, st, keys := t.TempDir(), storetest.NewMemStore(t), someKeys(t, 4)
	a, b := newPlane(t, "uid-a", keys[0]), newPlane(t, "uid-b", keys[3])
	a.kubeconfig(t, dir, "prod-a.yaml")
	b.kubeconfig(t, dir, "prod-b")
	e := newEnroller(t, st.Store, enroll.Dir(dir))
	step := func(what string, wantA, wantB enroll.State, want keyStates) map[keystore.Name]enroll.Report {
		t.Helper()
		before := st.Writes()
		all := passOf(t, e)
		if all["prod-a"].State != wantA || all["prod-b"].State != wantB {
			t.Errorf("%s: prod-a is %q (%s), prod-b %q (%s); want %q, %q", what, all["prod-a"].State, all["prod-a"].Why, all["prod-b"].State, all["prod-b"].Why, wantA, wantB)
		}
		if got := states(t, st, "prod-a"); !maps.Equal(got, want) {
			t.Errorf("%s: keys %v, want %v", what, got, want)
		}
		if writes := st.Writes() - before; wantA != enroll.Enrolled && wantA != enroll.NewKey && writes > 0 {
			t.Errorf("%s: %d writes", what, writes)
		}
		return all
	}
	one := keyStates{keys[0].ID(): active}
	all := step("a new cluster", enroll.Enrolled, enroll.Enrolled, one)
	if notes := strings.Join(all["prod-a"].Notes, " "); !strings.Contains(notes, "--service-account-issuer=https://oidc.example.com/prod-a is the first") {
		t.Errorf("what its side has to do: %q", notes)
	}
	step("nothing new", enroll.InStep, enroll.InStep, one)
	a.set(func() { a.keys = keys[:2] })
	two := keyStates{keys[0].ID(): active, keys[1].ID(): next}
	all = step("a new key", enroll.NewKey, enroll.InStep, two)
	if w := all["prod-a"].Waiting; len(w) != 1 || w[0].Key != keys[1].ID() || !w[0].NotBefore.After(time.Now().Add(time.Hour)) {
		t.Errorf("waiting: %+v", w)
	}
	a.set(func() { a.keys = keys[1:2] }) // it signs with the new one by its own means: that is told, and nothing is retired
	all = step("the old key is away", enroll.NewKey, enroll.InStep, two)
	if notes := strings.Join(all["prod-a"].Notes, " "); !strings.Contains(notes, "is active, and the cluster does not list it") {
		t.Errorf("notes: %q", notes)
	}
	a.set(func() { a.uid, a.keys = "uid-x", keys[2:3] })
	all = step("another cluster", enroll.Refused, enroll.InStep, two)
	if !strings.Contains(all["prod-a"].Why, "its UID is uid-x, that of the enrolled one uid-a") || !strings.Contains(all["prod-a"].Why, "keypost rotate start prod-a") {
		t.Errorf("why: %s", all["prod-a"].Why)
	}
	a.Close()
	since := step("away", enroll.Unreachable, enroll.InStep, two)["prod-a"].Since
	if again := step("away", enroll.Unreachable, enroll.InStep, two)["prod-a"].Since; !again.Equal(since) {
		t.Errorf("unreachable since %v, later since %v", since, again)
	}
	if err := os.Remove(filepath.Join(dir, "prod-a.yaml")); err != nil {
		t.Fatal(err)
	}
	step("gone from the source", enroll.Absent, enroll.InStep, two)
}

// A person says that another cluster takes the place of the first. Either may bring keys meanwhile, and afterwards the new one only;
// after a rollback the old one only.
func TestAnotherClusterTakesThePlace(t *testing.T) {
	keys := someKeys(t, 2)
	change := func(d time.Duration) keystore.Change { return storetest.Change(d) }
	r := rules(t)
	u, _ := r.URL("prod-a")
	s, err := keystore.New(change(0), keystore.Spec{Name: "prod-a", Issuers: []keystore.IssuerURL{u}, Keys: keys[:1], Cluster: "old"})
	if err == nil {
		s, err = s.StartRotation(change(time.Minute), keys[1])
	}
	if err == nil {
		s, err = s.SetCluster(change(time.Minute), "new")
	}
	if err != nil {
		t.Fatal(err)
	}
	want := func(s keystore.KeySet, ids string) {
		t.Helper()
		got := ""
		for _, id := range []keystore.ClusterID{"old", "new", "other"} {
			if s.IsOf(id) {
				got += " " + string(id)
			}
		}
		if strings.TrimSpace(got) != ids {
			t.Errorf("it has %q, want %q", got, ids)
		}
	}
	want(s, "old new")
	back, err := s.RollBack(change(2 * time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	want(back, "old new")
	if back.Clusters()[0] != "old" {
		t.Errorf("after a rollback: %v", back.Clusters())
	}
	ended, err := s.Revoke(keystore.Change{At: storetest.Time(3 * time.Minute), Why: "test"}, keys[1].ID(), keystore.RevokeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want(ended, "new")
	data, err := keystore.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := keystore.Parse("prod-a", data); err != nil || !reflect.DeepEqual(again.Clusters(), s.Clusters()) {
		t.Errorf("stored: %v, %v", again.Clusters(), err)
	}
}

// Whatever a cluster shows, and whatever is stored, a decision only adds keys as next to the key set of that cluster.
func TestDecisionsOnlyAdd(t *testing.T) {
	pool, r := someKeys(t, 12), rules(t)
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(most int) (some []keystore.VerificationKey) {
		for _, i := range random.Perm(len(pool))[:random.IntN(most+1)] {
			some = append(some, pool[i])
		}
		return some
	}
	for n := range 3000 {
		u, _ := r.URL("prod-a")
		spec := keystore.Spec{Name: "prod-a", Issuers: []keystore.IssuerURL{u}, Keys: pool[:1+random.IntN(3)]}
		if random.IntN(3) > 0 {
			spec.Cluster = "uid-a"
		}
		s, err := keystore.New(storetest.Change(0), spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range pick(3) {
			switch random.IntN(3) {
			case 0:
				if added, err := s.Add(storetest.Change(time.Minute), k); err == nil {
					s = added
				}
			default:
				if left, err := s.Revoke(keystore.Change{At: storetest.Time(time.Minute), Why: "test"}, k.ID(), keystore.RevokeOptions{}); err == nil {
					s = left
				}
			}
		}
		seen := cluster.Identity{ID: keystore.ClusterID([]string{"uid-a", "uid-b"}[random.IntN(2)]), Keys: pick(12)}
		r.Adopt = [][]keystore.Name{nil, {"prod-a"}}[random.IntN(2)]
		d := r.Decide("prod-a", seen, &s)
		if d.State == enroll.Refused {
			if d.Writes() {
				t.Fatalf("%d: refused (%s), and it writes", n, d.Why)
			}
			continue
		}
		if mine := s.IsOf(seen.ID) || len(s.Clusters()) == 0 && len(r.Adopt) > 0; !mine {
			t.Fatalf("%d: cluster %s may write the key set of %v", n, seen.ID, s.Clusters())
		}
		after, err := d.Change(storetest.Change(2*time.Minute), seen.ID, s)
		if err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		checkOnlyAdded(t, s, after, seen)
		if again := r.Decide("prod-a", seen, &after); again.Writes() || again.State != enroll.InStep {
			t.Fatalf("%d: a second look writes again: %+v", n, again)
		}
	}
}

func checkOnlyAdded(t *testing.T, was, is keystore.KeySet, seen cluster.Identity) {
	t.Helper()
	for _, k := range was.Keys() {
		if now, ok := is.Key(k.ID()); !ok || !reflect.DeepEqual(now, k) {
			t.Fatalf("key %s changed", k.ID())
		}
	}
	for _, k := range is.Keys() {
		if _, was := was.Key(k.ID()); was {
			continue
		}
		shown := false
		for _, s := range seen.Keys {
			shown = shown || s.Equal(k.VerificationKey)
		}
		if k.State != next || !shown {
			t.Fatalf("key %s came in as %s; the cluster showed it: %v", k.ID(), k.State, shown)
		}
	}
	if !reflect.DeepEqual(was.Gone(), is.Gone()) || !reflect.DeepEqual(was.Issuers(), is.Issuers()) || is.Withdrawn() || len(is.Keys()) > keystore.MaxRotating {
		t.Fatal("more than keys changed")
	}
}

// What a hostile cluster shows changes nothing but its own key set.
func TestHostileClusters(t *testing.T) {
	keys := someKeys(t, 3)
	ten := strings.Repeat(`{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"x"},`, 10_000)
	for name, tt := range map[string]struct {
		file  string
		plane func(p *plane)
		state enroll.State
		why   string
	}{
		"another's name":      {"victim", func(p *plane) { p.keys = keys[1:2] }, enroll.Refused, "it is another cluster"},
		"10,000 keys":         {"evil", func(p *plane) { p.jwks = `{"keys":[` + strings.TrimSuffix(ten, ",") + `]}` }, enroll.Refused, "larger than 65536 bytes"},
		"nine keys":           {"evil", func(p *plane) { p.keys = someKeys(t, 9) }, enroll.Refused, "it lists 9 keys"},
		"a private key":       {"evil", func(p *plane) { p.jwks = `{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA","d":"AA"}]}` }, enroll.Refused, "private"},
		"no keys":             {"evil", func(p *plane) { p.jwks = `{"keys":[]}` }, enroll.Refused, "without a key"},
		"a page":              {"evil", func(p *plane) { p.jwks = "<html>" }, enroll.Refused, "neither a PEM block"},
		"no UID":              {"evil", func(p *plane) { p.uid = "" }, enroll.Refused, "it has no UID"},
		"two UIDs":            {"evil", func(p *plane) { p.uid = "uid-v uid-e" }, enroll.Refused, "it has no UID"},
		"a hand-made key set": {"by-hand", func(p *plane) { p.keys = keys[:2] }, enroll.Refused, "made by a person"},
		"the victim's key":    {"evil", func(p *plane) { p.keys = keys[:1] }, enroll.Enrolled, ""},
		"a stranger's key":    {"evil", func(*plane) {}, enroll.Enrolled, ""},
		"another's URL":       {"evil", func(p *plane) { p.name = "https://oidc.example.com/victim" }, enroll.Enrolled, ""},
		"no name":             {"EVIL_1", func(*plane) {}, enroll.Refused, ""},
		"a long answer":       {"evil", func(p *plane) { p.jwks = strings.Repeat(" ", 8<<20) }, enroll.Refused, "larger than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, st := t.TempDir(), storetest.NewMemStore(t)
			newPlane(t, "uid-v", keys[0]).kubeconfig(t, dir, "victim")
			e := newEnroller(t, st.Store, enroll.Dir(dir))
			if s := passOf(t, e)["victim"].State; s != enroll.Enrolled {
				t.Fatal(s)
			}
			if err := keystore.Create(t.Context(), st.Store, storetest.KeySet(t, "by-hand", keys[0])); err != nil {
				t.Fatal(err)
			}
			before := documents(t, st)
			evil := newPlane(t, "uid-e", keys[2])
			tt.plane(evil)
			evil.kubeconfig(t, dir, tt.file)
			r := passOf(t, e)[keystore.Name(tt.file)]
			if r.State != tt.state || !strings.Contains(r.Why, tt.why) {
				t.Errorf("%s (%s), want %s (%s)", r.State, r.Why, tt.state, tt.why)
			}
			if r.State == enroll.Enrolled && r.URL != "https://oidc.example.com/evil" {
				t.Errorf("it is enrolled under %s", r.URL)
			}
			after := documents(t, st)
			delete(after, "evil")
			if !maps.Equal(before, after) {
				t.Error("another key set changed")
			}
			for n := range after {
				if n != "victim" && n != "by-hand" {
					t.Errorf("key set %q was made", n)
				}
			}
		})
	}
}

// A JWKS from before a rotation or a revocation, shown by the cluster itself, changes nothing, not even its own key set.
func TestOldJWKS(t *testing.T) {
	keys, dir := someKeys(t, 3), t.TempDir()
	removed, revoked, active := keys[0], keys[1], keys[2]
	u, _ := rules(t).URL("prod-a")
	s, err := keystore.New(storetest.Change(0), keystore.Spec{Name: "prod-a", Issuers: []keystore.IssuerURL{u}, Keys: []keystore.VerificationKey{active}, Cluster: "uid-a"})
	for i, k := range keys[:2] {
		if err == nil {
			s, err = s.Add(storetest.Change(time.Duration(1+i)*time.Minute), k)
		}
	}
	if err == nil {
		s, err = s.Remove(storetest.Change(3*time.Minute), removed.ID(), keystore.Removal{})
	}
	if err == nil {
		s, err = s.Revoke(storetest.Change(4*time.Minute), revoked.ID(), keystore.RevokeOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	st := storetest.NewMemStore(t)
	if err := keystore.Create(t.Context(), st.Store, s); err != nil {
		t.Fatal(err)
	}
	p := newPlane(t, "uid-a")
	p.kubeconfig(t, dir, "prod-a")
	e, before := newEnroller(t, st.Store, enroll.Dir(dir)), documents(t, st)
	const idle, wasRevoked = "is active, and the cluster does not list it", "which was revoked"
	for name, tt := range map[string]struct {
		shows []keystore.VerificationKey
		notes []string
	}{
		"the removed key":          {keys[:1], []string{idle}},
		"the revoked key":          {keys[1:2], []string{idle, wasRevoked}},
		"every key that ever was":  {keys, []string{wasRevoked}},
		"the active key, as it is": {keys[2:], nil},
	} {
		t.Run(name, func(t *testing.T) {
			p.set(func() { p.keys = tt.shows })
			r := passOf(t, e)["prod-a"]
			notes := strings.Join(r.Notes, "\n")
			for _, want := range []string{idle, wasRevoked} {
				if strings.Contains(notes, want) != slices.Contains(tt.notes, want) {
					t.Errorf("%q is a note: %t; notes: %s", want, strings.Contains(notes, want), notes)
				}
			}
			if r.State != enroll.InStep || !maps.Equal(documents(t, st), before) {
				t.Errorf("%s (%s), and the key set is %v", r.State, r.Why, documents(t, st))
			}
		})
	}
}

func documents(t *testing.T, st *storetest.MemStore) map[keystore.Name]string {
	t.Helper()
	names, err := st.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[keystore.Name]string{}
	for n := range names {
		doc, _, err := st.Get(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		all[n] = string(doc)
	}
	return all
}

// Two processes at once, with writes that fail, that fail and took effect, or after which a process ends: afterwards every key that a
// cluster showed is there, once.
func TestTwoAtOnceKilledAtEachWrite(t *testing.T) {
	keys, dir := someKeys(t, 6), t.TempDir()
	a, b := newPlane(t, "uid-a", keys[:2]...), newPlane(t, "uid-b", keys[2:4]...)
	a.kubeconfig(t, dir, "prod-a")
	b.kubeconfig(t, dir, "prod-b")
	for kill := range 6 {
		for _, apply := range []bool{false, true} {
			t.Run(fmt.Sprint(kill, apply), func(t *testing.T) {
				a.set(func() { a.keys = keys[:2] })
				st, writes, mu := storetest.NewMemStore(t), 0, sync.Mutex{}
				ctx, end := context.WithCancel(t.Context())
				st.Inject(func(ctx context.Context, op storetest.Op) (bool, error) {
					mu.Lock()
					defer mu.Unlock()
					if op.Kind != storetest.OpPut {
						return true, ctx.Err()
					}
					if writes++; writes-1 == kill {
						end()
						return apply, errors.New("the process ended")
					}
					return true, ctx.Err()
				})
				both := func(ctx context.Context) {
					var wait sync.WaitGroup
					for range 2 {
						wait.Go(func() { _ = newEnroller(t, st.Store, enroll.Dir(dir)).Pass(ctx, func(enroll.Report, bool) {}) })
					}
					wait.Wait()
				}
				both(ctx)
				a.set(func() { a.keys = keys[:3+kill%2] })
				both(ctx)
				st.Inject(nil)
				both(t.Context())
				want := keyStates{keys[2].ID(): next}
				if kill%2 == 1 {
					want[keys[3].ID()] = next
				}
				got := states(t, st, "prod-a")
				maps.DeleteFunc(got, func(id keystore.KeyID, s keystore.State) bool {
					return (id == keys[0].ID() || id == keys[1].ID()) && s == active
				})
				for id, s := range got { // the cluster may have been seen first with its later keys
					if s != next && s != active || want[id] == "" {
						t.Errorf("key %s is %s", id, s)
					}
				}
				if len(got) != len(want) || len(states(t, st, "prod-b")) != 2 {
					t.Errorf("prod-a has %v beside its first keys, want %v; prod-b %v", got, want, states(t, st, "prod-b"))
				}
			})
		}
	}
}

// A store that cannot be read, or a source: nothing changes, and the error says so.
func TestNothingIsKnown(t *testing.T) {
	dir, st := t.TempDir(), storetest.NewMemStore(t)
	newPlane(t, "uid-a", storetest.Key(t)).kubeconfig(t, dir, "prod-a")
	st.Inject(func(context.Context, storetest.Op) (bool, error) { return false, errors.New("away") })
	told := func(r enroll.Report, _ bool) { t.Errorf("told of %s: %s", r.Name, r.State) }
	if err := newEnroller(t, st.Store, enroll.Dir(dir)).Pass(t.Context(), told); err == nil {
		t.Error("the store was away")
	}
	st.Inject(nil)
	if err := newEnroller(t, st.Store, enroll.Dir(filepath.Join(dir, "none"))).Pass(t.Context(), told); !errors.Is(err, os.ErrNotExist) || st.Writes() > 0 {
		t.Errorf("no directory: %v, %d writes", err, st.Writes())
	}
}

// A process that is told to end while it writes says nothing of the cluster: whether the write took effect is not known.
func TestEndedOverAWrite(t *testing.T) {
	dir, st := t.TempDir(), storetest.NewMemStore(t)
	newPlane(t, "uid-a", storetest.Key(t)).kubeconfig(t, dir, "prod-a")
	ctx, end := context.WithCancel(t.Context())
	st.Inject(func(_ context.Context, op storetest.Op) (bool, error) {
		if op.Kind == storetest.OpPut {
			end()
			return false, ctx.Err()
		}
		return true, nil
	})
	told := func(r enroll.Report, _ bool) { t.Errorf("told of %s: %s (%s)", r.Name, r.State, r.Why) }
	if err := newEnroller(t, st.Store, enroll.Dir(dir)).Pass(ctx, told); !errors.Is(err, context.Canceled) {
		t.Errorf("the pass ends with %v", err)
	}
}
