package azure_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
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
		run := func(issuer, namespace string, to policy.Transporter) {
			w.workload(t, func(o *azure.WorkloadOptions) {
				o.IssuerURL, o.Transport, o.ServiceAccounts = issuer, to, []install.ServiceAccount{{Namespace: namespace, Name: "loki"}}
			})
		}
		other := once(w, http.MethodGet, "/federatedIdentityCredentials", func() {
			run("https://oidc.example.com/b", "logging", w.Client())
			run("https://oidc.example.com/a", "other", w.Client())
		})
		run("https://oidc.example.com/a", "logging", other)
		if all := w.State().Credentials; len(all) != 3 {
			t.Errorf("federated credentials: %+v", all)
		}
	})
}

// hangsOn returns how many identities, federated credentials, assignments and custom roles belong to an identity.
func hangsOn(s fakeazure.State, name string) (counts [4]int) {
	for _, i := range s.Identities {
		if i.Name != name {
			continue
		}
		counts[0]++
		for _, c := range s.Credentials {
			if strings.EqualFold(c.Identity, i.ID) {
				counts[1]++
			}
		}
		for _, a := range s.Assignments {
			if a.Principal == i.PrincipalID {
				counts[2]++
			}
		}
	}
	for _, d := range s.Definitions {
		if d.RoleName == name {
			counts[3]++
		}
	}
	return counts
}

// An identity that somebody else took over with --adopt is two owners': it goes with neither, and keeps what hangs on it. Its first
// owner's other identities go.
func TestAnIdentityOfTwoGoesWithNeither(t *testing.T) {
	t.Parallel()
	workload := func(t *testing.T, w *world) {
		o := azure.WorkloadOptions{Options: w.elsewhere(), Roles: []string{"Contributor"}}
		o.Name, o.OIDCGroup, o.InstallGroup, o.Adopt = storage, "prod-a-oidc", "", true
		_, err := azure.CreateIdentity(t.Context(), o)
		must(t, err)
	}
	installation := func(t *testing.T, w *world) { // prod and a-ns-storage make the same name as prod-a and ns-storage
		w.arm(t, "PATCH", home+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/"+storage, "2024-11-30",
			`{"tags":{"openshift.io_cloud-credential-operator_prod-a":"owned","openshift.io_cloud-credential-operator_prod":"owned"}}`)
	}
	for _, tt := range []struct {
		other string
		adopt func(*testing.T, *world)
	}{{"create-identity", workload}, {"prod", installation}} {
		for _, prune := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, prune %v", tt.other, prune), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, fakeazure.Options{VaryCase: true})
					_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
					must(t, err)
					tt.adopt(t, w)
					before := hangsOn(w.State(), storage)
					remove := func(mode install.Mode) (*plan.Preview, error) {
						if !prune {
							o := azure.DeleteOptions{Options: w.options()}
							o.Mode = mode
							gone, err := azure.Delete(t.Context(), o)
							return gone.Preview, err
						}
						o := w.identities(t, usual()[0])
						o.Prune, o.Mode = true, mode
						made, err := azure.CreateIdentities(t.Context(), o)
						return made.Preview, err
					}
					shown, err := remove(install.Preview)
					must(t, err)
					_, err = remove(install.Apply)
					must(t, err)
					note := "managed identity " + storage + " belongs to "
					for _, said := range []string{preview(shown), w.Reported()} {
						if !strings.Contains(said, note) || !strings.Contains(said, tt.other) ||
							!strings.Contains(said, "az tag update --operation Delete --resource-id "+home+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/"+storage+
								" --tags openshift.io_cloud-credential-operator_prod-a=owned") {
							t.Errorf("it does not say whose it is:\n%s", said)
						}
					}
					if after := hangsOn(w.State(), storage); after != before || after[0] != 1 {
						t.Errorf("identities, credentials, assignments and roles: %v, and were %v", after, before)
					}
					if left := hangsOn(w.State(), registry); left != [4]int{} {
						t.Errorf("of %s there is left: %v", registry, left)
					}
					o := azure.DeleteOptions{Options: w.options(), Group: true}
					w.writes()
					if _, err := azure.Delete(t.Context(), o); !is(arm.OthersInGroup)(err) || len(w.writes()) > 0 {
						t.Errorf("its resource group: %v", err)
					}
				})
			})
		}
	}
}

// Of what is there, only our own tags are written: what somebody else writes between the reading and the writing stays.
func TestOthersTagsStayMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			group    = "/subscriptions/" + subscription + "/resourceGroups/prod-a-oidc"
			identity = group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/prod-a-ns-registry-creds"
			own      = "openshift.io_cloud-credential-operator_prod-a"
		)
		for _, thing := range []string{group, identity} {
			w := newWorld(t, fakeazure.Options{VaryCase: true})
			o := w.identities(t, usual()...)
			_, err := azure.CreateIdentities(t.Context(), o)
			must(t, err)
			version := map[string]string{group: "2021-04-01", identity: "2024-11-30"}[thing]
			w.arm(t, "PATCH", thing, version, `{"tags":{"`+own+`":"owned","team":"x","cost-center":"41"}}`)
			reads := 0
			o.Tags = map[string]string{"Team": "ours"}
			o.Transport = bent{w.Client(), func(r *http.Request) {
				if r.Method != http.MethodGet || !strings.EqualFold(r.URL.Path, thing) {
					return
				}
				if reads++; reads == map[string]int{group: 2, identity: 1}[thing] { // the last before the write
					w.arm(t, "PATCH", thing, version, `{"tags":{"`+own+`":"owned","team":"x","cost-center":"42","other":"y"}}`)
				}
			}}
			_, err = azure.CreateIdentities(t.Context(), o)
			must(t, err)
			have := map[string]map[string]string{}
			for _, g := range w.State().Groups {
				have[strings.ToLower(g.ID)] = g.Tags
			}
			for _, i := range w.State().Identities {
				have[strings.ToLower(i.ID)] = i.Tags
			}
			if got := have[strings.ToLower(thing)]; !maps.Equal(got, map[string]string{own: "owned", "Team": "ours", "cost-center": "42", "other": "y"}) {
				t.Errorf("tags of %s: %v", thing, got)
			}
		}
	})
}
