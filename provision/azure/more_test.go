package azure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/iam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/scene"
)

// least returns what the README tells people to allow. The first only finds a mistake early.
func least(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	must(t, err)
	_, rest, _ := strings.Cut(string(text), "```json\n")
	block, _, _ := strings.Cut(rest, "```")
	var list []string
	must(t, json.Unmarshal([]byte(block), &list))
	return list
}

// These permissions are enough for everything, and each is needed for something.
func TestLeastPermissions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		everything := func(permissions []string) map[string]bool {
			w := newWorld(t, fakeazure.Options{Permissions: permissions})
			o := w.identities(t, usual()...)
			o.IssuerURL = "https://prod-a.blob.core.windows.net/prod-a"
			o.Tags = map[string]string{"a": "b", iam.MovedAtTag("prod-a", o.IssuerURL): "2020-01-01T00:00:00Z"} // as an earlier move leaves it
			_, err := azure.CreateIdentities(t.Context(), o)
			must(t, err)
			key, err := keystore.NewPublic(clusterKey().Public())
			must(t, err)
			_, err = azure.Migrate(t.Context(), azure.MigrateOptions{Options: w.options(), Move: install.Move{Old: o.IssuerURL,
				OldKeys: func(context.Context) ([]keystore.VerificationKey, error) { return []keystore.VerificationKey{key}, nil }}})
			must(t, err)
			less := w.identities(t, request{"storage", "op", "permissions: [Microsoft.Compute/disks/read]"})
			less.Prune, less.Tags = true, map[string]string{"a": "c"}
			_, err = azure.CreateIdentities(t.Context(), less)
			must(t, err)
			_, err = azure.Delete(t.Context(), azure.DeleteOptions{Options: w.options(), Group: true})
			must(t, err)
			used := map[string]bool{}
			for _, c := range w.Calls() {
				used[c.Permission] = true
			}
			return used
		}
		list := least(t)
		used := everything(list)
		for _, p := range list {
			if !used[p] {
				t.Errorf("%s is not needed", p)
			}
		}
		everything(list[1:])
	})
}

// An identity for any workload, which the deletion of an installation leaves alone.
func TestWorkload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{})
		o := azure.WorkloadOptions{Options: w.elsewhere(), For: "--name", ServiceAccounts: []install.ServiceAccount{{Namespace: "logging", Name: "loki"}},
			Roles: []string{"Storage Blob Data Contributor"}, Actions: []string{"Microsoft.Compute/disks/read"}}
		o.Name, o.OIDCGroup, o.InstallGroup, o.Audience = "loki", "observability", "", "api://AzureADTokenExchange"
		o.Mode = install.Preview
		shown, err := azure.CreateIdentity(t.Context(), o)
		if err != nil || len(shown.Preview.Changes) != 5 || len(w.writes()) > 0 {
			t.Errorf("%v, %+v", err, shown.Preview)
		}
		o.Mode = install.Apply
		made, err := azure.CreateIdentity(t.Context(), o)
		must(t, err)
		s := w.State()
		if made.ClientID != s.Identities[0].ClientID || made.TenantID != tenant || made.Region != "centralus" || made.SubscriptionID != subscription {
			t.Errorf("made %+v", made)
		}
		if c := s.Credentials[0]; !strings.HasPrefix(c.Name, "loki-") || c.Subject != "system:serviceaccount:logging:loki" || c.Audiences[0] != "api://AzureADTokenExchange" {
			t.Errorf("credential %+v", c)
		}
		if len(s.Assignments) != 2 || len(s.Groups) != 1 || s.Groups[0].Tags["keypost.dev_owned"] != "owned" {
			t.Errorf("there is %+v", s)
		}
		w.writes()
		_, err = azure.CreateIdentity(t.Context(), o)
		must(t, err)
		if again := w.writes(); len(again) > 0 {
			t.Errorf("the second run wrote %q", again)
		}
		del := azure.DeleteOptions{Options: w.options()}
		del.OIDCGroup = "observability"
		_, err = azure.Delete(t.Context(), del)
		must(t, err)
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("delete wrote %q", wrote)
		}
	})
}

