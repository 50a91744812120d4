package azure_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/fakecloud"
	"github.com/keypost/keypost/test/scene"
)

// Each Secret names its own identity.
func TestSecretsNameTheirIdentities(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{})
		_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
		must(t, err)
		for _, id := range w.State().Identities {
			text, err := os.ReadFile(filepath.Join(w.Out(), "manifests", strings.TrimPrefix(id.Name, "prod-a-")+"-credentials.yaml"))
			must(t, err)
			scene.Held(t, string(text), "azure_client_id: "+id.ClientID, "azure_tenant_id: "+tenant, "azure_region: centralus", "azure_subscription_id: "+subscription)
		}
	})
}

// Killed after any call, and run again: the same as without. What the killed run has made is not made twice.
func TestStoppedAnywhereAndRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		state := func(w *world) string {
			var b strings.Builder
			s := w.State()
			for _, g := range s.Groups {
				fmt.Fprintln(&b, g.Name, g.Location, g.Tags)
			}
			for _, i := range s.Identities {
				fmt.Fprintln(&b, i.Name, i.Tags)
			}
			for _, c := range s.Credentials {
				fmt.Fprintln(&b, c.Name, c.Issuer, c.Subject, c.Audiences)
			}
			for _, d := range s.Definitions {
				fmt.Fprintln(&b, d.Name, d.RoleName, d.Permissions)
			}
			fmt.Fprintln(&b, len(s.Assignments))
			return b.String()
		}
		whole := newWorld(t, fakeazure.Options{})
		_, err := azure.CreateIdentities(t.Context(), whole.identities(t, usual()...))
		must(t, err)
		want, calls := state(whole), len(whole.Calls())
		for n := 1; n <= calls; n++ {
			w := newWorld(t, fakeazure.Options{})
			w.Fault(fakecloud.KilledAt(n, dead()))

			_, _ = azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
			w.Fault(nil)
			_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
			if err != nil {
				t.Fatalf("stopped at call %d of %d, and run again: %v", n, calls, err)
			}
			if got := state(w); got != want {
				t.Fatalf("stopped at call %d of %d, and run again:\n%s\nwant\n%s", n, calls, got, want)
			}
		}
	})
}

// Whatever was changed by others is shown, and repaired with Prune; then nothing is left to do.
func TestDriftIsShownAndRepaired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{})
		o := w.identities(t, usual()...)
		o.Tags, o.Prune = map[string]string{"team": "ours"}, true
		_, err := azure.CreateIdentities(t.Context(), o)
		must(t, err)
		const identity = home + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/"
		w.arm(t, "PATCH", identity+registry, "2024-11-30", `{"tags":{"openshift.io_cloud-credential-operator_prod-a":"owned","team":"other"}}`)
		w.credential(t, identity+registry, "registry", issuerURL, "system:serviceaccount:ns:other", "openshift")
		w.credential(t, identity+registry, "gone", issuerURL, "system:serviceaccount:ns-registry:gone", "openshift")
		const ingress = "system:serviceaccount:ns-openshift-ingress-azure:ingress-operator"
		w.credential(t, identity+"prod-a-ns-openshift-ingress-azure-creds", "ingress-operator", issuerURL, ingress, "other")
		all := w.State().Credentials
		lost := all[slices.IndexFunc(all, func(c fakeazure.Credential) bool { return c.Subject == "system:serviceaccount:ns-storage:op" })]
		w.arm(t, "DELETE", lost.ID, "2024-11-30", "")
		w.arm(t, "DELETE", w.State().Assignments[0].ID, "2022-04-01", "")
		d := w.State().Definitions[0]
		w.arm(t, "PUT", d.ID, "2022-04-01", fmt.Sprintf(`{"properties":{"roleName":%q,"description":%q,"type":"CustomRole","assignableScopes":["/subscriptions/%s"],
			"permissions":[{"actions":["Microsoft.Compute/disks/delete"]}]}}`, d.RoleName, d.Description, subscription))
		w.writes()
		o.Mode, o.Prune = install.Preview, false
		shown, err := azure.CreateIdentities(t.Context(), o)
		must(t, err)
		if extra := strings.Join(shown.Preview.Extra, "\n"); !strings.Contains(extra, "for the audience other, and not openshift; --audience openshift --prune changes it") {
			t.Errorf("without --prune it says %q", extra)
		}
		o.Prune = true
		shown, err = azure.CreateIdentities(t.Context(), o)
		must(t, err)
		for _, want := range []string{
			"+ tag team=ours", "- registry: system:serviceaccount:ns:other", "system:serviceaccount:ns-registry:registry of " + issuerURL + " for openshift",
			"- gone: system:serviceaccount:ns-registry:gone", "+ ingress-operator: " + ingress + " of " + issuerURL + " for openshift",
			"+ " + lost.Name + ": " + lost.Subject, "+ role ", "- action Microsoft.Compute/disks/delete",
		} {
			if text := preview(shown.Preview); !strings.Contains(text, want) {
				t.Errorf("%q is not shown in\n%s", want, text)
			}
		}
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("the previews wrote %q", wrote)
		}
		o.Mode = install.Apply
		_, err = azure.CreateIdentities(t.Context(), o)
		must(t, err)
		o.Mode = install.Preview
		if left, err := azure.CreateIdentities(t.Context(), o); err != nil || !left.Preview.Empty() {
			t.Errorf("%v, left: %+v", err, left.Preview)
		}
	})
}

