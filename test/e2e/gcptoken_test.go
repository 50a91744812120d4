//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/auth/credentials"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/test/fakegcp"
	"github.com/keypost/keypost/test/keys"
)

// TestGoogleTokenIsExchanged has the tokens of kube-apiservers exchanged at Google by its own clients, each of which takes the Secret
// as keypost gcp create-all wrote it: two in Go, and one in Node, which finds the fake at Google's own names.
func TestGoogleTokenIsExchanged(t *testing.T) {
	s := newFederation(t)
	for _, c := range s.clients() {
		t.Run(c.name, func(t *testing.T) { s.answers(t, c) })
	}
	t.Run("an uploaded key set needs no keypostd", s.stopped)
	t.Run("a rotation passes through the upload", s.rotated)
}

// federation is a project with an installation of each of two clusters. Google fetches the keys of a from keypostd, and has a
// copy of those of b, which signs with ES256.
type federation struct {
	*fakegcp.Server
	ca           *authority
	server       *server
	ahead        atomic.Int64 // by how much Google's clock is
	fetched      atomic.Int64 // connections that Google has opened to b's issuer
	env          []string     // with which programs find the project at Google's names, as its administrator
	observations string
	a, b         *googleWorkload
	next         *cluster // b's second kube-apiserver, which signs with the next key
}

// googleWorkload is the service account default/sa1 of a cluster, and what it was given.
type googleWorkload struct {
	*cluster
	tokenFile string // where its CredentialsRequest says that its token is
	config    []byte // the credential configuration in its Secret
	email     string // of the account that it is to become
}

// googleClient gets an access token with a credential configuration.
type googleClient struct {
	name string
	get  func(t *testing.T, config []byte) (string, error)
}

func (s *federation) clients() []googleClient {
	return []googleClient{{"golang.org/x/oauth2/google", s.inGo}, {"cloud.google.com/go/auth", s.inNewerGo}, {"google-auth-library", s.inNode}}
}

func newFederation(t *testing.T) *federation {
	ca := newAuthority(t)
	s := &federation{ca: ca, observations: t.TempDir(),
		a: &googleWorkload{cluster: &cluster{name: "prod-a", issuer: "https://oidc.keypost.test/prod-a", key: newRSAKey(t, 2048)}},
		b: &googleWorkload{cluster: &cluster{name: "prod-b", issuer: "https://prod-b.oidc.keypost.test", key: keys.NewEC()}},
	}
	s.next = &cluster{name: "prod-b-next", issuer: s.b.issuer, key: keys.NewEC()}
	s.startGoogle(t)
	startEtcd(t)
	clusters := []*cluster{s.a.cluster, s.b.cluster, s.next}
	running := []*process{startCluster(t, ca, s.a.cluster, 6443), startCluster(t, ca, s.b.cluster, 6444), startCluster(t, ca, s.next, 6445, "--etcd-prefix=/prod-b")}
	for i, c := range clusters {
		c.awaitReady(t, running[i])
		c.createAccount(t)
	}
	s.a.createNeighbours(t)
	s.a.kubectl(t, "create", "serviceaccount", longAccount)
	s.server = newStore(t, ca)
	s.server.publishedLongAgo(t, s.a.name, s.a.issuer, s.a.publicKey)
	s.server.run(t)
	s.provision(t, s.a)
	s.provision(t, s.b, "--key-storage-method", "pool-jwk-file")
	s.keypost(t, "issuer", "set", s.b.name, "--reach", "copies", "--token-lifetime", "1h", "--relying-party",
		"gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-b/providers/prod-b").ok(t)
	return s
}

// longAccount has a name with which a subject in namespace default has 128 bytes, one more than Google maps.
var longAccount = strings.Repeat("a", 128-len("system:serviceaccount:default:"))

// startGoogle plays the project, which reaches issuers by this network's names, and trusts its CA as a public one.
func (s *federation) startGoogle(t *testing.T) {
	s.Server = fakegcp.Start(t, fakegcp.Options{Roots: s.ca.Pool(),
		Now: func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) },
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == strings.TrimPrefix(s.b.issuer, "https://")+":443" {
				s.fetched.Add(1)
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}})
	env, err := s.Env()
	must(t, err)
	s.env = append(env, s.Tunnel(t)...)
	trusted := filepath.Join(t.TempDir(), "ca.pem") // Google's and the issuers'
	must(t, os.WriteFile(trusted, slices.Concat(read(t, setting(s.env, "SSL_CERT_FILE")), read(t, s.ca.file)), 0o600))
	s.env = append(s.env, "SSL_CERT_FILE="+trusted)
}

