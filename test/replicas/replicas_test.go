//go:build e2e_full

package replicas

import (
	"bytes"
	"context"
	"fmt"
	randv2 "math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/process"
)

// world is everything that runs.
type world struct {
	t        *testing.T
	b        *backend
	store    *keystore.Store
	replicas []*replica
	parties  *parties
	clusters []*cluster // the first may be changed, and the others were written by a newer version
	plain    int
}

// cacheTime is the longest that any answer may be kept: maxAge; nothing is served stale.
const cacheTime = time.Minute

func count(t *testing.T, name string, fallback int) int {
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

func newWorld(t *testing.T, b *backend) *world {
	w := &world{t: t, b: b, store: b.open()}
	issuers := count(t, "KEYPOST_ISSUERS", 1000)
	w.plain = issuers * 9 / 10
	w.fill(issuers)
	ca := authority.New(t)
	for range 3 {
		w.replicas = append(w.replicas, newReplica(t, b, ca))
	}
	lb := newBalancer(t, w.replicas)
	began := time.Now()
	var starting sync.WaitGroup
	for _, r := range w.replicas {
		starting.Go(r.start)
	}
	starting.Wait()
	t.Logf("three replicas with %d issuers were ready after %v", issuers, time.Since(began).Round(time.Millisecond))
	w.parties = startParties(t, lb, ca, w.clusters)
	return w
}

func (w *world) fill(issuers int) {
	w.clusters = make([]*cluster, issuers)
	began := time.Now()
	var g errgroup.Group
	g.SetLimit(8)
	for i := range issuers {
		g.Go(func() error {
			name := fmt.Sprintf("prod-%04d", i)
			c := &cluster{name: name, issuer: "https://" + host + "/" + name, served: []signer{newSigner(w.t)}}
			w.clusters[i] = c
			return w.create(c, i >= w.plain)
		})
	}
	must(w.t, g.Wait())
	w.t.Logf("%d key sets were created within %v", issuers, time.Since(began).Round(time.Millisecond))
}

// create stores a key set; a newer one has a member that this version does not know.
func (w *world) create(c *cluster, newer bool) error {
	s, err := keystore.New(keystore.Change{At: time.Now().Add(-time.Hour), By: "test"}, keystore.Spec{
		Name: keystore.Name(c.name), Issuers: storetest.URLs(w.t, c.issuer), Keys: []keystore.VerificationKey{c.served[0].pub},
		Policy: keystore.Policy{MaxAge: keystore.DurationPtr(cacheTime), StaleWhileRevalidate: keystore.DurationPtr(0), StaleIfError: keystore.DurationPtr(0), RelyingParties: []string{"aws"}},
	})
	if err != nil {
		return err
	}
	if newer {
		data, err := keystore.Encode(s)
		if err != nil {
			return err
		}
		data = bytes.Replace(data, []byte("\nspec:\n"), []byte("\nspec:\n  colour: red\n"), 1)
		_, err = w.store.Backend().Put(w.t.Context(), s.Name(), "", data) // the store refuses what it does not understand
		return err
	}
	return keystore.Create(w.t.Context(), w.store, s)
}

// everywhere waits until check is content with every replica that answers anybody, and returns how long that took.
func (w *world) everywhere(what string, check func(*replica) error) time.Duration {
	w.t.Helper()
	began := time.Now()
	process.Await(w.t, what, func() error {
		for _, r := range w.replicas {
			if !r.serving.Load() {
				continue
			}
			if err := check(r); err != nil && r.serving.Load() {
				return fmt.Errorf("replica at %s: %w", r.public, err)
			}
		}
		return nil
	})
	return time.Since(began)
}

func has(c *cluster, id keystore.KeyID, want bool) func(*replica) error {
	return func(r *replica) error {
		body, _, err := fetch(context.Background(), r.client, c.issuer+"/keys.json")
		if err == nil && bytes.Contains(body, []byte(id)) != want {
			err = fmt.Errorf("key %s: served is %v", id, !want)
		}
		return err
	}
}

// change adds a key to an issuer, waits until every replica serves it, and has relying parties use it; or it revokes one.
func (w *world) change() time.Duration {
	w.t.Helper()
	c := w.clusters[randv2.IntN(w.plain)]
	if len(c.served) > 2 {
		return w.revoke(c)
	}
	s := newSigner(w.t)
	_, err := keystore.Update(w.t.Context(), w.store, keystore.Name(c.name), func(k keystore.KeySet) (keystore.KeySet, error) {
		return k.Add(keystore.Change{At: time.Now(), By: "test"}, s.pub)
	})
	must(w.t, err)
	took := w.everywhere("the new key of "+c.name, has(c, s.id, true))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = append(c.served, s)
	return took
}

// revoke takes the oldest key away, after its tokens have gone out of use.
func (w *world) revoke(c *cluster) time.Duration {
	w.t.Helper()
	c.mu.Lock()
	old := c.served[0]
	c.served = c.served[1:]
	c.mu.Unlock()
	_, err := keystore.Update(w.t.Context(), w.store, keystore.Name(c.name), func(k keystore.KeySet) (keystore.KeySet, error) {
		return k.Revoke(keystore.Change{At: time.Now(), By: "test", Why: "test"}, old.id, keystore.RevokeOptions{})
	})
	must(w.t, err)
	took := w.everywhere("the revocation in "+c.name, has(c, old.id, false))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revoked = append(c.revoked, old.id)
	return took
}

// meanwhile makes changes until do has returned.
func (w *world) meanwhile(what string, do func()) {
	w.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done) // also when it fails the test
		do()
	}()
	var slowest time.Duration
	changes := 0
	for over := false; !over; changes++ {
		slowest = max(slowest, w.change())
		select {
		case <-done:
			over = true
		default:
		}
	}
	w.parties.more(200)
	w.t.Logf("%s: %d changes, the slowest was served everywhere after %v", what, changes, slowest.Round(time.Millisecond))
}

