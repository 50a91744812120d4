package azure_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakeazure"
)

// once calls f after the first answer to a call of this method to a path with this in it.
func once(w *world, method, part string, f func()) bent {
	var done sync.Once
	return bent{w.Client(), func(r *http.Request) {
		if r.Method == method && strings.Contains(strings.ToLower(r.URL.Path), strings.ToLower(part)) {
			done.Do(f)
		}
	}}
}

// An identity or a custom role that becomes somebody else's while a deletion is under way stays.
func TestWhatOthersTakeOverMeanwhileStays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		take func(w *world)
		left func(s fakeazure.State) bool
	}{
		{"an identity", func(w *world) {
			w.arm(t, "PATCH", home+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/"+storage, "2024-11-30", `{"tags":{"openshift.io_cloud-credential-operator_b":"owned"}}`)
		}, func(s fakeazure.State) bool {
			return slices.ContainsFunc(s.Identities, func(i fakeazure.Identity) bool { return i.Name == storage })
		}},
		{"a custom role", func(w *world) {
			all := w.State().Definitions
			d := all[slices.IndexFunc(all, func(d fakeazure.Definition) bool { return d.RoleName == storage })]
			w.arm(t, "PUT", d.ID, "2022-04-01", fmt.Sprintf(`{"properties":{"roleName":%q,"description":"mine","type":"CustomRole","assignableScopes":["/subscriptions/%s"],
				"permissions":[{"actions":["Microsoft.Compute/disks/delete"]}]}}`, d.RoleName, subscription))
		}, func(s fakeazure.State) bool {
			return slices.ContainsFunc(s.Definitions, func(d fakeazure.Definition) bool { return d.RoleName == storage && d.Description == "mine" })
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fakeazure.Options{})
				_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
				must(t, err)
				o := azure.DeleteOptions{Options: w.options()}
				o.Transport = once(w, http.MethodDelete, "/roleAssignments/", func() { tt.take(w) })
				if _, err = azure.Delete(t.Context(), o); !is(arm.NotOwned)(err) {
					t.Errorf("error %v", err)
				}
				if s := w.State(); !tt.left(s) {
					t.Errorf("left: %+v", s)
				}
			})
		})
	}
}

// A resource group that is two installations' goes with neither, also where nothing of the other is in it any more.
func TestAGroupOfTwoGoesWithNeither(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for other, name := range map[string]string{"openshift.io_cloud-credential-operator_prod": "prod", "keypost.dev_owned": "create-identity"} {
			w := newWorld(t, fakeazure.Options{VaryCase: true})
			_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
			must(t, err)
			w.arm(t, "PATCH", home, "2021-04-01", `{"tags":{"openshift.io_cloud-credential-operator_prod-a":"owned","`+other+`":"owned"}}`)
			w.writes()
			_, err = azure.Delete(t.Context(), azure.DeleteOptions{Options: w.options(), Group: true})
			if !is(arm.OthersInGroup)(err) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "it is not deleted for one of them") {
				t.Errorf("with %s: %v", name, err)
			}
			if wrote := w.writes(); len(wrote) > 0 {
				t.Errorf("with %s: it wrote %q", name, wrote)
			}
		}
	})
}

// Two clusters' runs for one identity, of service accounts of the same name, may come at once: Azure lets the second replace what the
// first has written under the same name, and that cluster's pods would lose access.
func TestTwoClustersAtOnceKeepBothExchanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{})
		run := func(issuer, namespace string, to *bent) {
			o := azure.WorkloadOptions{Options: w.elsewhere(), For: "--name", ServiceAccounts: []install.ServiceAccount{{Namespace: namespace, Name: "loki"}}}
			o.Name, o.InstallGroup, o.IssuerURL = "loki", "", issuer
			if to != nil {
				o.Transport = to
			}
			_, err := azure.CreateIdentity(t.Context(), o)
			must(t, err)
		}
		other := once(w, http.MethodGet, "/federatedIdentityCredentials", func() {
			run("https://oidc.example.com/b", "logging", nil)
			run("https://oidc.example.com/a", "other", nil)
		})
		run("https://oidc.example.com/a", "logging", &other)
		if all := w.State().Credentials; len(all) != 3 {
			t.Errorf("federated credentials: %+v", all)
		}
	})
}