// keypost runs a command on the store, the observations and the project.
func (s *federation) keypost(t *testing.T, args ...string) result {
	t.Helper()
	return s.server.keypostAt(t, append(slices.Clone(s.env), "KEYPOST_OBSERVATIONS=file://"+s.observations), args...)
}

// provision makes the installation of a cluster, and reads what its workload was given.
func (s *federation) provision(t *testing.T, w *googleWorkload, more ...string) {
	t.Helper()
	out, requests := t.TempDir(), t.TempDir()
	w.tokenFile = filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(filepath.Join(requests, "app.yaml"), fmt.Appendf(nil, `apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: app, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: app-credentials, namespace: default}
  serviceAccountNames: [sa1]
  cloudTokenPath: %s
  providerSpec:
    apiVersion: cloudcredential.openshift.io/v1
    kind: GCPProviderSpec
    predefinedRoles: [roles/viewer]
`, w.tokenFile), 0o600))
	s.keypost(t, append([]string{"gcp", "create-all", "--name", w.name, "--project", "my-project", "--issuer-url", w.issuer, "--public-key-file", w.publicKey,
		"--credentials-requests-dir", requests, "--output-dir", out}, more...)...).ok(t)
	var secret struct{ Data map[string][]byte }
	manifest := read(t, filepath.Join(out, "manifests", "default-app-credentials-credentials.yaml"))
	must(t, yaml.Unmarshal(manifest, &secret))
	w.config = secret.Data["service_account.json"]
	found := regexp.MustCompile(`/serviceAccounts/(.*):generateAccessToken"`).FindSubmatch(w.config)
	if found == nil {
		t.Fatalf("no account in %s", w.config)
	}
	w.email = string(found[1])
}

const cloudPlatform = "https://www.googleapis.com/auth/cloud-platform"

func (s *federation) inGo(t *testing.T, config []byte) (string, error) {
	t.Helper()
	c, err := google.CredentialsFromJSONWithType(context.WithValue(t.Context(), oauth2.HTTPClient, s.Client()), config, google.ExternalAccount, cloudPlatform)
	must(t, err)
	token, err := c.TokenSource.Token()
	if err != nil {
		return "", err
	}
	return token.AccessToken, nil
}

func (s *federation) inNewerGo(t *testing.T, config []byte) (string, error) {
	t.Helper()
	c, err := credentials.NewCredentialsFromJSON(credentials.ExternalAccount, config, &credentials.DetectOptions{Client: s.Client(), Scopes: []string{cloudPlatform}})
	must(t, err)
	token, err := c.Token(t.Context())
	if err != nil {
		return "", err
	}
	return token.Value, nil
}

func (s *federation) inNode(t *testing.T, config []byte) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "service_account.json")
	must(t, os.WriteFile(file, config, 0o600))
	// Without the variable it looks for the project first, at the metadata server of a virtual machine and in Resource Manager.
	return exchangeInNode(t, append(slices.Clone(s.env), "GOOGLE_APPLICATION_CREDENTIALS="+file, "GOOGLE_CLOUD_PROJECT=my-project"), "google.mjs")
}

// with has a client exchange a token that a workload holds, and says why it does not become its account.
func (s *federation) with(t *testing.T, c googleClient, w *googleWorkload, token string) error {
	t.Helper()
	must(t, os.WriteFile(w.tokenFile, []byte(token), 0o600))
	got, err := c.get(t, w.config)
	if err != nil {
		return err
	}
	if email, ok := s.Email(got); !ok || email != w.email {
		return fmt.Errorf("the access token belongs to %q, not to %s", email, w.email)
	}
	return nil
}

// What Google answers (https://cloud.google.com/iam/docs/troubleshooting-workload-identity-federation).
const (
	deniedByAccount  = "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist)."
	issuerOutOfReach = "Error connecting to the given credential's issuer."
)

