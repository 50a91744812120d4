//go:build e2e

// Package e2e proves on real parts that relying parties trust what keypostd publishes: real kube-apiservers sign, and
// verifiers written by others verify through keypostd's HTTPS. README.md says how to run it.
package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/keys"
)

// TestClusters is one scene in order: three clusters and one keypostd, a fourth cluster that relies on the first.
func TestClusters(t *testing.T) {
	s := newScene(t)
	t.Run("the published documents say what each cluster says of itself", s.sameDocuments)
	t.Run("go-oidc accepts each token under its own issuer only", s.ownIssuerOnly)
	t.Run("npm jose accepts the token and refuses the others", s.jose)
	t.Run("a kube-apiserver lets the token in and no other", s.kubernetesRelies)
	t.Run("keypost verify tells the right token from another", s.verify)
	t.Run("keypostd ends with exit code 0 on SIGTERM", s.terminate)
}

// scene is what the steps of TestClusters share.
type scene struct {
	ca      *authority
	server  *server
	a, b, c *cluster // a: path issuer, RSA; b: host issuer, RSA; c: path issuer, P-256
	tokens  map[*cluster]string
}

func (s *scene) clusters() []*cluster { return []*cluster{s.a, s.b, s.c} }

func newScene(t *testing.T) *scene {
	ca := newAuthority(t)
	s := &scene{
		ca: ca, server: newStore(t, ca), tokens: map[*cluster]string{},
		a: &cluster{name: "prod-a", issuer: "https://oidc.keypost.test/prod-a", key: newRSAKey(t, 2048)},
		b: &cluster{name: "prod-b", issuer: "https://prod-b.oidc.keypost.test", key: newRSAKey(t, 3072)},
		c: &cluster{name: "prod-c", issuer: "https://oidc.keypost.test/prod-c", key: keys.NewEC()},
	}
	startClusters(t, ca, s.clusters()...)
	for _, c := range s.clusters() {
		s.tokens[c] = c.token(t)
	}
	s.publishAll(t)
	return s
}

// publishAll brings every cluster's public key in by another way, the first before keypostd runs.
func (s *scene) publishAll(t *testing.T) {
	s.server.keypost(t, "issuer", "add", s.a.name, "--url", s.a.issuer, "--kubeconfig", s.a.kubeconfig).ok(t)
	s.server.run(t)
	s.server.publish(t, s.b, "--public-key-file", s.b.publicKey)
	jwks := filepath.Join(t.TempDir(), "jwks.json")
	must(t, os.WriteFile(jwks, []byte(s.c.kubectl(t, "get", "--raw", "/openid/v1/jwks")), 0o600))
	s.server.publish(t, s.c, "--jwks", jwks)
}

// sameDocuments: the cluster's own discovery document and JWKS are the reference. Ours adds claims_supported, which
// AWS asks for.
func (s *scene) sameDocuments(t *testing.T) {
	client := s.ca.client()
	for _, c := range s.clusters() {
		theirs := object(t, []byte(c.kubectl(t, "get", "--raw", "/openid/v1/jwks")))
		ours := get(t, client, c.issuer+"/keys.json")
		if !reflect.DeepEqual(object(t, ours), theirs) {
			t.Errorf("%s: JWKS\n%s\nwant\n%v", c.name, ours, theirs)
		}
		if also := get(t, client, c.issuer+"/openid/v1/jwks"); string(also) != string(ours) {
			t.Errorf("%s: the two JWKS paths differ:\n%s\n%s", c.name, also, ours)
		}
		discovery := object(t, get(t, client, c.issuer+"/.well-known/openid-configuration"))
		maps.DeleteFunc(discovery, func(member string, _ any) bool { return member == "claims_supported" })
		want := object(t, []byte(c.kubectl(t, "get", "--raw", "/.well-known/openid-configuration")))
		if !reflect.DeepEqual(discovery, want) {
			t.Errorf("%s: discovery document\n%v\nwant\n%v", c.name, discovery, want)
		}
	}
}

// ownIssuerOnly tries every token at every issuer, as it is and with the `iss` check left out: the second shows that
// no key of one issuer is published for another.
func (s *scene) ownIssuerOnly(t *testing.T) {
	client := s.ca.client()
	for _, signer := range s.clusters() {
		for _, at := range s.clusters() {
			token, own := s.tokens[signer], signer == at
			if err := verifyGo(t.Context(), client, at.issuer, token); (err == nil) != own {
				t.Errorf("token of %s at %s: %v", signer.name, at.issuer, err)
			}
			if err := signedBy(t.Context(), client, at.issuer, token); (err == nil) != own {
				t.Errorf("signature of %s at %s: %v", signer.name, at.issuer, err)
			}
		}
	}
	for how, forged := range s.forgeries(t) {
		if err := verifyGo(t.Context(), client, s.a.issuer, forged); err == nil {
			t.Errorf("%s accepts a token %s", s.a.issuer, how)
		}
	}
}