// What a group has, what an admin gave, and what somebody else made stays.
func TestOthersThingsSurvive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		o := w.identities(t, usual()...)
		_, err := azure.CreateIdentities(t.Context(), o)
		must(t, err)
		us := w.State().Identities[0]
		contributor := "/subscriptions/" + subscription + "/providers/Microsoft.Authorization/roleDefinitions/b24988ac-6180-42a0-ab88-20f7382dd24c"
		const devs = "dddddddd-0000-4000-8000-000000000001"
		w.Join(devs, us.PrincipalID)
		assign := func(scope, name, principal, kind string) {
			w.arm(t, "PUT", scope+"/providers/Microsoft.Authorization/roleAssignments/"+name, "2022-04-01",
				fmt.Sprintf(`{"properties":{"roleDefinitionId":%q,"principalId":%q,"principalType":%q}}`, contributor, principal, kind))
		}
		group := "/subscriptions/" + subscription + "/resourceGroups/prod-a"
		assign(group, "aaaaaaaa-0000-4000-8000-000000000001", devs, "Group")
		assign(group, "aaaaaaaa-0000-4000-8000-000000000002", us.PrincipalID, "ServicePrincipal")
		assign("/subscriptions/"+subscription, "aaaaaaaa-0000-4000-8000-000000000003", us.PrincipalID, "ServicePrincipal")
		role := w.State().Definitions[0]
		w.arm(t, "PUT", role.ID, "2022-04-01", fmt.Sprintf(`{"properties":{"roleName":%q,"description":%q,"type":"CustomRole","assignableScopes":["/subscriptions/%s"],
			"permissions":[{"actions":["%s","Microsoft.Compute/disks/delete"]}]}}`, role.RoleName, role.Description, subscription, strings.Join(role.Permissions[0].Actions, `","`)))
		w.writes()
		_, err = azure.CreateIdentities(t.Context(), o)
		must(t, err)
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("it wrote %q", wrote)
		}
		scene.Held(t, w.Reported(), " allows Microsoft.Compute/disks/delete, which nobody asked for", "warning identity "+us.Name+" has the role Contributor at ", "--prune takes it away")
		o.Prune = true
		_, err = azure.CreateIdentities(t.Context(), o)
		must(t, err)
		if wrote := w.writes(); len(wrote) != 2 || !strings.Contains(strings.ToLower(strings.Join(wrote, " ")), "aaaaaaaa-0000-4000-8000-000000000002") {
			t.Errorf("with --prune it wrote %q", wrote)
		}
		_, err = azure.Delete(t.Context(), azure.DeleteOptions{Options: w.options(), Group: true})
		must(t, err)
		s := w.State()
		if len(s.Assignments) != 1 || s.Assignments[0].Principal != devs || len(s.Identities)+len(s.Definitions)+len(s.Credentials) != 0 || len(s.Groups) != 1 {
			t.Errorf("left: %+v", s)
		}
	})
}

