//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/test/keys"
)

// TestSignerRotations moves a running cluster of two real kube-apiservers over to keypost-signer, rotates its key again and again, and
// moves it back. All the while both servers make tokens, which are verified at once and once more before they end: through a real cache by
// go-oidc, npm jose and a strict client, and by both servers. None is refused, and no server is restarted by a rotation. Then keys are
// promoted with the gate at zero: tokens are refused, or the rest would show nothing.
//
// Gates are those of a development key set, and no time is played: keys are next for nine seconds and more, and are removed seven seconds
// after they are retired. Rotations overlap, as the commands of `keypost key` permit. A token counts as expired after two seconds.
func TestSignerRotations(t *testing.T) {
	rotations, kills := 20, 20
	if full { // an hour or more
		rotations, kills = 1000, 200
	}
	s := newSignerRotations(t)
	s.during("moved over, with the same key", s.moveOver)
	pids := s.pids()
	stop := s.look()
	for done := 0; done < rotations; done += 100 { // each hundred is printed, so that a run that is cut short has figures
		n := min(100, rotations-done)
		s.during(fmt.Sprintf("%d to %d of %d rotations", done+1, done+n, rotations), func() { s.rotate(n, func(string) {}) })
	}
	killed := map[string]int{}
	s.during(fmt.Sprintf("kill -9, %d times", kills), func() {
		s.rotate(kills/len(signerSteps), func(step string) { killed[step] += s.kill() })
	})
	s.during("the gate at zero, 3 times", func() {
		for range 3 {
			s.force()
		}
	})
	stop()
	if !slices.Equal(pids, s.pids()) {
		t.Errorf("a kube-apiserver was restarted: %v, %v", pids, s.pids())
	}
	s.during("moved back, with the key that signs", s.moveBack)
	t.Logf("signers killed after each step: %v", killed)
	for _, r := range s.phases {
		all := r.sum("")
		if wrong := strings.HasPrefix(r.name, "the gate at zero"); wrong != (all.refused > 0) || all.verified < 50 {
			t.Errorf("%s: %d verified, %d refused, %d without an answer:\n%s", r.name, all.verified, all.refused, all.unanswered, strings.Join(r.why, "\n"))
		}
		if quiet := strings.HasSuffix(r.name, " rotations"); quiet && s.lost[r.name] > 0 {
			t.Errorf("%s: %d calls got no token", r.name, s.lost[r.name])
		}
	}
}

// signerSteps are what is done with the key of a rotation, or with the one before it.
var signerSteps = []string{"published", "promoted", "retired", "removed"}

// ahead is how many keys wait for their gate: it takes nine seconds, and up to twelve until the API servers list a key.
const ahead = 12

type signerRotations struct {
	*proof
	t       *testing.T
	plane   signerPlane
	dir     string
	issuer  *rotating // parties, URL
	phases  []*rotating
	signs   rotatingKey   // promoted last
	next    []rotatingKey // published, oldest first
	retired []rotatingKey // oldest first
	made    int

	promoted time.Time // when a key was, last

	mu    sync.Mutex
	lost  map[string]int // calls for a token that got none, by phase
	phase string
}

type rotatingKey struct {
	kid, name, private string
	since              time.Time
}

