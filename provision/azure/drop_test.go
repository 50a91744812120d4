package azure_test

import (
	"slices"
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
		w.loki(t, install.Apply, issuerURL)
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
		w.loki(t, install.Apply, issuerURL, goneURL, other+"/")
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("it wrote %q", wrote)
		}
	})
}
