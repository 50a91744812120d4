//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakeazure"
)

// containerIssuer is the issuer of a cluster of ccoctl's: a container of a storage account.
const (
	containerHost   = "proda.blob.core.windows.net"
	containerIssuer = "https://" + containerHost + "/prod-a"
)

// TestAzureMigrateUnderAWorkload moves a cluster of two kube-apiservers from ccoctl's storage to keypostd, step after step, while
// a workload exchanges whatever token the kubelet would give it at Entra, every 100 ms: first the old issuer's, then the new one's.
func TestAzureMigrateUnderAWorkload(t *testing.T) {
	m, _ := newAzureMove(t)
	m.underAWorkload(t, "AADSTS700211: No matching federated identity record found for presented assertion issuer '"+containerIssuer+"'.")
}

// TestAzureReversedMoveFails shows that the harness of TestAzureMigrateUnderAWorkload can fail: the same move in the other order,
// with the old credential taken away before the cluster has the new issuer, as az and a second run of ccoctl under another issuer
// URL do it, locks the workload out.
func TestAzureReversedMoveFails(t *testing.T) {
	m, in := newAzureMove(t)
	m.brokenBy(t, func() {
		old := in.directory.State().Credentials
		if len(old) != 1 || old[0].Issuer != containerIssuer {
			t.Fatalf("federated credentials %+v", old)
		}
		must(t, in.directory.Ask("DELETE", old[0].ID, "2024-11-30", ""))
		must(t, in.directory.Ask("PUT", old[0].ID, "2024-11-30", fmt.Sprintf(`{"properties":{"issuer":%q,"subject":%q,"audiences":["openshift"]}}`,
			newIssuer, old[0].Subject)))
	}, "AADSTS700211: No matching federated identity record found for presented assertion issuer '"+containerIssuer+"'.")
}

// movingIdentity is the managed identity of a workload whose cluster moves.
type movingIdentity struct{ entraWorkload }

func newAzureMove(t *testing.T) (*move, *movingIdentity) {
	ca := newAuthority(t)
	m := newMove(t, ca, storage{issuer: containerIssuer, jwks: "/openid/v1/jwks"})
	directory := fakeazure.Start(t, fakeazure.Options{VaryCase: true, Roots: ca.Pool(), Dial: (&net.Dialer{}).DialContext})
	m.env = append(directory.Env(), directory.Tunnel(t)...)
	// What is the cluster's and the issuers' is asked without the proxy, and all of it trusted.
	both := slices.Concat(read(t, setting(m.env, "SSL_CERT_FILE")), read(t, ca.file))
	file := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(file, both, 0o600))
	m.env = append(m.env, "SSL_CERT_FILE="+file, "NO_PROXY="+strings.Join(append(slices.Clone(m.plane.hosts), ".keypost.test", containerHost), ","))
	m.args = []string{"azure", "migrate", "--name", "prod-a", "--subscription-id", setting(m.env, "AZURE_SUBSCRIPTION_ID")}
	in := &movingIdentity{entraWorkload{newTokenFile(t), directory, m.server.provisionAzure(t, append(m.env, "KEYPOST_STORE="), containerIssuer)}}
	m.movingCloud = in
	return m, in
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	must(t, err)
	return data
}

func (i *movingIdentity) begun(t *testing.T, diff, command string) {
	const identity = "federated credentials of prod-a-default-app-credentials"
	if !strings.Contains(diff, newIssuer) || !strings.Contains(diff, identity) {
		t.Errorf("--diff does not name %s and %s:\n%s", newIssuer, identity, diff)
	}
	if !strings.HasPrefix(command, "oc patch authentication.config.openshift.io cluster ") || !strings.Contains(command, newIssuer) || strings.Count(command, "\n") != 1 {
		t.Errorf("stdout %q, want only the command", command)
	}
}

func (i *movingIdentity) switchedAt(t *testing.T, at time.Time) {
	for _, g := range i.directory.State().Groups {
		for name := range g.Tags {
			if strings.HasPrefix(name, "keypost.dev_moved-at_prod-a-") {
				tags := maps.Clone(g.Tags)
				tags[name] = at.UTC().Format(time.RFC3339)
				body, err := json.Marshal(map[string]any{"tags": tags})
				must(t, err)
				must(t, i.directory.Ask("PATCH", g.ID, "2021-04-01", string(body)))
				return
			}
		}
	}
	t.Fatalf("no note of the switch at any resource group: %+v", i.directory.State().Groups)
}

func (i *movingIdentity) finished(t *testing.T, said string) {
	for _, want := range []string{"Nothing of prod-a trusts " + containerIssuer + " any more", "az storage account delete"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	state := i.directory.State()
	if len(state.Identities) != 1 || len(state.Credentials) != 1 || state.Credentials[0].Issuer != newIssuer {
		t.Errorf("left over: %+v", state)
	}
	for _, g := range state.Groups {
		if strings.Contains(fmt.Sprint(g.Tags), "moved-at") {
			t.Errorf("resource group %s still has the note of the switch: %v", g.Name, g.Tags)
		}
	}
}