// A request that names its own identity gets only its Secret, and a dry run calls nobody.
func TestOwnIdentityAndDryRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{})
		list := append(usual(), request{"olm", "", "azureClientID: c0000000-0000-4000-8000-00000000000A, azureTenantID: 66666666-7777-8888-9999-000000000000, " +
			"azureSubscriptionID: 22222222-2222-3333-4444-555555555555, azureRegion: westeurope"})
		o := w.identities(t, list...)
		o.Mode = install.DryRun
		_, err := azure.CreateIdentities(t.Context(), o)
		must(t, err)
		if n := len(w.Calls()); n > 0 {
			t.Errorf("a dry run made %d calls", n)
		}
		read := func(name string) string {
			text, err := os.ReadFile(filepath.Join(w.Out(), "manifests", name))
			must(t, err)
			return string(text)
		}
		scene.Held(t, read("ns-storage-creds-credentials.yaml"), "azure_client_id: \n", "POPULATE")
		scene.Held(t, read("ns-olm-creds-credentials.yaml"), "azure_client_id: c0000000-0000-4000-8000-00000000000A\n", "azure_region: westeurope\n", "22222222")
		o.Mode = install.Apply
		made, err := azure.CreateIdentities(t.Context(), o)
		must(t, err)
		if len(made.Secrets) != 4 || len(w.State().Identities) != 3 {
			t.Errorf("%d Secrets, %d identities", len(made.Secrets), len(w.State().Identities))
		}
	})
}

// A workload of the same name in another resource group keeps its custom role, and roles are assigned in the one subscription.
func TestWorkloadsOfOneName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		workload := func(group string) azure.WorkloadOptions {
			o := azure.WorkloadOptions{Options: w.elsewhere(), For: "--name", ServiceAccounts: []install.ServiceAccount{{Namespace: "logging", Name: "loki"}},
				Actions: []string{"Microsoft.Compute/disks/read"}}
			o.Name, o.OIDCGroup, o.InstallGroup = "loki", group, ""
			return o
		}
		_, err := azure.CreateIdentity(t.Context(), workload("a"))
		must(t, err)
		w.writes()
		other := workload("b")
		other.Actions = []string{"Microsoft.Compute/disks/delete"}
		if _, err := azure.CreateIdentity(t.Context(), other); !is(iam.NotOwned)(err) {
			t.Errorf("another group's role: %v", err)
		}
		far := workload("a")
		far.Scopes = []string{"/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/logs"}
		if _, err := azure.CreateIdentity(t.Context(), far); err == nil || !strings.Contains(err.Error(), "is not in subscription "+subscription) {
			t.Errorf("another subscription: %v", err)
		}
		up := workload("a")
		up.Scopes = []string{"/subscriptions/" + subscription + "/../00000000-0000-4000-8000-000000000000"}
		if _, err := azure.CreateIdentity(t.Context(), up); err == nil || !strings.Contains(err.Error(), "is not the ID of") {
			t.Errorf("a way out of the subscription: %v", err)
		}
		lost := workload("a")
		lost.Scopes = []string{"/subscriptions/" + subscription + "/resourceGroups/nope"}
		if _, err := azure.CreateIdentity(t.Context(), lost); err == nil || !strings.Contains(err.Error(), "there is no resource group nope in subscription "+subscription) {
			t.Errorf("a group that is not there: %v", err)
		}
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("it wrote %q", wrote)
		}
		same := workload("A")
		_, err = azure.CreateIdentity(t.Context(), same)
		must(t, err)
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("the same group in another letter case: it wrote %q", wrote)
		}
	})
}