// forgeries are tokens in the name of prod-a, made by anyone who holds the signing key of another published issuer.
func (s *scene) forgeries(t *testing.T) map[string]string {
	token, kid := s.tokens[s.a], kidOf(t, s.tokens[s.a])
	return map[string]string{
		"signed by prod-b":                    resign(t, token, s.b.key, jose.RS256, kidOf(t, s.tokens[s.b])),
		"signed by prod-b with prod-a's kid":  resign(t, token, s.b.key, jose.RS256, kid),
		"signed by prod-c":                    resign(t, token, s.c.key, jose.ES256, kidOf(t, s.tokens[s.c])),
		"signed by prod-c with prod-a's kid":  resign(t, token, s.c.key, jose.ES256, kid),
		"of prod-a with a signature cut away": token[:strings.LastIndex(token, ".")+1],
	}
}

func (s *scene) jose(t *testing.T) {
	for _, c := range s.clusters() {
		payload := object(t, []byte(verifyNode(t, s.ca, c.issuer, s.tokens[c]).ok(t)))
		if payload["iss"] != c.issuer || payload["sub"] != "system:serviceaccount:default:sa1" {
			t.Errorf("%s: payload %v", c.name, payload)
		}
	}
	for how, token := range s.strangers(t) {
		if r := verifyNode(t, s.ca, s.a.issuer, token); r.code != refusedByJose {
			t.Errorf("token %s: exit code %d, want %d: %s%s", how, r.code, refusedByJose, r.stdout, r.stderr)
		}
	}
}

// strangers are the tokens that nobody may accept for prod-a.
func (s *scene) strangers(t *testing.T) map[string]string {
	strangers := s.forgeries(t)
	strangers["of prod-b"], strangers["of prod-c"] = s.tokens[s.b], s.tokens[s.c]
	return strangers
}

// kubernetesRelies: a second kube-apiserver that trusts prod-a's issuer URL and has no key of it but what keypostd serves.
func (s *scene) kubernetesRelies(t *testing.T) {
	relies := &cluster{name: "relies", issuer: "https://relies.keypost.test", key: newRSAKey(t, 2048)}
	p := startCluster(t, s.ca, relies, 6543, "--authentication-config="+authenticationConfig(t, s.ca, "prod-a:", s.a.issuer))
	relies.awaitReady(t, p)
	const want = "prod-a:system:serviceaccount:default:sa1"
	// It fetches the keys some moments after it is ready.
	await(t, "the token of prod-a is let in", func(ctx context.Context) error {
		if r := relies.whoami(t, s.tokens[s.a]); r.code != 0 || r.stdout != want {
			return fmt.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
		}
		return nil
	})
	for how, token := range s.strangers(t) {
		if r := relies.whoami(t, token); r.code == 0 || !strings.Contains(r.stderr, "Unauthorized") {
			t.Errorf("token %s: exit code %d: %s%s", how, r.code, r.stdout, r.stderr)
		}
	}
	if again := relies.whoami(t, s.tokens[s.a]).ok(t); again != want {
		t.Errorf("the token of prod-a afterwards: %q, want %q", again, want)
	}
}

func (s *scene) verify(t *testing.T) {
	file := func(token string) string {
		f := filepath.Join(t.TempDir(), "token")
		must(t, os.WriteFile(f, []byte(token), 0o600))
		return f
	}
	for _, c := range s.clusters() {
		s.server.keypost(t, "verify", c.issuer, "--token-file", file(s.tokens[c]), "--ca-file", s.ca.file).ok(t)
	}
	for how, token := range s.strangers(t) {
		r := s.server.keypost(t, "verify", s.a.issuer, "--token-file", file(token), "--ca-file", s.ca.file)
		if failed := failures(r.stdout); r.code != 1 || !strings.HasPrefix(failed, "token-") {
			t.Errorf("token %s: exit code %d and the failed finding %q, want 1 and one about the token\n%s%s", how, r.code, failed, r.stdout, r.stderr)
		}
	}
}

// failures names the findings of keypost verify that fail, in its order.
func failures(stdout string) string {
	var failed []string
	for line := range strings.Lines(stdout) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "fail" {
			failed = append(failed, f[1])
		}
	}
	return strings.Join(failed, " ")
}

// terminate allows the drain delay (10 s) and more.
func (s *scene) terminate(t *testing.T) {
	if code := s.server.stop(t, 30*time.Second); code != 0 {
		t.Errorf("keypostd ended with exit code %d, want 0", code)
	}
}

// newRSAKey returns a key whose kid is not a flag to a command line, as what begins with a hyphen is (see signingkey.Generate).
func newRSAKey(t *testing.T, bits int) *rsa.PrivateKey {
	t.Helper()
	for {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		must(t, err)
		public, err := keystore.NewPublic(key.Public())
		must(t, err)
		if !strings.HasPrefix(string(public.ID()), "-") {
			return key
		}
	}
}
