package azure_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/go-jose/go-jose/v4"
	"sigs.k8s.io/yaml"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/fakecloud/cluster"
	"github.com/keypost/keypost/test/keys"
)

// Microsoft's own client takes a Secret as it was written, with a token that the cluster's key has signed; and Entra refuses a
// token of another account, of a wrong audience, and one signed by a key that is not published.
func TestMicrosoftsClientTakesTheSecret(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{})
		w.WriteKeys(t)
		_, err := azure.Create(t.Context(), w.create(t, usual()...))
		must(t, err)
		text, err := os.ReadFile(filepath.Join(w.Out(), "manifests", "ns-storage-creds-credentials.yaml"))
		must(t, err)
		var secret struct {
			StringData map[string]string `json:"stringData"`
		}
		must(t, yaml.Unmarshal(text, &secret))
		signer := w.signer(t)
		for _, tt := range []struct {
			name              string
			subject, audience string
			refused           string // with this code
			signer            cluster.Signer
		}{
			{name: "a token of the cluster", subject: "system:serviceaccount:ns-storage:op", audience: "openshift", signer: signer},
			{name: "an account with a dot", subject: "system:serviceaccount:ns-storage:controller.sa", audience: "openshift", signer: signer},
			{name: "another account", subject: "system:serviceaccount:ns-storage:other", audience: "openshift", signer: signer, refused: "AADSTS700213"},
			{name: "another audience", subject: "system:serviceaccount:ns-storage:op", audience: "other", signer: signer, refused: "AADSTS700212"},
			{name: "another key", subject: "system:serviceaccount:ns-storage:op", audience: "openshift", signer: cluster.Signer{Key: keys.NewRSA()(), KID: "other", Alg: jose.RS256}, refused: "AADSTS7000272"},
		} {
			func() {
				now := time.Now().Unix()
				file := filepath.Join(t.TempDir(), "token")
				must(t, os.WriteFile(file, []byte(tt.signer.Sign(t, map[string]any{"iss": issuerURL, "sub": tt.subject, "aud": []string{tt.audience},
					"iat": now, "nbf": now, "exp": now + 600})), 0o600))
				c, err := azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
					ClientOptions: azcore.ClientOptions{Transport: w.Client()}, ClientID: secret.StringData["azure_client_id"],
					TenantID: secret.StringData["azure_tenant_id"], TokenFilePath: file})
				must(t, err)
				token, err := c.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{"https://management.azure.com/.default"}})
				if tt.refused != "" {
					if err == nil || !strings.Contains(err.Error(), tt.refused) {
						t.Errorf("it does not have %q: %v", tt.refused, err)
					}
					return
				}
				must(t, err)
				if id, known := w.ClientID(token.Token); !known || id != secret.StringData["azure_client_id"] {
					t.Errorf("the token belongs to %q", id)
				}
			}()
		}
	})
}

// signer returns what signs the cluster's tokens.
func (w *world) signer(t *testing.T) cluster.Signer {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(w.Out(), ccoctl.PrivateKeyName))
	must(t, err)
	block, _ := pem.Decode(data)
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	must(t, err)
	public, err := keystore.NewPublic(key.Public())
	must(t, err)
	return cluster.Signer{Key: key, KID: string(public.ID()), Alg: jose.RS256}
}