func newSignerRotations(t *testing.T) *signerRotations {
	s := &signerRotations{proof: newProof(t, 1), t: t, dir: t.TempDir(), lost: map[string]int{}}
	s.issuer = &rotating{terms: terms{maxAge: 2 * time.Second, lifetime: 2 * time.Second, every: 300 * time.Millisecond, again: time.Minute}}
	s.publish(t, s.issuer, 0)
	startEtcd(t)
	servers := newPlane(t, s.ca, s.issuer.id, "10.99.0.51", "10.99.0.52")
	servers.key = s.issuer.old.key
	s.plane, s.signs = signerPlane{servers: servers, issuer: s.issuer.url}, rotatingKey{kid: s.issuer.old.kid, name: "old.key"}
	for i := range servers.hosts {
		servers.serve(t, i, s.issuer.url)
	}
	servers.createAccount(t)
	servers.listed(t, servers.hosts...)
	s.issuer.parties = slices.DeleteFunc(s.issuer.parties, func(p party) bool { return p.path != "cache 1" })
	for i := range servers.hosts {
		s.issuer.parties = append(s.issuer.parties, party{"kube-apiserver", fmt.Sprint(i), func(ctx context.Context, token string) error {
			err := s.plane.reviewed(ctx, i, token)
			if err != nil && !errors.Is(err, errRefused) {
				err = fmt.Errorf("%w: %w", errNoJWKS, err)
			}
			return err
		}})
	}
	return s
}

// signingServer is one kube-apiserver.
type signingServer struct {
	*signerRotations
	i int
}

func (s signingServer) mint(_ string, lifetime time.Duration) (proofToken, error) {
	token, err := s.plane.mint(context.Background(), s.i)
	if err != nil {
		s.mu.Lock()
		s.lost[s.phase]++
		s.mu.Unlock()
		return proofToken{}, err
	}
	kid, err := headerKid(token)
	return proofToken{token, kid, time.Now().Add(lifetime)}, err
}

func (signingServer) learn(signingKey) {}
func (signingServer) sign(signingKey)  {}

// during has both servers make tokens while something is done, and counts what becomes of them.
func (s *signerRotations) during(name string, do func()) {
	r := &rotating{name: name, terms: s.issuer.terms, proof: s.proof, id: s.issuer.id, url: s.issuer.url, parties: s.issuer.parties, counts: map[string]count{}, minted: map[string]int{}}
	s.mu.Lock()
	s.phase, s.phases = name, append(s.phases, r)
	s.mu.Unlock()
	for i := range s.plane.servers.hosts {
		r.signers = append(r.signers, signingServer{s, i})
	}
	began := time.Now()
	r.how = func(*rotating, context.Context) error { do(); return nil }
	r.run(s.t)
	tokens := 0
	for _, n := range r.minted {
		tokens += n
	}
	all := r.sum("")
	s.t.Logf("%s: %v, %d tokens of %d keys, %d verifications, %d refused (go-oidc %d, jose %d, strict %d, kube-apiserver %d), %d without an answer; %d calls got no token",
		name, time.Since(began).Round(time.Second), tokens, len(r.minted), all.verified, all.refused, r.sum("go-oidc").refused, r.sum("jose").refused, r.sum("strict").refused,
		r.sum("kube-apiserver").refused, all.unanswered, s.lost[name])
}

func (s *signerRotations) pids() (all []int) {
	for _, p := range s.plane.servers.running {
		if !p.Ended() {
			all = append(all, p.PID())
		}
	}
	return all
}

// moveOver restarts one server after the other with a signer that holds the key that it has signed with itself.
func (s *signerRotations) moveOver() {
	s.plane.sign(s.t, s.dir, filepath.Join(s.proof.dir, "keysets"), s.issuer.id, true)
	s.restart()
}

// moveBack restarts them with the key that signs in a file.
func (s *signerRotations) moveBack() {
	s.plane.servers.key, s.plane.servers.signers = keys.Private(read(s.t, s.signs.private)), nil
	s.restart()
}

func (s *signerRotations) restart() {
	for i := range s.plane.servers.hosts {
		s.plane.servers.serve(s.t, i, s.issuer.url)
		s.bothSign()
	}
}

// look looks at the issuer all the time, as `keypost watch` or a timer does, until stop is called.
func (s *signerRotations) look() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			_ = s.keypost(0, "issuer", "observe", s.issuer.id) // the gates tell
		}
	})
	stop = func() { cancel(); done.Wait() }
	s.t.Cleanup(stop)
	return stop
}