// A run that forgets --dnszone-resource-group-name leaves our rights there, says so and shows it; they go only with Prune. A
// stranger's at a scope that is not ours stays.
func TestScopeThatNobodyAsksForAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		scope := func(group string) string { return "/subscriptions/" + subscription + "/resourceGroups/" + group }
		w.arm(t, "PUT", scope("logs"), "2021-04-01", `{"location":"centralus"}`)
		w.arm(t, "PUT", scope("dns"), "2021-04-01", `{"location":"centralus"}`)
		o := w.identities(t, usual()...)
		o.DNSGroup = "dns"
		_, err := azure.CreateIdentities(t.Context(), o)
		must(t, err)
		ingress := w.State().Identities[slices.IndexFunc(w.State().Identities, func(i fakeazure.Identity) bool { return strings.Contains(i.Name, "ingress") })]
		w.arm(t, "PUT", scope("logs")+"/providers/Microsoft.Authorization/roleAssignments/aaaaaaaa-0000-4000-8000-000000000001", "2022-04-01",
			fmt.Sprintf(`{"properties":{"roleDefinitionId":"/subscriptions/%s/providers/Microsoft.Authorization/roleDefinitions/b24988ac-6180-42a0-ab88-20f7382dd24c",
			"principalId":%q,"principalType":"ServicePrincipal"}}`, subscription, ingress.PrincipalID))
		before := len(w.State().Assignments)
		w.writes()
		w.Reported()
		o.DNSGroup = ""
		for _, tt := range []struct {
			name  string
			prune bool
			mode  install.Mode
		}{
			{name: "shown", mode: install.Preview},
			{name: "left alone"},
			{name: "shown that it goes", prune: true, mode: install.Preview},
		} {
			func() {
				o.Prune, o.Mode = tt.prune, tt.mode
				shown, err := azure.CreateIdentities(t.Context(), o)
				must(t, err)
				line := "identity prod-a-ns-openshift-ingress-azure-creds has the role prod-a-ns-openshift-ingress-azure-creds at " + scope("dns") + ", which nobody asked for; --prune takes it away"
				switch said := w.Reported(); {
				case tt.prune:
					if v := shown.Preview; len(v.Changes) != 1 || len(v.Warnings) != 1 || len(v.Extra) != 0 || !strings.HasPrefix(v.Changes[0].Diff[0], "- role ") {
						t.Errorf("shown %+v", v)
					}
				case tt.mode == install.Preview:
					if v := shown.Preview; len(v.Changes) != 0 || len(v.Extra) != 1 || !strings.EqualFold(v.Extra[0], line) || v.Empty() {
						t.Errorf("shown %+v", v)
					}
				case !strings.Contains(strings.ToLower(said), strings.ToLower("warning "+line+"\n")):
					t.Errorf("it does not have %q:\n%s", line, said)
				}
				if wrote := w.writes(); len(wrote) > 0 {
					t.Errorf("it wrote %q", wrote)
				}
			}()
		}
		o.Prune, o.Mode = true, install.Apply
		_, err = azure.CreateIdentities(t.Context(), o)
		must(t, err)
		if s := w.State(); len(s.Assignments) != before-1 || !slices.ContainsFunc(s.Assignments, func(a fakeazure.Assignment) bool { return strings.EqualFold(a.Scope, scope("logs")) }) ||
			slices.ContainsFunc(s.Assignments, func(a fakeazure.Assignment) bool { return strings.EqualFold(a.Scope, scope("dns")) }) {
			t.Errorf("left: %+v", s.Assignments)
		}
	})
}

// A run that forgets --audience leaves the audience of an earlier one, which is listed; a new identity gets the usual one.
func TestAudienceThatIsNotAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{})
		o := w.identities(t, usual()[1:]...)
		o.Audience = "api://AzureADTokenExchange"
		_, err := azure.CreateIdentities(t.Context(), o)
		must(t, err)
		o = w.identities(t, usual()...)
		o.Usual, o.Mode = true, install.Preview
		shown, err := azure.CreateIdentities(t.Context(), o)
		must(t, err)
		scene.Held(t, strings.Join(shown.Preview.Extra, "\n"), "identity prod-a-ns-registry-creds takes tokens of system:serviceaccount:ns-registry:registry for the audience "+
			"api://AzureADTokenExchange, and not openshift; --audience openshift --prune changes it")
		o.Mode, o.Prune = install.Apply, true
		_, err = azure.CreateIdentities(t.Context(), o)
		must(t, err)
		audiences := func() map[string]int {
			count := map[string]int{}
			for _, c := range w.State().Credentials {
				count[c.Audiences[0]]++
			}
			return count
		}
		if got := audiences(); got["api://AzureADTokenExchange"] != 4 || got["openshift"] != 1 {
			t.Errorf("audiences %v", got)
		}
		for _, prune := range []bool{false, true} {
			o.Usual, o.Prune = false, prune
			_, err = azure.CreateIdentities(t.Context(), o)
			must(t, err)
			if got := audiences(); (got["openshift"] == 5) != prune {
				t.Errorf("prune %v: audiences %v", prune, got)
			}
		}
	})
}

// delete with another group than the identities' names the assignments, all of them, and deletes nothing.
func TestDeleteWithAnotherGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
		must(t, err)
		w.writes()
		o := azure.DeleteOptions{Options: w.options()}
		o.OIDCGroup = "other"
		_, err = azure.Delete(t.Context(), o)
		if !is(iam.OtherGroup)(err) || strings.Count(err.Error(), ", which is not an identity of prod-a in resource group other") != 2 {
			t.Errorf("%v", err)
		}
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("it wrote %q", wrote)
		}
	})
}
