//go:build e2e

package e2e

import (
	"crypto"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/keys"
)

// TestRotate takes a cluster of two real kube-apiservers from one signing key to another by the commands that the help
// prints, and verifies a token of each server after every step. Waiting is played: the recorded times are moved back.
func TestRotate(t *testing.T) {
	s := newRotateScene(t, func(*rotateScene) {}, "10.99.0.21", "10.99.0.22")
	t.Run("start publishes the next key", s.start)
	t.Run("the gate is closed until no cache hides it", s.promote)
	t.Run("one server that signs with the old key keeps it", s.handOver)
	if full {
		t.Run("one that comes back with the old key keeps it", s.comesBack)
	}
	t.Run("the old key leaves with its last token", s.remove)
	if full {
		t.Run("an OpenShift cluster makes its next key itself", s.openShift)
	}
}

type rotateScene struct {
	t            *testing.T // of the whole scene: what is started with it runs until its end
	server       *server
	plane        *plane
	observations string
	old, next    string // kid
	oldKey       crypto.Signer
	nextDir      string // of the new pair
	oldPublic    string // file
}

const rotateIssuer = "https://oidc.keypost.test/prod-a"

// newRotateScene starts kube-apiservers at these addresses when prepare has seen to what they are to have beside them.
func newRotateScene(t *testing.T, prepare func(*rotateScene), hosts ...string) *rotateScene {
	ca := newAuthority(t)
	s := &rotateScene{t: t, server: newStore(t, ca), observations: t.TempDir(), oldPublic: filepath.Join(t.TempDir(), "old.pub"), nextDir: filepath.Join(t.TempDir(), "next")}
	startEtcd(t)
	s.plane = newPlane(t, ca, "prod-a", hosts...)
	s.oldKey = s.plane.key
	writePublicKey(t, s.oldPublic, s.oldKey)
	s.server.publishedLongAgo(t, "prod-a", rotateIssuer, s.oldPublic)
	s.server.run(t)
	s.server.keypost(t, "issuer", "set", "prod-a", "--reach", "private").ok(t) // oidc.keypost.test is an address of this machine
	prepare(s)
	for i := range s.plane.hosts {
		s.plane.serve(t, i, rotateIssuer)
	}
	s.plane.createAccount(t)
	s.plane.listed(t, s.plane.hosts...)
	s.old = kidOf(t, s.tokens(t)[0])
	return s
}

// keypost runs a command on the store and the observations.
func (s *rotateScene) keypost(t *testing.T, args ...string) result {
	t.Helper()
	env := []string{"KEYPOST_STORE=file://" + s.server.store, "KEYPOST_OBSERVATIONS=file://" + s.observations, "SSL_CERT_FILE=" + s.server.ca.file}
	return command(t, env, "", binary("keypost"), args...)
}

// step takes the open steps, as the example of the help does.
func (s *rotateScene) step(t *testing.T) result {
	t.Helper()
	r := s.try(t)
	r.ok(t)
	return r
}

func (s *rotateScene) try(t *testing.T) result {
	t.Helper()
	return s.keypost(t, "rotate", "step", "prod-a", "--kubeconfig", s.plane.kubeconfig, "--service-account", "default/sa1")
}

// tokens has each server mint a token, and verifies each as a relying party that has just fetched the keys.
func (s *rotateScene) tokens(t *testing.T) (all []string) {
	t.Helper()
	for i := range s.plane.hosts {
		token := strings.TrimSpace(s.plane.kubectlAt(t, i, "create", "token", "sa1", "--audience", audience).ok(t))
		s.accepted(t, token, true)
		all = append(all, token)
	}
	return all
}

func (s *rotateScene) accepted(t *testing.T, token string, want bool) {
	t.Helper()
	if err := signedBy(t.Context(), s.server.ca.client(), rotateIssuer, token); (err == nil) != want {
		t.Errorf("a token with the kid %s: %v; accepted is to be %t", kidOf(t, token), err, want)
	}
}

