//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestReplaceCluster has one real cluster take the place of another under one issuer URL, as docs/replace-cluster.md says: the new one
// starts with a key of its own, which is published, promoted by the gates, rolled back and promoted again, and the old one is deleted. All
// the while both clusters' tokens are verified: directly and through two caches, one of them cut off, by go-oidc, npm jose, a strict
// client and kube-apiservers that rely on the issuer, and by the cluster itself. None is refused. Then a third cluster replaces the second
// with the gate at zero: tokens are refused, or the first would show nothing.
func TestReplaceCluster(t *testing.T) {
	p := newProof(t, 1)
	right := &rotating{name: "replaced by the gates", terms: withKubernetes(), kubernetes: true, operators: 1}
	p.publish(t, right, 0)
	startEtcd(t)
	first := newTakenOver(t, right, "first", "10.99.0.61", right.old)
	second := newTakenOver(t, right, "second", "10.99.0.62", right.next)
	right.signers = []signer{first, second}
	first.used.Store(true)
	p.startKubernetes(t, []*rotating{right})
	right.parties = append(right.parties, own(first, second))
	right.how = func(r *rotating, ctx context.Context) error { return r.clusterReplaced(ctx, t, first, second) }
	right.run(t)

	wrong := &rotating{name: "gate at zero", terms: right.terms, kubernetes: true, operators: 1, wrong: true, proof: p, id: right.id, url: right.url, link: right.link,
		old: right.next, next: generateSigningKey(t, "rsa2048"), counts: map[string]count{}, minted: map[string]int{}}
	third := newTakenOver(t, wrong, "third", "10.99.0.63", wrong.next)
	wrong.signers = []signer{second, third}
	wrong.parties = append(slices.Clone(right.parties[:len(right.parties)-1]), own(second, third))
	wrong.how = func(r *rotating, ctx context.Context) error { return r.replacedAtOnce(ctx, third) }
	wrong.run(t)
	report(t, []*rotating{right, wrong})
}

// takenOver is one of the clusters: it has one real kube-apiserver, with something in it that uses its tokens.
type takenOver struct {
	signerPlane
	key  signingKey
	used atomic.Bool
}

func newTakenOver(t *testing.T, r *rotating, name, host string, key signingKey) *takenOver {
	t.Helper()
	servers := newPlane(t, r.ca, name, host)
	servers.key = key.key
	servers.serve(t, 0, r.url)
	servers.createAccount(t)
	servers.listed(t, host)
	return &takenOver{signerPlane: signerPlane{servers: servers, issuer: r.url}, key: key}
}

var errUnused = errors.New("nothing of this cluster uses tokens")

func (w *takenOver) mint(_ string, lifetime time.Duration) (proofToken, error) {
	if !w.used.Load() {
		return proofToken{}, errUnused
	}
	text, err := w.signerPlane.mint(context.Background(), 0)
	return proofToken{text, w.key.kid, time.Now().Add(lifetime)}, err
}

func (*takenOver) learn(signingKey) {}
func (*takenOver) sign(signingKey)  {}

// own is each cluster, which verifies its own tokens.
func own(all ...*takenOver) party {
	return party{"kube-apiserver", "itself", func(ctx context.Context, token string) error {
		kid, err := headerKid(token)
		i := slices.IndexFunc(all, func(w *takenOver) bool { return w.key.kid == kid })
		if err != nil || i < 0 {
			return fmt.Errorf("no cluster has the key %s: %w", kid, err)
		}
		err = all[i].reviewed(ctx, 0, token)
		if err != nil && !errors.Is(err, errRefused) {
			err = fmt.Errorf("%w: %w", errNoJWKS, err)
		}
		return err
	}}
}

// beginWith starts the rotation to the key of a cluster.
func (r *rotating) beginWith(w *takenOver) func() error {
	return func() error {
		return r.keypost(0, "rotate", "start", r.id, "--kubeconfig", w.servers.kubeconfig).err()
	}
}

// clusterReplaced follows the page. Workloads use the new cluster once its key is promoted.
func (r *rotating) clusterReplaced(ctx context.Context, t *testing.T, was, is *takenOver) error {
	if err := r.cutOff(ctx, r.beginWith(is)); err != nil {
		return err
	}
	r.asking = []string{"--kubeconfig", is.servers.kubeconfig, "--service-account", "default/sa1"}
	if _, err := r.stepTo(ctx, "retire"); err != nil {
		return err
	}
	is.used.Store(true)
	for _, why := range []string{"the new cluster is slow", "it is not"} { // back, and on again
		time.Sleep(r.maxAge / 4)
		if err := r.keypost(0, "rotate", "rollback", r.id, "--why", why).err(); err != nil {
			return err
		}
	}
	if out := r.keypost(0, append([]string{"rotate", "step", r.id}, r.asking...)...); out.code != 0 || !strings.Contains(out.stderr, "--gone other-cluster") {
		return fmt.Errorf("the old cluster is there, and rotate step exits with %d: %s", out.code, out.stderr)
	}
	was.used.Store(false)
	time.Sleep(r.lifetime)
	was.servers.running[0].stop(t, 20*time.Second) // the old cluster is deleted
	r.asking = append(r.asking, "--gone", "other-cluster")
	_, err := r.stepTo(ctx, "")
	return err
}

// replacedAtOnce promotes the new cluster's key as soon as it is published, and uses it.
func (r *rotating) replacedAtOnce(ctx context.Context, is *takenOver) error {
	if err := r.cutOff(ctx, r.beginWith(is)); err != nil {
		return err
	}
	if err := r.keypost(0, "key", "promote", r.id, r.next.kid, "--force", "--why", "in a hurry").err(); err != nil {
		return err
	}
	is.used.Store(true)
	time.Sleep(time.Until(r.cutUntil) + r.maxAge)
	return nil
}
