package azure_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/scene"
)

const goneURL = "https://oidc.example.com/gone"

// loki makes an identity for a workload, which trusts an issuer and no more what it is to drop.
func (w *world) loki(t *testing.T, mode install.Mode, issuer string, drop ...string) *plan.Preview {
	t.Helper()
	o := azure.WorkloadOptions{Options: w.elsewhere(), For: "--name", ServiceAccounts: []install.ServiceAccount{{Namespace: "logging", Name: "loki"}},
		Roles: []string{"Reader"}}
	o.Name, o.OIDCGroup, o.InstallGroup, o.IssuerURL, o.Drop, o.Mode = "loki", "observability", "", issuer, drop, mode
	made, err := azure.CreateIdentity(t.Context(), o)
	must(t, err)
	return made.Preview
}

// issuers are those that the identities trust.
func (w *world) issuers() []string {
	var all []string
	for _, c := range w.State().Credentials {
		all = append(all, c.Issuer)
	}
	slices.Sort(all)
	return all
}

// An identity for workloads takes no tokens of an issuer that it is to drop, of whatever account. Others stay, and without being asked
// none goes.
func TestAWorkloadDropsAnOldIssuer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const other = "https://oidc.example.com/other"
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		for _, issuer := range []string{goneURL, other, issuerURL} {
			w.loki(t, install.Apply, issuer)
		}
		w.credential(t, w.State().Identities[0].ID, "ruler", goneURL, "system:serviceaccount:logging:ruler", "openshift")
		w.Reported()
		w.loki(t, install.Apply, issuerURL)
		scene.Held(t, w.Reported(), "identity loki takes tokens of "+goneURL+" too, which stays; --drop-issuer-url "+goneURL+" takes it away")
		shown := w.loki(t, install.Preview, issuerURL, goneURL)
		scene.Held(t, preview(shown), "- ruler: system:serviceaccount:logging:ruler of "+goneURL+" for openshift",
			"identity loki no longer takes tokens of system:serviceaccount:logging:loki of "+goneURL)
		if got, want := w.issuers(), []string{goneURL, goneURL, other, issuerURL}; !slices.Equal(got, want) {
			t.Fatalf("it trusts %q, want %q", got, want)
		}
		w.loki(t, install.Apply, issuerURL, goneURL)
		if got, want := w.issuers(), []string{other, issuerURL}; !slices.Equal(got, want) {
			t.Errorf("it trusts %q, want %q", got, want)
		}
		w.writes()
		w.Reported()
		w.loki(t, install.Apply, issuerURL, goneURL, other+"/")
		scene.Held(t, w.Reported(), "identity loki takes no tokens of "+goneURL, "identity loki takes no tokens of "+other+"/")
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("it wrote %q", wrote)
		}
	})
}

// A new issuer takes the place of an old one in one run, the new one first.
func TestAWorkloadChangesItsIssuer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		w.loki(t, install.Apply, goneURL)
		w.writes()
		w.loki(t, install.Apply, issuerURL, goneURL)
		if wrote := w.writes(); len(wrote) != 2 || !strings.HasPrefix(wrote[0], "PutCredential") || !strings.HasPrefix(wrote[1], "DeleteCredential") {
			t.Errorf("it wrote %q", wrote)
		}
		if got := w.issuers(); !slices.Equal(got, []string{issuerURL}) {
			t.Errorf("it trusts %q", got)
		}
	})
}

// A deletion names what create-identity made and what goes on trusting the issuers of the installation, in whatever resource group.
func TestDeleteNamesWhatStillTrusts(t *testing.T) {
	t.Parallel()
	prepare := func(t *testing.T) (*world, azure.DeleteOptions) {
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
		must(t, err)
		w.loki(t, install.Apply, goneURL)
		w.loki(t, install.Apply, issuerURL)
		w.Reported()
		return w, azure.DeleteOptions{Options: w.options()}
	}
	const names = " (of create-identity) stays, and takes tokens of system:serviceaccount:logging:loki of "
	t.Run("said", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, o := prepare(t)
			o.Mode = install.Preview
			shown, err := azure.Delete(t.Context(), o)
			must(t, err)
			o.Mode = install.Apply
			_, err = azure.Delete(t.Context(), o)
			must(t, err)
			for _, said := range []string{preview(shown.Preview), w.Reported()} {
				scene.Held(t, said, names+issuerURL+"; once nothing needs it: az identity federated-credential delete --name ", "--identity-name loki --resource-group ")
				if strings.Contains(said, names+goneURL) {
					t.Errorf("nothing of the installation trusts it:\n%s", said)
				}
			}
			if got := w.issuers(); !slices.Equal(got, []string{goneURL, issuerURL}) {
				t.Errorf("it trusts %q", got)
			}
		})
	})
	for action, says := range map[string]string{
		"ListAllIdentities": "What create-identity made may still take tokens of " + issuerURL + ": the caller may not list the managed identities of subscription " + subscription,
		"ListCredentials":   "What create-identity made may still take tokens of " + issuerURL + ": the caller may not list the federated credentials of /",
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, o := prepare(t)
				w.Fault(func(c fakeazure.Call) fakeazure.Fault {
					if c.Action == action && !strings.Contains(c.Path, "prod-a") && !strings.Contains(c.Path, "PROD-A") {
						return fakeazure.Fail(403, "AuthorizationFailed", "no")
					}
					return fakeazure.Fault{}
				})
				_, err := azure.Delete(t.Context(), o)
				must(t, err)
				scene.Held(t, w.Reported(), says)
				if n := len(w.State().Identities); n != 1 {
					t.Errorf("there are %d identities", n)
				}
			})
		})
	}
}
