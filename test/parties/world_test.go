// Package parties has relying parties' own code check tokens of key sets of ours, through a rotation and a revocation.
package parties

import (
	"crypto"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/keys"
)

const (
	name    = keystore.Name("prod-a")
	subject = "system:serviceaccount:default:app"
)

type object = map[string]any

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// algorithms are what a cluster may sign with by default.
var algorithms = []string{"RS256", "ES256"}

// signer is a cluster's signing key.
type signer struct {
	keystore.VerificationKey
	private crypto.Signer
}

func newSigner(t *testing.T, alg string) signer {
	t.Helper()
	var private crypto.Signer = keys.NewEC()
	if alg == "RS256" {
		private = keys.NewRSA()()
	}
	k, err := keystore.NewPublic(private.Public())
	check(t, err)
	return signer{k, private}
}

// token returns a service account token of an issuer for an audience, with some claims changed.
func (s signer) token(t *testing.T, issuer, audience string, change object) string {
	t.Helper()
	now := time.Now()
	claims := object{"iss": issuer, "aud": []string{audience}, "sub": subject,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix()}
	maps.Copy(claims, change)
	return keys.JWS(s.private, jose.SignatureAlgorithm(s.Alg()), string(s.ID()), claims)
}

// world is a stored key set whose states follow each other without gates: what is asked here is what relying parties make of them.
type world struct {
	t      *testing.T
	store  *keystore.Store
	issuer string
	steps  int
}

// newWorld stores a key set with one active key.
func newWorld(t *testing.T, issuer string, dev bool, first signer, policy keystore.Policy) *world {
	t.Helper()
	u, err := keystore.ParseIssuerURL(issuer, dev)
	check(t, err)
	s, err := keystore.New(storetest.Change(0), keystore.Spec{Name: name, Issuers: []keystore.IssuerURL{u}, Dev: dev,
		Keys: []keystore.VerificationKey{first.VerificationKey}, Policy: policy})
	check(t, err)
	w := &world{t: t, store: storetest.NewMemStore(t).Store, issuer: issuer}
	check(t, keystore.Create(t.Context(), w.store, s))
	return w
}

func (w *world) change(to func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error)) {
	w.t.Helper()
	w.steps++
	_, err := keystore.Update(w.t.Context(), w.store, name, func(s keystore.KeySet) (keystore.KeySet, error) {
		return to(s, storetest.Change(time.Duration(w.steps)*time.Hour))
	})
	check(w.t, err)
}

func (w *world) add(k signer) {
	w.t.Helper()
	w.change(func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
		return s.Add(c, k.VerificationKey)
	})
}

func (w *world) promote(k signer) {
	w.t.Helper()
	w.change(func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
		return s.Promote(c, k.ID(), keystore.Observed{})
	})
}

func (w *world) revoke(k signer) {
	w.t.Helper()
	w.change(func(s keystore.KeySet, c keystore.Change) (keystore.KeySet, error) {
		return s.Revoke(c, k.ID(), keystore.RevokeOptions{})
	})
}

// traffic logs in one token after another, over and over.
type traffic struct {
	t     *testing.T
	login func(token string) string

	mu      sync.Mutex
	tokens  []string
	logins  int
	refused []string
}

// perStep is how many logins each step of a rotation sees at least.
const perStep = 100

// rotate takes the steps of a rotation while a token of the first key is logged in all the time. What a step returns is logged in with
// from then on. It reports how many logins there were; one that is refused fails the test.
func rotate(t *testing.T, login func(token string) string, first string, steps ...func() (token string)) string {
	t.Helper()
	r := &traffic{t: t, login: login, tokens: []string{first}}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				r.once(i)
			}
		}
	})
	defer wg.Wait()
	defer close(done) // also when a step ends the test
	r.wait()
	for _, step := range steps {
		if token := step(); token != "" {
			r.mu.Lock()
			r.tokens = append(r.tokens, token)
			r.mu.Unlock()
		}
		r.wait()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, said := range r.refused {
		t.Errorf("refused in a rotation: %s", said)
	}
	return fmt.Sprintf("%d logins, %d refused", r.logins, len(r.refused))
}

func (r *traffic) once(i int) {
	r.mu.Lock()
	token := r.tokens[i%len(r.tokens)]
	r.mu.Unlock()
	said := r.login(token)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logins++; said != "" {
		r.refused = append(r.refused, said)
	}
}

func (r *traffic) wait() {
	r.mu.Lock()
	from := r.logins
	r.mu.Unlock()
	for range 3000 { // half a minute
		r.mu.Lock()
		enough := r.logins >= from+perStep
		r.mu.Unlock()
		if enough {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatal("logins hang")
}

// row is one of the table that a test prints.
type row struct{ party, accepted, rotated, revoked, broken string }

func show(t *testing.T, rows []row) {
	t.Helper()
	var b strings.Builder
	b.WriteString("\n| party | accepted | rotated | revoked | broken |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.party, r.accepted, r.rotated, r.revoked, r.broken)
	}
	t.Log(b.String())
}
