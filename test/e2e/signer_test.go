//go:build e2e

package e2e

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestSigner rotates the key of a cluster of two real kube-apiservers, each with a keypost-signer beside it and a keypost mirror that
// fills its directory. Tokens are minted and verified all the time, by go-oidc with keys just fetched and by both API servers. None is
// refused, and no API server is restarted. Waiting for gates is played: the recorded times are moved back.
func TestSigner(t *testing.T) {
	s := newSignerScene(t)
	stop := s.load(t)
	t.Run("promotion switches every API server", s.rotate)
	t.Run("a signer that is killed and one without its directory go on", s.outages)
	t.Run("the proof of what signs, and the old key leaves", s.finish)
	stop()
	t.Run("a revoked key signs nothing more and is not accepted", s.revoke)
	for i, p := range s.plane.running {
		if p.PID() != s.pids[i] || p.Ended() {
			t.Errorf("kube-apiserver %d was restarted or has ended", i)
		}
	}
}

type signerScene struct {
	*rotateScene
	signerPlane
	pids []int
}

// signerPlane is a cluster whose kube-apiservers have a keypost-signer beside them, or are to have one.
type signerPlane struct {
	servers *plane
	issuer  string
	sides   []*signerSide
}

// sign prepares what stands beside each server that is started from now on. Each signer holds the cluster's key. A mirror takes no
// development key set: those signers read the store's directory itself.
func (p *signerPlane) sign(t *testing.T, dir, store, keySet string, dev bool) {
	for i := range p.servers.hosts {
		p.sides = append(p.sides, newSignerSide(t, fmt.Sprintf("%s/%d", dir, i), store, keySet, p.servers.key, dev))
		p.servers.signers = append(p.servers.signers, p.sides[i].socket)
	}
}

// signerSide is what stands beside one kube-apiserver.
type signerSide struct {
	keys, keySets, socket, config string
	signer, mirror                *process
	top                           *testing.T
}

func newSignerScene(t *testing.T) *signerScene {
	s := &signerScene{}
	s.rotateScene = newRotateScene(t, func(r *rotateScene) {
		s.signerPlane = signerPlane{servers: r.plane, issuer: rotateIssuer}
		s.sign(t, t.TempDir(), r.server.store, "prod-a", false)
	}, "10.99.0.31", "10.99.0.32")
	for _, p := range s.plane.running {
		s.pids = append(s.pids, p.PID())
	}
	return s
}

// newSignerSide starts a signer that holds one key, and a mirror of a store unless that is one of development.
func newSignerSide(t *testing.T, dir, store, keySet string, key crypto.Signer, dev bool) *signerSide {
	side := &signerSide{keys: filepath.Join(dir, "keys"), keySets: filepath.Join(dir, "keysets"), socket: filepath.Join(dir, "run", "s.sock"), config: filepath.Join(dir, "signer.yaml"), top: t}
	if dev {
		side.keySets = store
	}
	for _, d := range []string{side.keys, side.keySets} {
		must(t, os.MkdirAll(d, 0o700))
	}
	writePrivateKey(t, filepath.Join(side.keys, "old.key"), key)
	must(t, os.WriteFile(side.config, fmt.Appendf(nil, "dir: %s\nkeySet: %s\nkeys: %s\nsocket: {path: %s, uids: [%d]}\nadmin: {address: \"127.0.0.1:0\"}\n",
		side.keySets, keySet, side.keys, side.socket, os.Getuid()), 0o600))
	if !dev {
		side.mirror = start(t, "mirror-"+side.name(), binary("keypost"), "mirror", "--store", "file://"+store, "--poll", "1s", side.keySets)
		await(t, "the mirror has the key set", func(context.Context) error {
			_, err := os.Stat(filepath.Join(side.keySets, keySet+".yaml"))
			return err
		})
	}
	side.start(t)
	return side
}

func (side *signerSide) name() string { return filepath.Base(filepath.Dir(side.config)) }

func (side *signerSide) start(t *testing.T) {
	side.signer = start(side.top, "signer-"+side.name(), binary("keypost-signer"), "--config", side.config)
	await(t, "the signer's socket", func(context.Context) error {
		_, err := os.Stat(side.socket)
		return err
	})
}

