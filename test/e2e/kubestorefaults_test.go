//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/storetest"
)

// outageTime is how long a store is away: several polls of the publisher.
const outageTime = 3 * time.Second

// TestKubestoreFaults takes the store away in every way while a publisher serves from it: not one document request
// fails, and afterwards a change is served within seconds.
func TestKubestoreFaults(t *testing.T) {
	p := newKubeScene(t)
	x := p.proxy(t)
	ns := p.space(t)
	admin := p.store(t, ns)
	for i := range 5 {
		must(t, keystore.Create(t.Context(), keystore.NewStore(admin), storetest.KeySet(t, numbered(i))))
	}
	pub, _ := publish(t, x.store(t, p, ns))
	f := &faults{kubeScene: p, x: x, ns: ns, admin: admin, pub: pub}
	for _, c := range []struct {
		name  string
		fault func(t *testing.T)
	}{
		{"the kube-apiserver hangs", f.apiHangs},
		{"the kube-apiserver is stopped", f.apiStopped},
		{"etcd hangs", f.etcdHangs},
		{"etcd is stopped", f.etcdStopped},
		{"something on the way answers 503", f.unavailable},
		{"the watch is cut", f.watchCut},
		{"the watch reached a state that the API server has forgotten", f.compacted},
		{"the permission is lost and comes back", f.permissionLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.fault(t)
			f.change(t)
		})
	}
}

type faults struct {
	*kubeScene
	x     *proxy
	ns    string
	admin keystore.Backend
	pub   *issuer.Publisher
}

// change makes a change and waits until it is served.
func (f *faults) change(t *testing.T) {
	t.Helper()
	var s keystore.KeySet
	await(t, "a change is written", func(ctx context.Context) error {
		var err error
		s, err = keystore.Update(ctx, keystore.NewStore(f.admin), "prod-00000", storetest.Numbered)
		return err
	})
	began := time.Now()
	serves(t, f.pub, "prod-00000", s.Generation())
	t.Logf("the change was served after %v", time.Since(began).Round(time.Millisecond))
}

// pause is what an outage is: time in which nothing happens but requests and polls.
func (f *faults) pause() { time.Sleep(outageTime) }

func (f *faults) apiHangs(t *testing.T) {
	f.api.Signal(t, syscall.SIGSTOP)
	await(t, "a listing hangs", func(ctx context.Context) error { // it may answer one more before each of its threads has stopped
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		all, err := f.admin.List(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return errors.Join(fmt.Errorf("List = %v", all), err)
	})
	f.pause()
	f.api.Signal(t, syscall.SIGCONT)
}

func (f *faults) apiStopped(t *testing.T) {
	f.stopAPI()
	f.wantTrouble(t)
	f.pause()
	f.startAPI()
}

// wantTrouble: an API that is away is trouble, and neither an empty store nor an absent key set.
func (f *faults) wantTrouble(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if all, err := f.admin.List(ctx); err == nil {
		t.Errorf("List = %v without a store", all)
	}
	if _, _, err := keystore.NewStore(f.admin).Load(ctx, "prod-00000"); err == nil || errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Load = %v without a store", err)
	}
	_, err := keystore.Update(ctx, keystore.NewStore(f.admin), "prod-00000", storetest.Numbered)
	if err == nil {
		t.Error("Update succeeded without a store")
	}
	t.Logf("Update says: %v", err)
}

func (f *faults) etcdHangs(t *testing.T) {
	f.etcd.Signal(t, syscall.SIGSTOP)
	f.pause()
	f.etcd.Signal(t, syscall.SIGCONT)
}

func (f *faults) etcdStopped(t *testing.T) {
	f.stopEtcd()
	f.wantTrouble(t)
	f.pause()
	f.startEtcd()
	f.c.awaitReady(t, f.api)
}

func (f *faults) unavailable(*testing.T) {
	f.x.reject.Store(true)
	f.x.cut()
	f.pause()
	f.x.reject.Store(false)
}

func (f *faults) watchCut(t *testing.T) {
	for range 3 {
		f.awaitWatch(t)
		f.x.cut()
	}
	f.awaitWatch(t)
}

func (f *faults) awaitWatch(t *testing.T) {
	t.Helper()
	await(t, "a watch stands", func(context.Context) error {
		f.x.mu.Lock()
		defer f.x.mu.Unlock()
		if len(f.x.watches) == 0 {
			return errors.New("none does")
		}
		return nil
	})
}

// compacted: while the watch is held up on its way, etcd forgets the state that it starts from, and a new
// kube-apiserver has never known it.
func (f *faults) compacted(t *testing.T) {
	f.x.hold.Store(true)
	f.x.cut()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lost := make(chan error, 1)
	go func() { lost <- f.x.store(t, f.kubeScene, f.ns).Watch(ctx, func(...keystore.Name) {}) }()
	time.Sleep(time.Second) // the watches wait in the proxy now
	for range 20 {
		f.mustUpdate(t, "prod-00001")
	}
	f.compact(t)
	f.stopAPI()
	f.startAPI()
	f.mustUpdate(t, "prod-00001")
	f.x.hold.Store(false)
	select {
	case err := <-lost:
		wantError(t, "a watch from a state that is forgotten", err, "too old resource version")
	case <-time.After(patience):
		t.Error("a watch from a state that is forgotten stands")
	}
}

