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

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/keys"
)

// TestAzureTokenIsExchanged has the tokens of kube-apiservers exchanged at Entra by Microsoft's own clients, as a pod's
// environment makes them from the Secret that keypost azure wrote: azidentity's WorkloadIdentityCredential in Go, and in Node,
// which finds the fake at Entra's own name.
func TestAzureTokenIsExchanged(t *testing.T) {
	s := newExchange(t)
	for _, c := range []struct {
		name string
		with func(*testing.T, string, string) error
	}{{"azidentity", s.inGo}, {"@azure/identity", s.inNode}} {
		t.Run(c.name, func(t *testing.T) { s.answers(t, c.with) })
	}
}

// exchange is a directory with an identity for each of two clusters; one signs with a P-256 key.
type exchange struct {
	*fakeazure.Server
	ahead  atomic.Int64 // by how much its clock is
	env    []string     // with which programs find the directory at Microsoft's names, as its administrator
	a, b   *cluster     // b's key is P-256
	client map[*cluster]string
}

func newExchange(t *testing.T) *exchange {
	ca := newAuthority(t)
	s := &exchange{
		a: &cluster{name: "prod-a", issuer: "https://oidc.keypost.test/prod-a", key: newRSAKey(t, 2048)},
		b: &cluster{name: "prod-b", issuer: "https://prod-b.oidc.keypost.test", key: keys.NewEC()},
	}
	s.Server = fakeazure.Start(t, fakeazure.Options{Roots: ca.Pool(), Dial: (&net.Dialer{}).DialContext,
		Now: func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }})
	s.env = append(s.Env(), s.Tunnel(t)...)
	startClusters(t, ca, s.a, s.b)
	server := newStore(t, ca)
	s.client = map[*cluster]string{}
	for _, c := range []*cluster{s.a, s.b} {
		server.publishedLongAgo(t, c.name, c.issuer, c.publicKey)
	}
	s.a.createNeighbours(t)
	server.run(t)
	s.client[s.a] = server.provisionAzure(t, s.env, s.a.issuer)
	s.client[s.b] = s.Trust(s.b.issuer, "system:serviceaccount:default:sa1", "openshift") // keypost would refuse its key
	return s
}

// provisionAzure makes an identity for prod-a's service account sa1 with keypost, which trusts an issuer, and returns the client ID
// in its Secret.
func (s *server) provisionAzure(t *testing.T, env []string, issuer string) string {
	t.Helper()
	out, requests := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(requests, "app.yaml"), []byte(`apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: app, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: app-credentials, namespace: default}
  serviceAccountNames: [sa1]
  providerSpec:
    apiVersion: cloudcredential.openshift.io/v1
    kind: AzureProviderSpec
    roleBindings: [{role: Reader}]
`), 0o600))
	s.keypostAt(t, env, "azure", "create-managed-identities", "--name", "prod-a", "--region", "centralus", "--issuer-url", issuer,
		"--subscription-id", setting(env, "AZURE_SUBSCRIPTION_ID"), "--credentials-requests-dir", requests, "--output-dir", out).ok(t)
	secret := read(t, filepath.Join(out, "manifests", "default-app-credentials-credentials.yaml"))
	found := regexp.MustCompile(`azure_client_id: (\S+)`).FindSubmatch(secret)
	if found == nil {
		t.Fatalf("no client ID in %s", secret)
	}
	return string(found[1])
}

// entraWorkload is a pod's own way to Entra with Microsoft's library for Go: what the Secret that keypost wrote says, and a token file.
type entraWorkload struct {
	tokenFile
	directory *fakeazure.Server
	client    string // ID
}

// use takes the whole way once, with nothing remembered and nothing tried twice.
func (w entraWorkload) use(ctx context.Context) error {
	c, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
		ClientOptions: policy.ClientOptions{Transport: w.directory.Client(), Retry: policy.RetryOptions{MaxRetries: -1}},
		ClientID:      w.client, TenantID: setting(w.directory.Env(), "AZURE_TENANT_ID"), TokenFilePath: string(w.tokenFile)})
	if err != nil {
		return err
	}
	got, err := c.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://management.azure.com/.default"}})
	if err != nil {
		return err
	}
	return belongs(w.directory, got.Token, w.client)
}

// inGo exchanges a token for an access token of a client ID, with Microsoft's library for Go.
func (s *exchange) inGo(t *testing.T, client, token string) error {
	t.Helper()
	w := entraWorkload{newTokenFile(t), s.Server, client}
	must(t, w.hold(token))
	return w.use(t.Context())
}

// inNode is inGo with Microsoft's library for Node.
func (s *exchange) inNode(t *testing.T, client, token string) error {
	t.Helper()
	file := newTokenFile(t)
	must(t, file.hold(token))
	got, err := exchangeInNode(t, append(slices.Clone(s.env), "AZURE_CLIENT_ID="+client, "AZURE_FEDERATED_TOKEN_FILE="+string(file)), "entra.mjs")
	if err != nil {
		return err
	}
	return belongs(s.Server, got, client)
}

func belongs(directory *fakeazure.Server, token, client string) error {
	if got, ok := directory.ClientID(token); !ok || got != client {
		return fmt.Errorf("the access token belongs to %q", got)
	}
	return nil
}

func (s *exchange) answers(t *testing.T, with func(*testing.T, string, string) error) {
	const noRecord = "No matching federated identity record found for presented assertion "
	expectAnswers(t, presented(t, s.a, s.b), map[string]string{
		"the right service account":                         "",
		"another namespace":                                 "AADSTS700213: " + noRecord + "subject 'system:serviceaccount:other:sa1'.",
		"another audience":                                  "AADSTS700212: " + noRecord + "audience 'vault'.",
		"another cluster":                                   "AADSTS700211: " + noRecord + "issuer '" + s.b.issuer + "'.",
		"signed by an unpublished key":                      "AADSTS7000272: The certificate with identifier unpublished",
		"signed by an unpublished key with a published kid": "AADSTS700027: ",
	}, func(t *testing.T, token string) error { return with(t, s.client[s.a], token) })
	t.Run("ES256", func(t *testing.T) {
		expectAnswer(t, with(t, s.client[s.b], mint(t, s.b, "default", "sa1", "openshift")), "AADSTS700027: ")
	})
	t.Run("expired", func(t *testing.T) { s.expired(t, with) })
}

func (s *exchange) expired(t *testing.T, with func(*testing.T, string, string) error) {
	defer s.ahead.Store(0)
	token := strings.TrimSpace(s.a.kubectl(t, "create", "token", "sa1", "--audience", "openshift", "--duration", "10m"))
	expectAnswer(t, with(t, s.client[s.a], token), "")
	s.ahead.Store(int64(16 * time.Minute))
	expectAnswer(t, with(t, s.client[s.a], token), "AADSTS700024: Client assertion is not within its valid time range.")
}