// hold gives every signer a private key, as an operator copies it.
func (p *signerPlane) hold(t *testing.T, from, name string) {
	t.Helper()
	key := read(t, from)
	for _, side := range p.sides {
		must(t, os.WriteFile(filepath.Join(side.keys, name), key, 0o600))
	}
}

func (p *signerPlane) mint(ctx context.Context, i int) (string, error) {
	return p.servers.mint(ctx, i, 10*time.Minute, audience, p.issuer)
}

// reviewed asks a kube-apiserver whether it accepts a token.
func (p *signerPlane) reviewed(ctx context.Context, i int, token string) error {
	var answer struct {
		Status struct {
			Authenticated bool
			Error         string
		}
	}
	err := p.servers.post(ctx, i, "/apis/authentication.k8s.io/v1/tokenreviews",
		map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": map[string]any{"token": token}}, &answer)
	if err == nil && !answer.Status.Authenticated {
		err = fmt.Errorf("%w: %s", errRefused, answer.Status.Error)
	}
	return err
}

var errRefused = errors.New("the token is not accepted")

// load has each server mint tokens and verifies them all the time. stop fails the test if one was refused.
func (s *signerScene) load(t *testing.T) (stop func()) {
	var cut atomic.Int64 // calls that the killing of a signer has cut off
	var all []*lasting
	for i := range s.sides {
		all = append(all, keepTrying(t, func(ctx context.Context) error {
			ctx = context.WithoutCancel(ctx)
			token, err := s.mint(ctx, i)
			if err != nil && strings.Contains(err.Error(), "code = Unavailable") {
				cut.Add(1)
				return nil
			}
			return errors.Join(err, s.verified(ctx, token))
		}))
	}
	return func() {
		for _, l := range all {
			l.expectSteady(t)
		}
		if n := cut.Load(); n > 2 { // one signer is killed once, and each load has one call under way
			t.Errorf("%d calls were cut off", n)
		}
	}
}

// verified has a token verified everywhere.
func (s *signerScene) verified(ctx context.Context, token string) error {
	if err := signedBy(ctx, s.server.ca.client(), rotateIssuer, token); err != nil {
		return fmt.Errorf("go-oidc: %w", err)
	}
	for at := range s.sides {
		if err := s.reviewed(ctx, at, token); err != nil {
			return fmt.Errorf("reviewed at %d: %w", at, err)
		}
	}
	return nil
}

// rotate: a mirror that has stopped holds the promotion up, by the name of its API server. Once both list the next key it is promoted, and
// both sign with it within seconds.
func (s *signerScene) rotate(t *testing.T) {
	s.next = strings.Fields(s.keypost(t, "key", "generate", "--out", s.nextDir).ok(t))[1]
	s.hold(t, filepath.Join(s.nextDir, "sa.key"), "next.key")
	s.sides[1].mirror.Signal(t, syscall.SIGSTOP)
	s.keypost(t, "rotate", "start", "prod-a", "--public-key-file", filepath.Join(s.nextDir, "sa.pub")).ok(t)
	s.lists(t, 0)
	s.expect(t, s.step(t), "a cache may still hold a JWKS without the key")
	s.later(t, 26*time.Hour)
	s.expect(t, s.step(t), "the kube-apiserver "+s.plane.at(1)+" does not list it, although another does")
	s.sides[1].mirror.Signal(t, syscall.SIGCONT)
	s.lists(t, 1)
	for i := range s.sides {
		if kid := s.signsWith(t, i); kid != s.old {
			t.Fatalf("server %d signs with %s before the promotion", i, kid)
		}
	}
	began := time.Now()
	s.expect(t, s.step(t), "prod-a: promoted key "+s.next)
	for i := range s.sides {
		await(t, "the promoted key signs", func(context.Context) error {
			if kid := s.signsWith(t, i); kid != s.next {
				return fmt.Errorf("server %d signs with %s", i, kid)
			}
			return nil
		})
	}
	t.Logf("both API servers sign with the promoted key %v after the command began", time.Since(began).Round(time.Millisecond))
}

// lists waits until a kube-apiserver lists the next key.
func (s *signerScene) lists(t *testing.T, i int) {
	t.Helper()
	await(t, "the next key in the API server's own list", func(context.Context) error {
		if keys := s.plane.kubectlAt(t, i, "get", "--raw", "/openid/v1/jwks").stdout; !strings.Contains(keys, s.next) {
			return fmt.Errorf("it lists %s", keys)
		}
		return nil
	})
}

func (p *signerPlane) signsWith(t *testing.T, i int) string {
	t.Helper()
	token, err := p.mint(t.Context(), i)
	must(t, err)
	return kidOf(t, token)
}

// outages: the signer of one server is killed and started again; the directory of the other is taken away.
func (s *signerScene) outages(t *testing.T) {
	must(t, os.Rename(s.sides[1].keySets, s.sides[1].keySets+".away"))
	time.Sleep(3 * time.Second)
	if kid := s.signsWith(t, 1); kid != s.next {
		t.Errorf("without its directory it signs with %s", kid)
	}
	must(t, os.RemoveAll(s.sides[1].keySets)) // the mirror has made it anew
	must(t, os.Rename(s.sides[1].keySets+".away", s.sides[1].keySets))
	s.sides[0].signer.Kill()
	s.sides[0].start(t)
	await(t, "the signer that was killed signs", func(ctx context.Context) error {
		_, err := s.mint(ctx, 0)
		return err
	})
}

// finish: rotate step asks each server for a token, retires the old key, and removes it once its last token has expired.
func (s *signerScene) finish(t *testing.T) {
	s.expect(t, s.step(t), "prod-a: retired key "+s.old)
	s.later(t, 2*time.Hour)
	s.expect(t, s.step(t), "prod-a: removed key "+s.old)
	for i := range s.sides {
		await(t, "the removed key leaves the API server's list", func(context.Context) error {
			if keys := s.plane.kubectlAt(t, i, "get", "--raw", "/openid/v1/jwks").stdout; strings.Contains(keys, s.old) {
				return fmt.Errorf("it lists %s", keys)
			}
			return nil
		})
	}
}

// revoke: the key that signs is stolen. Both servers sign with its replacement within seconds, and refuse its tokens once they have read
// the list again.
func (s *signerScene) revoke(t *testing.T) {
	third := filepath.Join(t.TempDir(), "third")
	kid := strings.Fields(s.keypost(t, "key", "generate", "--out", third).ok(t))[1]
	s.hold(t, filepath.Join(third, "sa.key"), "third.key")
	stolen, err := s.mint(t.Context(), 0)
	must(t, err)
	if kidOf(t, stolen) != s.next {
		t.Fatalf("%s signs, not the key that is revoked", kidOf(t, stolen))
	}
	began := time.Now()
	s.keypost(t, "key", "revoke", "prod-a", s.next, "--why", "stolen", "--replacement", filepath.Join(third, "sa.pub")).ok(t)
	for i := range s.sides {
		await(t, "the replacement signs", func(ctx context.Context) error {
			token, err := s.mint(ctx, i)
			must(t, err) // a signer that has not read the new file yet waits for it
			if kidOf(t, token) != kid {
				err = fmt.Errorf("server %d signs with %s", i, kidOf(t, token))
			}
			return err
		})
	}
	t.Logf("both API servers sign with the replacement %v after the command began", time.Since(began).Round(time.Millisecond))
	for i := range s.sides {
		await(t, "the revoked key's token is refused", func(ctx context.Context) error {
			err := s.reviewed(ctx, i, stolen)
			if errors.Is(err, errRefused) {
				return nil
			}
			return fmt.Errorf("not refused: %w", cmp.Or(err, errors.New("it is accepted")))
		})
	}
	t.Logf("both API servers refuse a token of the revoked key %v after the command began", time.Since(began).Round(time.Millisecond))
	token, err := s.mint(t.Context(), 1)
	must(t, errors.Join(err, s.verified(t.Context(), token)))
}
