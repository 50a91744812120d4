package azure_test

import (
	"crypto/elliptic"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/keys"
)

const (
	registry = "prod-a-ns-registry-creds" // an identity of usual, with a role of Azure's
	storage  = "prod-a-ns-storage-creds"  // another one, with a custom role
)

// once calls f after the first answer to a call of this method to a path with this in it.
func once(w *world, method, part string, f func()) bent {
	var done sync.Once
	return bent{w.Client(), func(r *http.Request, _ *http.Response) {
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
			w := newWorld(t, fakeazure.Options{})
			_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
			must(t, err)
			o := azure.DeleteOptions{Options: w.options()}
			o.Transport = once(w, http.MethodDelete, "/roleAssignments/", func() { tt.take(w) })
			if _, err = azure.Delete(t.Context(), o); !is(azure.NotOwned)(err) {
				t.Errorf("error %v", err)
			}
			if s := w.State(); !tt.left(s) {
				t.Errorf("left: %+v", s)
			}
		})
	}
}

// An answer about another identity than the one that was asked for, as a cache in between may give it, says nothing of this one.
func TestAnAnswerAboutAnotherIdentityIsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fakeazure.Options{})
	_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
	must(t, err)
	o := azure.DeleteOptions{Options: w.options()}
	o.Transport = bent{w.Client(), func(r *http.Request, resp *http.Response) {
		if reads("/userassignedidentities/" + storage)(r) {
			rewrite(t, resp, func(body string) string { return strings.ReplaceAll(body, storage, registry) })
		}
	}}
	if _, err = azure.Delete(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the answer about managed identity "+storage+` is about "`+registry+`"`) {
		t.Errorf("error %v", err)
	}
	if s := w.State(); len(s.Identities) != 1 || s.Identities[0].Name != storage {
		t.Errorf("left: %+v", s.Identities)
	}
}

// What a management group assigns to an identity is in what is read again before a deletion, too, and stays.
func TestInheritedAssignmentsStayWhenOthersGo(t *testing.T) {
	t.Parallel()
	const name = "aaaaaaaa-0000-4000-8000-000000000001"
	w := newWorld(t, fakeazure.Options{})
	_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
	must(t, err)
	all := w.State().Identities
	of := all[slices.IndexFunc(all, func(i fakeazure.Identity) bool { return i.Name == registry })].PrincipalID
	w.arm(t, "PUT", "/subscriptions/"+subscription+"/providers/Microsoft.Authorization/roleAssignments/"+name, "2022-04-01",
		fmt.Sprintf(`{"properties":{"roleDefinitionId":"/subscriptions/%s/providers/Microsoft.Authorization/roleDefinitions/b24988ac-6180-42a0-ab88-20f7382dd24c",
			"principalId":%q,"principalType":"ServicePrincipal"}}`, subscription, of))
	o := azure.DeleteOptions{Options: w.options()}
	o.Transport = bent{w.Client(), func(r *http.Request, resp *http.Response) {
		if reads("/roleassignments")(r) {
			rewrite(t, resp, func(body string) string {
				return strings.ReplaceAll(body, `"/subscriptions/`+subscription+`"`, `"/providers/Microsoft.Management/managementGroups/all"`)
			})
		}
	}}
	_, err = azure.Delete(t.Context(), o)
	must(t, err)
	if s := w.State(); len(s.Assignments) != 1 || s.Assignments[0].Name != name || len(s.Identities) > 0 {
		t.Errorf("left: %+v", s)
	}
}

// A resource group that is two installations' goes with neither, also where nothing of the other is in it any more.
func TestAGroupOfTwoGoesWithNeither(t *testing.T) {
	t.Parallel()
	for other, name := range map[string]string{"openshift.io_cloud-credential-operator_prod": "prod", "keypost.dev_owned": "create-identity"} {
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
		must(t, err)
		w.arm(t, "PATCH", home, "2021-04-01", `{"tags":{"openshift.io_cloud-credential-operator_prod-a":"owned","`+other+`":"owned"}}`)
		w.writes()
		_, err = azure.Delete(t.Context(), azure.DeleteOptions{Options: w.options(), Group: true})
		if !is(azure.OthersInGroup)(err) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "it is not deleted for one of them") {
			t.Errorf("with %s: %v", name, err)
		}
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("with %s: it wrote %q", name, wrote)
		}
	}
}

// A key with which a cluster signs, or is to sign, must be one whose tokens Entra takes; one that is retired signs nothing.
func TestKeysInUseAreChecked(t *testing.T) {
	t.Parallel()
	rsa, err := keystore.NewPublic(keys.NewRSA()().Public())
	must(t, err)
	ec, err := keystore.NewPublic(keys.EC(elliptic.P256(), 1).Public())
	must(t, err)
	for state, refused := range map[keystore.State]bool{keystore.Active: true, keystore.Next: true, keystore.Retired: false} {
		w := newWorld(t, fakeazure.Options{})
		w.StoreKeys(t, rsa, ec, state)
		o := w.identities(t, usual()...)
		o.Store = w.KeyStore()
		_, err := azure.CreateIdentities(t.Context(), o)
		if is(azure.WrongAlgorithm)(err) != refused || (err != nil) != refused {
			t.Errorf("%v: %v", state, err)
		}
	}
}

// A time of the switch that is none opens nothing, and the error says what to do.
func TestATimeOfTheSwitchThatIsNone(t *testing.T) {
	t.Parallel()
	const old = "https://prod-a.blob.core.windows.net/prod-a"
	w := newWorld(t, fakeazure.Options{})
	o := w.moved(t, old)
	_, err := azure.Migrate(t.Context(), o)
	must(t, err)
	w.arm(t, "PATCH", home, "2021-04-01", fmt.Sprintf(`{"tags":{"openshift.io_cloud-credential-operator_prod-a":"owned",%q:"yesterday"}}`, azure.MovedAtTag("prod-a", old)))
	w.writes()
	_, err = azure.FinishMigration(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "=yesterday of resource group prod-a-oidc is not a time: take it away, and the wait begins anew") {
		t.Errorf("error %v", err)
	}
	if wrote := w.writes(); len(wrote) > 0 {
		t.Errorf("it wrote %q", wrote)
	}
}
