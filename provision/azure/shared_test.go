package azure_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakeazure"
)

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