// agree compares every document of every replica: where generations are equal, bytes and ETags are.
func (w *world) agree() {
	w.t.Helper()
	w.everywhere("the same generations", func(r *replica) error {
		first, err := w.replicas[0].report()
		if err != nil {
			return err
		}
		mine, err := r.report()
		if err != nil {
			return err
		}
		for name, generation := range first {
			if mine[name] != generation {
				return fmt.Errorf("%s has generation %d, not %d", name, mine[name], generation)
			}
		}
		if len(mine) != len(w.clusters) || len(first) != len(mine) {
			return fmt.Errorf("%d issuers", len(mine))
		}
		return nil
	})
	for _, c := range w.clusters {
		for _, path := range []string{"/keys.json", "/openid/v1/jwks", "/.well-known/openid-configuration"} {
			var want answer
			for i, r := range w.replicas {
				got, err := ask(w.t.Context(), r, c.issuer+path)
				must(w.t, err)
				if i > 0 && got != want {
					w.t.Errorf("%s%s: %v and %v", c.issuer, path, want, got)
				}
				want = got
			}
		}
	}
}

// outage takes the store away for longer than every cache; meanwhile every pod is replaced, with its volume.
func (w *world) outage() {
	w.t.Helper()
	began := time.Now()
	w.b.stop()
	for _, r := range w.replicas {
		r.stop()
		r.start()
		w.parties.more(100)
	}
	w.replicas[0].kill()
	w.replicas[0].start()
	for time.Since(began) < cacheTime+30*time.Second {
		w.parties.more(100)
	}
	for _, r := range w.replicas {
		if _, err := r.report(); err != nil {
			w.t.Error(err)
		}
	}
	w.b.restart()
	down := time.Since(began).Round(time.Second)
	took := w.change()
	w.t.Logf("the store was down for %v; after that a change was served everywhere within %v", down, took.Round(time.Millisecond))
	if took > w.b.poll {
		w.t.Errorf("a change after the outage was served everywhere after %v, though everything is listed each %v", took, w.b.poll)
	}
}

func (w *world) run() {
	w.t.Helper()
	w.agree()
	w.meanwhile("all is well", func() { time.Sleep(10 * time.Second) })
	w.meanwhile("pods are replaced, volumes stay", func() {
		for _, r := range w.replicas {
			r.stop()
			r.start()
		}
	})
	w.meanwhile("pods are killed, volumes are lost", func() {
		for _, r := range w.replicas {
			r.kill()
			r.loseVolume()
			r.start()
		}
	})
	w.meanwhile("pods are put back to the previous version, and forth", func() {
		for _, programs := range []string{previous, binaries} {
			for _, r := range w.replicas {
				r.stop()
				r.programs = programs
				r.start()
			}
		}
	})
	w.agree()
	w.outage()
	w.meanwhile("after the outage", func() { time.Sleep(5 * time.Second) })
	w.agree()
	w.parties.stop()
	w.t.Logf("%d tokens verified with %d document requests, none failed; %d connections were cut by kills", w.parties.verified.Load(), w.parties.requests.Load(), w.parties.cut.Load())
}

func TestReplicasOnKubernetes(t *testing.T) { newWorld(t, newKube(t)).run() }