// A dry run of delete only reads, and delete leaves another cluster whole.
func TestDelete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{})
		_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
		must(t, err)
		other := w.identities(t, usual()...)
		other.Name, other.InstallGroup, other.IssuerURL, other.Adopt = "prod", "prod", "https://oidc.example.com/prod", true
		_, err = azure.CreateIdentities(t.Context(), other)
		must(t, err)
		before := w.State()
		w.writes()
		o := azure.DeleteOptions{Options: w.options()}
		o.Mode = install.Preview
		shown, err := azure.Delete(t.Context(), o)
		must(t, err)
		if wrote := w.writes(); len(wrote) > 0 || len(shown.Preview.Changes) != 3+2+3 {
			t.Errorf("a dry run wrote %q and showed %+v", wrote, shown.Preview.Changes)
		}
		o.Mode, o.Group = install.Apply, true
		if _, err := azure.Delete(t.Context(), o); !is(arm.OthersInGroup)(err) {
			t.Errorf("a group of two clusters: %v", err)
		}
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("it wrote %q all the same", wrote)
		}
		o.Group = false
		w.Fault(func(c fakeazure.Call) fakeazure.Fault { // which issuers they trust is asked before anything goes
			if c.Action == "ListCredentials" {
				return fakeazure.Fail(403, "AuthorizationFailed", "no")
			}
			return fakeazure.Fault{}
		})
		if _, err := azure.Delete(t.Context(), o); err == nil || len(w.writes()) > 0 {
			t.Errorf("issuers that cannot be read: %v", err)
		}
		w.Fault(nil)
		_, err = azure.Delete(t.Context(), o)
		must(t, err)
		after := w.State()
		if len(after.Identities) != len(before.Identities)/2 || len(after.Definitions) != len(before.Definitions)/2 || len(after.Assignments) != len(before.Assignments)/2 {
			t.Errorf("left: %+v", after)
		}
		w.writes()
		_, err = azure.CreateIdentities(t.Context(), other)
		must(t, err)
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("the other cluster lost something: %q", wrote)
		}
	})
}

// What bears no tag of ours is refused before anything is written.
func TestStrangersThingsAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, path := range []string{
			"/subscriptions/" + subscription + "/resourceGroups/prod-a-oidc",
			"/subscriptions/" + subscription + "/resourceGroups/prod-a",
		} {
			w := newWorld(t, fakeazure.Options{})
			w.arm(t, "PUT", path, "2021-04-01", `{"location":"centralus","tags":{"team":"other"}}`)
			w.writes()
			o := w.identities(t, usual()...)
			if _, err := azure.CreateIdentities(t.Context(), o); !is(arm.NotOwned)(err) {
				t.Errorf("%s: %v", path, err)
			}
			if wrote := w.writes(); len(wrote) > 0 {
				t.Errorf("it wrote %q", wrote)
			}
			o.Adopt = true
			_, err := azure.CreateIdentities(t.Context(), o)
			must(t, err)
			at := slices.IndexFunc(w.State().Groups, func(g fakeazure.Group) bool { return strings.EqualFold(g.ID, path) })
			if tags := w.State().Groups[at].Tags; tags["team"] != "other" || len(tags) != 2 {
				t.Errorf("tags %v", tags)
			}
		}
	})
}