func (f *faults) mustUpdate(t *testing.T, n keystore.Name) {
	t.Helper()
	_, err := keystore.Update(t.Context(), keystore.NewStore(f.admin), n, storetest.Numbered)
	must(t, err)
}

// compact has etcd forget all but the newest state.
func (f *faults) compact(t *testing.T) {
	t.Helper()
	var status struct{ Header struct{ Revision string } }
	must(t, json.Unmarshal([]byte(post(t, "http://127.0.0.1:2379/v3/maintenance/status", "{}")), &status))
	post(t, "http://127.0.0.1:2379/v3/kv/compaction", fmt.Sprintf(`{"revision": %q, "physical": true}`, status.Header.Revision))
}

// permissionLost: another publisher with the reader's role, whose role binding goes while it runs.
func (f *faults) permissionLost(t *testing.T) {
	reader := openKube(t, f.ns, f.account(t, f.ns, "mirror", readerRules))
	pub, _ := publish(t, reader)
	f.try(t, "", "delete", "rolebinding", "mirror", "-n", f.ns).ok(t)
	await(t, "the permission is lost", func(ctx context.Context) error {
		if _, err := reader.List(ctx); err == nil || !strings.Contains(err.Error(), "the role needs get, list and watch") {
			return fmt.Errorf("List says %w", err)
		}
		return nil
	})
	time.Sleep(outageTime)
	f.account(t, f.ns, "mirror", readerRules)
	f.mustUpdate(t, "prod-00002")
	s, _, err := keystore.NewStore(f.admin).Load(t.Context(), "prod-00002")
	must(t, err)
	serves(t, pub, "prod-00002", s.Generation())
}

// TestKubestoreMassAbsence has everything vanish, or come back from an older time, while a publisher serves it: not
// one document request fails, no revoked key returns, and the publisher says what is wrong.
func TestKubestoreMassAbsence(t *testing.T) {
	p := newKubeScene(t)
	for _, c := range []struct {
		name string
		test func(a *absence, t *testing.T)
	}{
		{"the namespace is emptied", (*absence).emptied},
		{"the namespace is deleted", (*absence).namespaceDeleted},
		{"something prunes and re-applies an older manifest all the time", (*absence).pruned},
		{"something replaces with an older manifest all the time", (*absence).reapplied},
		{"the definition is deleted", (*absence).undefined},
		{"etcd is restored from a backup", (*absence).restored},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(p.absence(t), t) })
	}
}

const absentSets = 5

type absence struct {
	*kubeScene
	ns    string
	st    keystore.Backend
	older map[keystore.Name]string // documents from before the revocation
	w     *witness
	pub   *issuer.Publisher
}

// absence makes key sets, publishes them and revokes a key of each.
func (p *kubeScene) absence(t *testing.T) *absence {
	ns := p.space(t)
	a := &absence{kubeScene: p, ns: ns, st: p.store(t, ns), older: map[keystore.Name]string{}}
	for i := range absentSets {
		s := storetest.KeySet(t, numbered(i), storetest.Key(t), storetest.Key(t))
		must(t, keystore.Create(t.Context(), keystore.NewStore(a.st), s))
		a.older[s.Name()] = storetest.Text(t, s)
	}
	a.pub, a.w = publish(t, a.st)
	return a
}

// revoke takes one key out of every set; from the moment that this is served, no answer may have it.
func (a *absence) revoke(t *testing.T) {
	t.Helper()
	for n := range a.older {
		var kid keystore.KeyID
		s, err := keystore.Update(t.Context(), keystore.NewStore(a.st), n, func(s keystore.KeySet) (keystore.KeySet, error) {
			kid = s.Keys()[0].ID()
			return s.Revoke(storetest.Change(time.Hour), kid, keystore.RevokeOptions{})
		})
		must(t, err)
		serves(t, a.pub, n, s.Generation())
		a.w.never(kid)
	}
}

func (a *absence) complain(t *testing.T, reasons ...keystore.Reason) {
	t.Helper()
	for n := range a.older {
		complains(t, a.pub, n, reasons...)
	}
	time.Sleep(outageTime)
}

func (a *absence) emptied(t *testing.T) {
	a.revoke(t)
	a.try(t, "", "delete", "keysets", "--all", "-n", a.ns).ok(t)
	a.complain(t, lastgood.ReasonMissing)
	a.apply(t, a.older, "create")
	a.complain(t, lastgood.ReasonOlderGeneration)
}

func (a *absence) apply(t *testing.T, texts map[keystore.Name]string, args ...string) {
	t.Helper()
	for _, text := range texts {
		a.try(t, text, append(args, "-n", a.ns, "-f", "-")...).ok(t)
	}
}

