//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/test/keys"
	programs "github.com/keypost/keypost/test/process"
)

// signingKey is a pair as `keypost key generate` makes it.
type signingKey struct {
	kid    string
	key    crypto.Signer
	public string // file
	alg    jose.SignatureAlgorithm
}

func generateSigningKey(t *testing.T, kind string) signingKey {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pair")
	out := command(t, nil, "", binary("keypost"), "key", "generate", "--type", kind, "--out", dir).ok(t)
	kid := strings.Fields(out)[1]
	alg := map[string]jose.SignatureAlgorithm{"p256": jose.ES256, "rsa2048": jose.RS256}[kind]
	return signingKey{kid, keys.Private(read(t, filepath.Join(dir, "sa.key"))), filepath.Join(dir, "sa.pub"), alg}
}

// signer is one kube-apiserver of a cluster.
type signer interface {
	mint(issuer string, lifetime time.Duration) (proofToken, error)
	learn(k signingKey) // it accepts tokens of a key, too, from now on
	sign(k signingKey)  // it signs with a key that it has learnt from now on
}

// testSigner stands for one kube-apiserver of a cluster: it signs with the key that it has read at its start, so that each of them
// changes to another at a moment of its own.
type testSigner struct{ key atomic.Pointer[signingKey] }

func newTestSigner(k signingKey) *testSigner {
	s := &testSigner{}
	s.sign(k)
	return s
}

func (s *testSigner) learn(signingKey) {}

func (s *testSigner) sign(k signingKey) { s.key.Store(&k) }

// proofToken is a token and its last moment.
type proofToken struct {
	text, kid string
	exp       time.Time
}

func (s *testSigner) mint(issuer string, lifetime time.Duration) (proofToken, error) {
	return mintWith(*s.key.Load(), issuer, lifetime), nil
}

// What a verification returns that says nothing of the token.
var (
	errNoJWKS = errors.New("no JWKS")
	errBusy   = errors.New("too many at once")
)

// patienceOfParties is how long a relying party waits for a JWKS. A copy that was on its way for longer would be older than
// caches may make it.
const patienceOfParties = 5 * time.Second

// turns bounds how many verifications run at once.
type turns chan struct{}

// take returns verify, which gives up where none is free for a while.
func (t turns) take(verify func(context.Context, string) error) func(context.Context, string) error {
	return func(ctx context.Context, token string) error {
		select {
		case t <- struct{}{}:
			defer func() { <-t }()
			return verify(ctx, token)
		case <-time.After(lastMoment / 2):
			return errBusy
		}
	}
}

// party is a relying party that reads the JWKS by one path.
type party struct {
	name, path string
	verify     func(ctx context.Context, token string) error
}

// goOIDC is a service with coreos/go-oidc v3, which fetches again when it does not know a kid.
func goOIDC(client *http.Client, issuer, url string) func(context.Context, string) error {
	keys := oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), client), url)
	verifier := oidc.NewVerifier(issuer, keys, &oidc.Config{ClientID: audience, SupportedSigningAlgs: []string{oidc.RS256, oidc.ES256}})
	return func(ctx context.Context, token string) error {
		_, err := verifier.Verify(ctx, token)
		if err != nil && strings.Contains(err.Error(), "fetching keys") {
			return fmt.Errorf("%w: %w", errNoJWKS, err)
		}
		return err
	}
}

// strict is the worst client that the specifications allow: it holds its copy for max-age from when it has got it, and never
// asks again because of a kid that it does not know.
type strict struct {
	client      *http.Client
	issuer, url string

	mu    sync.Mutex
	keys  jose.JSONWebKeySet
	until time.Time
}

var maxAgeDirective = regexp.MustCompile(`max-age=(\d+)`)

func (s *strict) copy(ctx context.Context) (jose.JSONWebKeySet, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) {
		return s.keys, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return s.keys, err
	}
	res, err := s.client.Do(req)
	if err != nil {
		return s.keys, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return s.keys, errors.Join(fmt.Errorf("GET %s: %s", s.url, res.Status), err)
	}
	m := maxAgeDirective.FindStringSubmatch(res.Header.Get("Cache-Control"))
	if m == nil {
		return s.keys, fmt.Errorf("GET %s: no max-age", s.url)
	}
	seconds, err := strconv.Atoi(m[1])
	if err != nil {
		return s.keys, err
	}
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal(body, &keys); err != nil {
		return s.keys, err
	}
	s.keys, s.until = keys, time.Now().Add(time.Duration(seconds)*time.Second)
	return s.keys, nil
}

func (s *strict) verify(ctx context.Context, token string) error {
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	if err != nil {
		return err
	}
	keys, err := s.copy(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoJWKS, err)
	}
	found := keys.Key(jws.Signatures[0].Header.KeyID)
	if len(found) != 1 {
		return fmt.Errorf("%d keys of the JWKS have the kid %s", len(found), jws.Signatures[0].Header.KeyID)
	}
	payload, err := jws.Verify(found[0])
	if err != nil {
		return err
	}
	var claims struct {
		Iss string
		Exp int64
	}
	switch err := json.Unmarshal(payload, &claims); {
	case err != nil:
		return err
	case claims.Iss != s.issuer:
		return fmt.Errorf("the issuer is %s", claims.Iss)
	case !time.Now().Before(time.Unix(claims.Exp, 0)):
		return errors.New("the token has expired")
	}
	return nil
}

// nodeJose is a web service with npm jose, one process for all issuers and paths.
type nodeJose struct {
	stdin io.Writer

	mu      sync.Mutex
	last    int
	waiting map[int]chan error
}

func startNodeJose(t *testing.T, caFile string) *nodeJose {
	t.Helper()
	script := filepath.Join(os.Getenv("KEYPOST_E2E_NPM"), "verify-many.mjs")
	cmd := exec.Command("node", script, audience)
	cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+caFile)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	answers, out := io.Pipe()
	cmd.Stdout = out
	n := &nodeJose{stdin: stdin, waiting: map[int]chan error{}}
	programs.Start(t, cmd)
	go n.read(answers)
	return n
}

func (n *nodeJose) read(answers io.Reader) {
	for lines := bufio.NewScanner(answers); lines.Scan(); {
		var a struct {
			ID    int
			Error string
		}
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			continue
		}
		var err error
		switch a.Error {
		case "":
		case "ERR_JWT_EXPIRED", "ERR_JWKS_NO_MATCHING_KEY", "ERR_JWS_SIGNATURE_VERIFICATION_FAILED":
			err = errors.New(a.Error)
		default:
			err = fmt.Errorf("%w: %s", errNoJWKS, a.Error)
		}
		n.mu.Lock()
		answer := n.waiting[a.ID]
		delete(n.waiting, a.ID)
		n.mu.Unlock()
		answer <- err
	}
}

// at returns how the service verifies a token of an issuer with the JWKS at url when it keeps a copy for so long.
func (n *nodeJose) at(issuer, url string, hold time.Duration) func(context.Context, string) error {
	return func(ctx context.Context, token string) error {
		answer := make(chan error, 1)
		n.mu.Lock()
		n.last++
		line, err := json.Marshal(map[string]any{"id": n.last, "url": url, "hold": hold.Milliseconds(), "issuer": issuer, "token": token})
		if err == nil {
			n.waiting[n.last] = answer
			_, err = n.stdin.Write(append(line, '\n'))
		}
		n.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case err := <-answer:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(patience):
			return fmt.Errorf("%w: no answer from node", errNoJWKS)
		}
	}
}
