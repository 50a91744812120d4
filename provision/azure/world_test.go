package azure_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/fakecloud"
	"github.com/keypost/keypost/test/keys"
	"github.com/keypost/keypost/test/scene"
)

const (
	issuerURL    = scene.IssuerURL
	subscription = "11111111-2222-3333-4444-555555555555"
	tenant       = "99999999-8888-7777-6666-555555555555"

	home     = "/subscriptions/" + subscription + "/resourceGroups/prod-a-oidc"
	registry = "prod-a-ns-registry-creds" // an identity of usual, with a role of Azure's
	storage  = "prod-a-ns-storage-creds"  // another one, with a custom role
)

// world is all that an installation needs: a subscription and a scene.
type world struct {
	*fakeazure.Server
	*scene.Scene
	caller azcore.TokenCredential
}

// newWorld makes one that has no network, for a test of package testing/synctest.
func newWorld(t *testing.T, o fakeazure.Options) *world {
	t.Helper()
	w := &world{Scene: scene.NewMemory(t)}
	o.Roots, o.Dial = w.Site.RootCAs, fakecloud.Dial(w.Site.Dial)
	w.Server = fakeazure.StartMemory(t, o)
	w.caller = caller{}
	return w
}

// caller is the credential of the caller.
type caller struct{}

func (caller) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: fakeazure.AccessToken, ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}

// signedIn returns the credential of a caller with a secret that may be a wrong one.
func (w *world) signedIn(t *testing.T, secret string) azcore.TokenCredential {
	t.Helper()
	c, err := azidentity.NewClientSecretCredential(tenant, w.CallerID(), secret,
		&azidentity.ClientSecretCredentialOptions{ClientOptions: azcore.ClientOptions{Transport: w.Client()}})
	must(t, err)
	return c
}

// bent is Azure with something that happens after it has answered.
type bent struct {
	to   policy.Transporter
	then func(*http.Request)
}

func (b bent) Do(r *http.Request) (*http.Response, error) {
	resp, err := b.to.Do(r)
	if err == nil {
		b.then(r)
	}
	return resp, err
}

// arm makes a call as another program would.
func (w *world) arm(t *testing.T, method, path, version, body string) {
	t.Helper()
	must(t, w.Ask(method, path, version, body))
}

// credential writes a federated credential as another program would.
func (w *world) credential(t *testing.T, identity, name, issuer, subject, audience string) {
	t.Helper()
	w.arm(t, "PUT", identity+"/federatedIdentityCredentials/"+name, "2024-11-30",
		fmt.Sprintf(`{"properties":{"issuer":%q,"subject":%q,"audiences":[%q]}}`, issuer, subject, audience))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// request is a CredentialsRequest.
type request struct {
	name     string // in the cluster; openshift-ingress-azure and some others mean something
	accounts string
	provider string // what the provider's spec holds beside its kind
}

// requests writes a directory of CredentialsRequests.
func (w *world) requests(t *testing.T, list ...request) azure.RequestedIdentities {
	t.Helper()
	dir := filepath.Join(w.Dir, "requests")
	must(t, os.RemoveAll(dir))
	must(t, os.MkdirAll(dir, 0o700))
	for _, q := range list {
		text := fmt.Sprintf(`apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: %[1]s, namespace: openshift-cloud-credential-operator}
spec:
  secretRef: {name: creds, namespace: ns-%[1]s}
  serviceAccountNames: [%[2]s]
  providerSpec: {apiVersion: cloudcredential.openshift.io/v1, kind: AzureProviderSpec, %[3]s}
`, q.name, q.accounts, q.provider)
		must(t, os.WriteFile(filepath.Join(dir, q.name+".yaml"), []byte(text), 0o600))
	}
	return azure.RequestedIdentities{Dir: dir}
}

// usual are requests with all that one can ask for.
func usual() []request {
	return []request{
		{"openshift-ingress-azure", "ingress-operator", "permissions: [Microsoft.Network/dnsZones/A/write, Microsoft.Network/dnszones/a/WRITE]"},
		{"storage", "op, controller.sa, x", "permissions: [Microsoft.Compute/disks/read], dataPermissions: [Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read]"},
		{"registry", "registry", "roleBindings: [{role: Contributor}]"},
	}
}

func (w *world) options() azure.Options {
	return azure.Options{
		Options: w.Options("entra"), Endpoint: arm.Endpoint{Transport: w.Client(), Credential: w.caller},
		Subscription: subscription, Tenant: tenant, Region: "centralus", OIDCGroup: "prod-a-oidc", InstallGroup: "prod-a", Audience: azure.DefaultAudience,
	}
}

func (w *world) create(t *testing.T, list ...request) azure.CreateOptions {
	t.Helper()
	requests := w.requests(t, list...)
	return azure.CreateOptions{Options: w.options(), Identities: &requests}
}

// elsewhere are options for identities of an issuer that no store here publishes.
func (w *world) elsewhere() azure.Options {
	o := w.options()
	o.Store = install.KeyStore{}
	return o
}

func (w *world) identities(t *testing.T, list ...request) azure.IdentitiesOptions {
	t.Helper()
	return azure.IdentitiesOptions{Options: w.elsewhere(), Identities: w.requests(t, list...)}
}

// moved makes the usual identities for the issuer old, and returns the options that move them to the scene's.
func (w *world) moved(t *testing.T, old string) azure.MigrateOptions {
	t.Helper()
	before := w.identities(t, usual()...)
	before.IssuerURL = old
	_, err := azure.CreateIdentities(t.Context(), before)
	must(t, err)
	return w.move(t, old)
}

// clusterKey is the key of every cluster that is not to have one of its own: making one takes long.
var clusterKey = keys.NewRSA()

// move returns what moves an installation away from an issuer.
func (w *world) move(t *testing.T, old string) azure.MigrateOptions {
	t.Helper()
	key, err := keystore.NewPublic(clusterKey().Public())
	must(t, err)
	return azure.MigrateOptions{Options: w.options(), Move: install.Move{Old: old, OldKeys: func(context.Context) ([]keystore.VerificationKey, error) {
		return []keystore.VerificationKey{key}, nil
	}}}
}

// writes returns the calls that wrote since the last time.
func (w *world) writes() []string {
	var list []string
	for _, c := range w.Calls() {
		if c.Write {
			list = append(list, c.Action+" "+c.Path+" "+c.Code)
		}
	}
	w.ResetCalls()
	return list
}

// is reports whether an error has a problem.
func is(p arm.Problem) func(error) bool {
	return func(err error) bool {
		e, is := errors.AsType[*arm.Error](err)
		return is && e.Problem == p
	}
}

// preview is all that a preview shows.
func preview(v *plan.Preview) string {
	var b strings.Builder
	for _, c := range v.Changes {
		fmt.Fprintf(&b, "%s\n  %s\n", c, strings.Join(c.Diff, "\n  "))
	}
	for _, lines := range [][]string{v.Notes, v.Warnings, v.Extra} {
		fmt.Fprintln(&b, strings.Join(lines, "\n"))
	}
	return b.String()
}