func (a *absence) namespaceDeleted(t *testing.T) {
	a.revoke(t)
	// Nothing here finishes the deletion of a namespace; what a namespace controller does first is this.
	a.try(t, "", "delete", "namespace", a.ns, "--wait=false").ok(t)
	a.try(t, "", "delete", "keysets", "--all", "-n", a.ns).ok(t)
	a.complain(t, lastgood.ReasonMissing)
	err := keystore.Create(t.Context(), keystore.NewStore(a.st), storetest.KeySet(t, "prod-x"))
	wantError(t, "Create in a namespace that is being deleted", err, "being terminated")
}

// pruned is Argo with prune and a Git repository that somebody has set back.
func (a *absence) pruned(t *testing.T) {
	a.revoke(t)
	defer a.loop(func() {
		a.try(t, "", "delete", "keysets", "--all", "-n", a.ns).ok(t)
		a.apply(t, a.older, "apply", "--server-side", "--force-conflicts")
	})()
	a.complain(t, lastgood.ReasonMissing, lastgood.ReasonOlderGeneration)
}

// reapplied is Argo with self-heal: the API server itself refuses what is older.
func (a *absence) reapplied(t *testing.T) {
	a.revoke(t)
	refused := 0
	stop := a.loop(func() {
		for _, text := range a.older {
			for _, how := range [][]string{{"apply", "--server-side", "--force-conflicts"}, {"replace"}} {
				r := a.try(t, text, append(how, "-n", a.ns, "-f", "-")...)
				switch {
				case r.code != 0 && strings.Contains(r.stderr, saysGeneration):
					refused++
				case r.code != 0 && strings.Contains(r.stderr, "the object has been modified"):
					// kubectl replace reads the object first: an Update came between. Nothing was written.
				default:
					t.Errorf("kubectl %s of an older manifest: exit code %d: %s%s", how, r.code, r.stdout, r.stderr)
				}
			}
		}
	})
	defer stop()
	time.Sleep(outageTime)
	for n := range a.older {
		s, err := keystore.Update(t.Context(), keystore.NewStore(a.st), n, storetest.Mark("x"))
		must(t, err)
		serves(t, a.pub, n, s.Generation())
	}
	stop()
	if refused == 0 {
		t.Error("nothing was applied")
	}
}

// loop does something every second until it is stopped.
func (a *absence) loop(do func()) (stop func()) {
	done := make(chan struct{})
	var looping sync.WaitGroup
	looping.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				do()
			}
		}
	})
	return sync.OnceFunc(func() { close(done); looping.Wait() })
}

func (a *absence) undefined(t *testing.T) {
	a.revoke(t)
	a.try(t, "", "delete", "crd", "keysets.keypost.dev").ok(t)
	if all, err := a.st.List(t.Context()); err == nil && len(all) > 0 {
		t.Errorf("List = %v without a definition", all)
	}
	await(t, "the definition is said to be missing", func(ctx context.Context) error {
		if _, err := a.st.List(ctx); err == nil || !strings.Contains(err.Error(), "install the custom resource definition") {
			return fmt.Errorf("List says %w", err)
		}
		return nil
	})
	if _, _, err := keystore.NewStore(a.st).Load(t.Context(), numbered(0)); err == nil || errors.Is(err, keystore.ErrNotFound) {
		t.Errorf("Load = %v without a definition", err)
	}
	time.Sleep(outageTime)
	a.define(t)
	a.complain(t, lastgood.ReasonMissing)
	a.apply(t, a.older, "create")
	a.complain(t, lastgood.ReasonOlderGeneration)
	a.accepted(t)
}

// accepted is the way out: the operator accepts what is there beyond the generation that is served.
func (a *absence) accepted(t *testing.T) {
	t.Helper()
	for n := range a.older {
		served := statusOf(a.pub, n).Generation
		s, err := keystore.Update(t.Context(), keystore.NewStore(a.st), n, func(s keystore.KeySet) (keystore.KeySet, error) {
			var gone []keystore.Decision
			for _, k := range s.Keys() {
				if a.w.has(k.ID()) {
					gone = append(gone, keystore.Decision{Key: k.VerificationKey})
				}
			}
			return s.Accept(storetest.Change(2*time.Hour), served, gone)
		})
		must(t, err)
		serves(t, a.pub, n, s.Generation())
	}
}

// restored: the data of etcd from before the revocation are back, with resourceVersions that were given out once.
func (a *absence) restored(t *testing.T) {
	backup := filepath.Join(t.TempDir(), "backup")
	a.stopEtcd()
	must(t, os.CopyFS(backup, os.DirFS(a.etcdDir)))
	a.startEtcd()
	a.c.awaitReady(t, a.api)
	a.revoke(t)
	a.stopAPI()
	a.stopEtcd()
	a.etcdDir = backup
	a.startEtcd()
	a.startAPI()
	a.complain(t, lastgood.ReasonOlderGeneration)
	a.accepted(t)
}

// has reports whether a kid is one that may never be answered.
func (w *witness) has(kid keystore.KeyID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.revoked {
		if k == string(kid) {
			return true
		}
	}
	return false
}