func (s *federation) answers(t *testing.T, c googleClient) {
	foreign := func(issuer string) string {
		return "The issuer in ID Token " + issuer + " does not match the expected one in config: " + s.a.issuer + "."
	}
	tokens := presented(t, s.a.cluster, s.b.cluster)
	tokens["a service account with a long name"] = mint(t, s.a.cluster, "default", longAccount, "openshift")
	expectAnswers(t, tokens, map[string]string{
		"the right service account":                         "",
		"another namespace":                                 deniedByAccount,
		"a service account with a long name":                "exceeds the 127 bytes limit.",
		"another audience":                                  "The audience in ID Token [vault] does not match the expected audience",
		"another cluster":                                   foreign(s.b.issuer),
		"signed by an unpublished key":                      issuerOutOfReach,
		"signed by an unpublished key with a published kid": "Unable to verify the ID Token signature.",
	}, func(t *testing.T, token string) error { return s.with(t, c, s.a, token) })
	t.Run("ES256, and keys that were uploaded", func(t *testing.T) {
		expectAnswer(t, s.with(t, c, s.b, mint(t, s.b.cluster, "default", "sa1", "openshift")), "")
		expectAnswer(t, s.with(t, c, s.b, tokens["the right service account"]), "The issuer in ID Token "+s.a.issuer)
	})
	t.Run("expired", func(t *testing.T) {
		defer s.ahead.Store(0)
		token := strings.TrimSpace(s.a.kubectl(t, "create", "token", "sa1", "--audience", "openshift", "--duration", "10m"))
		s.ahead.Store(int64(9 * time.Minute))
		expectAnswer(t, s.with(t, c, s.a, token), "")
		s.ahead.Store(int64(12 * time.Minute))
		expectAnswer(t, s.with(t, c, s.a, token), "is stale to sign-in.")
	})
}

// expectAll has every client exchange a token that a workload holds.
func (s *federation) expectAll(t *testing.T, w *googleWorkload, token, want string) {
	t.Helper()
	for _, c := range s.clients() {
		expectAnswer(t, s.with(t, c, w, token), want)
	}
}

// stopped: once its copy of a's documents has lapsed, Google needs keypostd for them, and never did for b's keys.
func (s *federation) stopped(t *testing.T) {
	s.server.stop(t, 20*time.Second)
	s.ahead.Store(int64(30 * time.Minute))
	defer s.ahead.Store(0)
	s.expectAll(t, s.a, mint(t, s.a.cluster, "default", "sa1", "openshift"), issuerOutOfReach)
	s.expectAll(t, s.b, mint(t, s.b.cluster, "default", "sa1", "openshift"), "")
	if n := s.fetched.Load(); n != 0 {
		t.Errorf("Google asked b's issuer %d times", n)
	}
}

// rotated takes b from one key to another, with keypostd off: what the gates wait for is in cmd/keypost/testdata/gcp_rotate.txtar,
// and here are the tokens of two kube-apiservers of one cluster; the first signs with the old key until the end.
func (s *federation) rotated(t *testing.T) {
	before, after := mint(t, s.b.cluster, "default", "sa1", "openshift"), mint(t, s.next, "default", "sa1", "openshift")
	s.keypost(t, "rotate", "start", s.b.name, "--public-key-file", s.next.publicKey).ok(t)
	s.expectAll(t, s.b, after, issuerOutOfReach)
	early := s.keypost(t, "key", "promote", s.b.name, kidOf(t, after))
	if early.code != 75 || !strings.Contains(early.stderr, "hint: keypost sync-keys "+s.b.name) {
		t.Errorf("exit code %d: %s", early.code, early.stderr)
	}

	s.keypost(t, "sync-keys", s.b.name).ok(t)
	s.expectAll(t, s.b, before, "")
	s.expectAll(t, s.b, after, "")
	s.step(t, "prod-b: promoted key "+kidOf(t, after))
	s.keypost(t, "key", "retire", s.b.name, kidOf(t, before), "--why", "it signs no more").ok(t)
	s.step(t, "prod-b: the rotation is complete")
	s.expectAll(t, s.b, before, "") // Google has what it was given

	s.keypost(t, "sync-keys", "--all").ok(t)
	s.expectAll(t, s.b, before, issuerOutOfReach)
	s.expectAll(t, s.b, after, "")
}

// step takes the open step of b's rotation when what it waits for is over, which is played by moving back what is recorded.
func (s *federation) step(t *testing.T, want string) {
	t.Helper()
	for _, dir := range []string{s.server.store, s.observations} {
		moveBack(t, dir, dir, 26*time.Hour)
	}
	// A gate asks what the copy holds now. A document with other dates under the generation that was uploaded is another version of it, as
	// after a restored backup.
	s.keypost(t, "sync-keys", s.b.name, "--force").ok(t)
	if r := s.keypost(t, "rotate", "step", s.b.name); r.code != 0 || !strings.Contains(r.stderr, want) {
		t.Fatalf("exit code %d, without %q: %s", r.code, want, r.stderr)
	}
}