// key runs a command of `keypost key`.
func (s *signerRotations) key(verb string, args ...string) result {
	return s.keypost(0, append([]string{"key", verb, s.issuer.id}, args...)...)
}

// add has every signer hold a new key, and publishes it.
func (s *signerRotations) add() rotatingKey {
	s.made++
	dir := filepath.Join(s.dir, fmt.Sprint(s.made))
	kind := []string{"p256", "p256", "p256", "rsa2048"}[s.made%4]
	out := s.keypost(0, "key", "generate", "--type", kind, "--out", dir)
	must(s.t, out.err())
	k := rotatingKey{strings.Fields(out.stdout)[1], fmt.Sprintf("%d.key", s.made), filepath.Join(dir, "sa.key"), time.Now()}
	s.plane.hold(s.t, k.private, k.name)
	must(s.t, s.key("add", "--public-key-file", filepath.Join(dir, "sa.pub")).err())
	return k
}

// rotate has so many keys sign, one after the other. Each command is given without --force, as soon as its gate is open. after is called
// after each step.
func (s *signerRotations) rotate(n int, after func(step string)) {
	for range n {
		for len(s.next) < ahead {
			s.next = append(s.next, s.add())
		}
		after("published")
		was := s.signs
		s.promote()
		after("promoted")
		s.bothSign()
		s.retire(was)
		after("retired")
		for len(s.retired) > 0 && time.Since(s.retired[0].since) > s.issuer.lifetime+5*time.Second {
			k := s.retired[0]
			must(s.t, s.key("remove", k.kid).err())
			s.retired = s.retired[1:]
			for _, side := range s.plane.sides {
				must(s.t, os.Remove(filepath.Join(side.keys, k.name)))
			}
			after("removed")
		}
	}
}

// promote promotes the oldest key that is next, once both servers list it, as `keypost rotate step` does. Key sets have times to the
// second: of two keys that are promoted within one, no signer can tell which is the later.
func (s *signerRotations) promote() {
	k := s.next[0]
	time.Sleep(time.Until(s.promoted.Add(time.Second)))
	await(s.t, "the gate of "+k.kid, func(ctx context.Context) error {
		for i := range s.plane.servers.hosts {
			if keys, err := s.plane.servers.call(ctx, i, http.MethodGet, "/openid/v1/jwks", nil); err != nil || !strings.Contains(string(keys), k.kid) {
				return fmt.Errorf("server %d does not list it: %w", i, err)
			}
		}
		return s.key("promote", k.kid).err()
	})
	s.signs, s.next, s.promoted = k, s.next[1:], time.Now()
}

// bothSign waits until both servers sign with the key that was promoted last.
func (s *signerRotations) bothSign() {
	for i := range s.plane.servers.hosts {
		await(s.t, "the promoted key signs", func(ctx context.Context) error {
			token, err := s.plane.mint(ctx, i)
			if err != nil {
				return err
			}
			if kid, err := headerKid(token); err != nil || kid != s.signs.kid {
				return fmt.Errorf("server %d signs with %s: %w", i, kid, err)
			}
			return nil
		})
	}
}

func (s *signerRotations) retire(k rotatingKey) {
	must(s.t, s.key("retire", k.kid, "--why", "both servers were asked").err())
	k.since = time.Now()
	s.retired = append(s.retired, k)
}

// kill kills one signer within a second, as the step reaches it, and starts it again at once.
func (s *signerRotations) kill() int {
	time.Sleep(rand.N(time.Second))
	side := s.plane.sides[rand.N(len(s.plane.sides))]
	side.signer.Kill()
	side.start(s.t)
	return 1
}

// force promotes a key as soon as it is published.
func (s *signerRotations) force() {
	was := s.signs
	s.signs = s.add()
	must(s.t, s.key("promote", s.signs.kid, "--force", "--why", "in a hurry").err())
	s.bothSign()
	s.retire(was)
	time.Sleep(2*s.issuer.maxAge + time.Second) // until no copy is old
}