// later plays that time has passed, by moving back what is recorded.
func (s *rotateScene) later(t *testing.T, d time.Duration) {
	t.Helper()
	for _, dir := range []string{s.server.store, s.observations} {
		moveBack(t, dir, dir, d)
	}
}

func (s *rotateScene) expect(t *testing.T, r result, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("%q is not in\n%s%s", w, r.stdout, r.stderr)
		}
	}
}

func (s *rotateScene) start(t *testing.T) {
	out := s.keypost(t, "key", "generate", "--out", s.nextDir).ok(t)
	s.next = strings.Fields(out)[1]
	s.keypost(t, "rotate", "start", "prod-a", "--public-key-file", filepath.Join(s.nextDir, "sa.pub")).ok(t)
	s.tokens(t)
}

func (s *rotateScene) promote(t *testing.T) {
	s.expect(t, s.step(t), "a cache may still hold a JWKS without the key")
	s.later(t, 26*time.Hour)
	s.expect(t, s.step(t), "prod-a: promoted key "+s.next, "signs with it", "--service-account-key-file")
	s.tokens(t)
}

// handOver restarts the servers in the order that step prints: all know the new key before one signs with it.
func (s *rotateScene) handOver(t *testing.T) {
	s.plane.extra = []string{"--service-account-key-file=" + filepath.Join(s.nextDir, "sa.pub")}
	for i := range s.plane.hosts {
		s.plane.serve(s.t, i, rotateIssuer)
	}
	before := s.tokens(t)[0]
	s.plane.key, s.plane.extra = keys.Private(read(t, filepath.Join(s.nextDir, "sa.key"))), []string{"--service-account-key-file=" + s.oldPublic}
	s.plane.serve(s.t, 1, rotateIssuer)
	s.plane.listed(t, s.plane.hosts...)
	mixed := s.tokens(t)
	if kidOf(t, mixed[0]) != s.old || kidOf(t, mixed[1]) != s.next {
		t.Fatalf("the servers sign with %s and %s", kidOf(t, mixed[0]), kidOf(t, mixed[1]))
	}
	s.expect(t, s.step(t), "the kube-apiserver "+s.plane.at(0)+" signs with it")
	s.plane.serve(s.t, 0, rotateIssuer)
	s.plane.listed(t, s.plane.hosts...)
	s.declare(t)
	s.expect(t, s.step(t), "prod-a: retired key "+s.old, "tokens that it signed may still be valid")
	s.tokens(t)
	s.accepted(t, before, true)
}

// comesBack has a server come back with the old key after that was retired, as one that was dead meanwhile does.
func (s *rotateScene) comesBack(t *testing.T) {
	restart := func() {
		s.plane.serve(s.t, 1, rotateIssuer)
		s.plane.listed(t, s.plane.hosts...)
	}
	fresh, extra := s.plane.key, s.plane.extra
	s.plane.key, s.plane.extra = s.oldKey, append(slices.Clone(extra), "--service-account-key-file="+filepath.Join(s.nextDir, "sa.pub"))
	restart()
	s.expect(t, s.step(t), "prod-a: resumed key "+s.old, "the kube-apiserver "+s.plane.at(1)+" signs with it")
	s.plane.key, s.plane.extra = fresh, extra
	restart()
	s.expect(t, s.step(t), "prod-a: retired key "+s.old, "tokens that it signed may still be valid")
}

// declare has a pod ask for tokens that live for longer than what is declared: nothing is retired until more is.
func (s *rotateScene) declare(t *testing.T) {
	s.plane.apply(t, fmt.Sprintf(podWithToken, "day", "vault", 86400))
	s.refuses(t, "24h0m0s")
	s.plane.extra = append(s.plane.extra, "--service-account-max-token-expiration=2h")
	for i := range s.plane.hosts {
		s.plane.serve(s.t, i, rotateIssuer)
	}
	s.plane.listed(t, s.plane.hosts...)
	s.refuses(t, "2h0m0s")
	s.keypost(t, "issuer", "set", "prod-a", "--token-lifetime", "2h").ok(t)
}

// refuses wants a refusal to retire, because tokens of a pod live for longer than is declared.
func (s *rotateScene) refuses(t *testing.T, longest string) {
	t.Helper()
	r := s.try(t)
	s.expect(t, r, "for at most 1h0m0s, but pod default/day asks for tokens of "+longest, "keypost issuer set prod-a --token-lifetime "+longest)
	if r.code != 1 {
		t.Errorf("exit code %d", r.code)
	}
}

func (s *rotateScene) remove(t *testing.T) {
	early := s.step(t)
	s.expect(t, early, "tokens that it signed may still be valid")
	s.later(t, time.Hour+7*time.Minute)
	s.expect(t, s.step(t), "tokens that it signed may still be valid")
	s.later(t, time.Hour)
	s.expect(t, s.step(t), "prod-a: removed key "+s.old, "prod-a: the rotation is complete")
	for _, token := range s.tokens(t) {
		if kidOf(t, token) != s.next {
			t.Errorf("a token is signed with %s", kidOf(t, token))
		}
	}
}

// openShift begins to rotate once more, as in a cluster that has OpenShift's API: its operator gets the pair, which never leaves the
// cluster, with the promotion. What the operator does with it is not shown.
func (s *rotateScene) openShift(t *testing.T) {
	const namespace, nextSecret, operatorSecret = "openshift-kube-apiserver-operator", "keypost-next-signing-key", "next-bound-service-account-signing-key"
	s.plane.kubectl(t, "delete", "pod", "day", "--force")
	s.plane.apply(t, authenticationCRD)
	s.plane.apply(t, "apiVersion: config.openshift.io/v1\nkind: Authentication\nmetadata: {name: cluster}\nspec: {serviceAccountIssuer: "+rotateIssuer+"}\n")
	s.plane.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n")
	pair := func(secret string) (private string) {
		r := command(t, nil, "", kubeBinary("kubectl"), "--kubeconfig", s.plane.kubeconfig, "get", "secret", "-n", namespace, secret, "-o", `jsonpath={.data.service-account\.key}`)
		decoded, err := base64.StdEncoding.DecodeString(r.stdout)
		must(t, err)
		return string(decoded)
	}
	out := s.keypost(t, "rotate", "start", "prod-a", "--make-in", s.plane.kubeconfig, "-o", "json").ok(t)
	made := pair(nextSecret)
	s.next, _ = object(t, []byte(out))["rotation"].(map[string]any)["kid"].(string)
	if made == "" || pair(operatorSecret) != "" {
		t.Fatal("the pair is not in the cluster, or the operator has it already")
	}
	s.expect(t, s.step(t), "a cache may still hold a JWKS without the key")
	if pair(operatorSecret) != "" {
		t.Fatal("the operator has the pair before the gate is open")
	}
	s.later(t, 26*time.Hour)
	s.expect(t, s.step(t), "prod-a: promoted key "+s.next, "signs with it")
	if pair(operatorSecret) != made {
		t.Fatal("the operator does not have the pair although the key is promoted")
	}
	s.expect(t, s.step(t), "signs with it")
	if pair(nextSecret) != "" {
		t.Error("our copy of the pair is still there")
	}
	leaks := command(t, nil, "", "grep", "-rlF", strings.Split(made, "\n")[1], s.server.store, s.observations)
	if leaks.stdout != "" {
		t.Errorf("the private key stands in %s", leaks.stdout)
	}
}

// authenticationCRD defines the one resource of OpenShift's that is read, with the member that is read.
const authenticationCRD = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: authentications.config.openshift.io}
spec:
  group: config.openshift.io
  scope: Cluster
  names: {kind: Authentication, plural: authentications, singular: authentication, listKind: AuthenticationList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {serviceAccountIssuer: {type: string}}}}
`
