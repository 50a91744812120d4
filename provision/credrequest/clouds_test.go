package credrequest_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/credrequest"
)

// One directory holds the manifests of every cloud: each cloud's reader returns its own, and tells which it leaves out.
func TestEveryCloudReadsItsOwn(t *testing.T) {
	for _, tt := range []struct {
		cloud credrequest.Cloud
		want  []credrequest.Request
	}{
		{credrequest.GCP, []credrequest.Request{
			{
				File: "0000_10_gcp.yaml", Namespace: "openshift-cloud-credential-operator", Name: "demo-storage-gcp",
				SecretNamespace: "demo-storage", SecretName: "demo-storage-creds", ServiceAccounts: []string{"storage-operator", "storage-node"},
				GCP: credrequest.GCPSpec{
					PredefinedRoles: []string{"roles/storage.admin", "projects/demo-project/roles/ours", "organizations/42/roles/theirs"},
					Permissions:     []string{"compute.disks.create", "resourcemanager.tagValueBindings.create"}, SkipServiceCheck: true,
				},
			},
			{
				File: "0000_10_gcp.yaml", Namespace: "demo-operators", Name: "demo-operator-gcp",
				SecretNamespace: "demo-operators", SecretName: "demo-operator-creds", CloudTokenPath: "/var/run/secrets/cloud/token",
				GCP: credrequest.GCPSpec{ServiceAccountEmail: "demo@demo-project.iam.gserviceaccount.com",
					Audience: "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/demo/providers/demo"},
			},
		}},
		{credrequest.Azure, []credrequest.Request{
			{
				File: "0000_20_azure.yaml", Namespace: "openshift-cloud-credential-operator", Name: "demo-storage-azure",
				SecretNamespace: "demo-storage", SecretName: "demo-storage-creds", ServiceAccounts: []string{"storage-operator"},
				Azure: credrequest.AzureSpec{
					Roles:           []string{"Contributor", "SignalR/Web PubSub Contributor (Preview)"},
					Permissions:     []string{"Microsoft.Compute/disks/read", "Microsoft.Resources/subscriptions/resourceGroups/*/read", "*"},
					DataPermissions: []string{"Microsoft.Storage/storageAccounts/blobServices/containers/blobs/add/action"},
				},
			},
			{
				File: "0000_20_azure.yaml", Namespace: "demo-operators", Name: "demo-operator-azure",
				SecretNamespace: "demo-operators", SecretName: "demo-operator-creds",
				Azure: credrequest.AzureSpec{ClientID: "c0000000-0000-4000-8000-00000000000A", TenantID: "66666666-7777-8888-9999-000000000000",
					SubscriptionID: "11111111-2222-3333-4444-555555555555", Region: "westeurope"},
			},
		}},
	} {
		requests, skipped, err := credrequest.ReadDir(tt.cloud, "testdata/clouds", false)
		check(t, err)
		if !reflect.DeepEqual(requests, tt.want) {
			t.Errorf("for %s read\n%+v\nwant\n%+v", tt.cloud, requests, tt.want)
		}
		if len(skipped) != 2 || !strings.Contains(skipped[0], "it is for another cloud (") {
			t.Errorf("for %s skipped %q", tt.cloud, skipped)
		}
		for i, r := range requests {
			if r.HasIdentity() != (i == 1) {
				t.Errorf("%s: HasIdentity is %t", r, r.HasIdentity())
			}
		}
	}
}

const validGCP = `apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: a, namespace: own}
spec:
  providerSpec:
    kind: GCPProviderSpec
    permissions: [storage.buckets.get]
    predefinedRoles: [roles/storage.admin]
  secretRef: {name: creds, namespace: ns}
  serviceAccountNames: [sa]
`

const validAzure = `apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata: {name: a, namespace: own}
spec:
  providerSpec:
    kind: AzureProviderSpec
    permissions: [Microsoft.Compute/disks/read]
    roleBindings:
    - role: Contributor
  secretRef: {name: creds, namespace: ns}
  serviceAccountNames: [sa]
`

const (
	email    = "x@demo-project.iam.gserviceaccount.com"
	provider = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q"
)

func TestFieldsOfClouds(t *testing.T) {
	const in = "document 1 of a.yaml, CredentialsRequest own/a: spec."
	gcp, azure := credrequest.GCP, credrequest.Azure
	byHand := func(fields string) string { return "    kind: GCPProviderSpec\n" + fields }
	ours := func(fields string) string { return "    kind: AzureProviderSpec\n" + fields }
	for _, tt := range []struct {
		name     string
		cloud    credrequest.Cloud
		from, to string
		want     string // empty: it is read
	}{
		{"as it is", gcp, "", "", ""},
		{"more fields than known", gcp, byHand(""), byHand("    later: 1\n"), ""},
		{"no permissions", gcp, "    permissions: [storage.buckets.get]\n", "", ""},
		{"no roles", gcp, "    predefinedRoles: [roles/storage.admin]\n", "", ""},
		{"neither", gcp, "    permissions: [storage.buckets.get]\n    predefinedRoles: [roles/storage.admin]\n", "",
			"providerSpec: predefinedRoles and permissions are empty"},
		{"no service account", gcp, "[sa]", "[]", "serviceAccountNames: it is empty; name the service accounts in ns that may impersonate the Google service account"},
		{"a role without its prefix", gcp, "roles/storage.admin", "storage.admin", `providerSpec.predefinedRoles[0]: it is "storage.admin", which is not the name of a role`},
		{"one role without a list", gcp, "[roles/storage.admin]", "roles/storage.admin", `providerSpec.predefinedRoles: its type is string; write a list`},
		{"a role with a condition in it", gcp, "roles/storage.admin", "roles/storage.admin_withcond_1 x", "providerSpec.predefinedRoles[0]: it is"},
		{"a permission with a wildcard", gcp, "storage.buckets.get", "storage.buckets.*", `providerSpec.permissions[0]: it is "storage.buckets.*", which is not a permission`},
		{"a permission without a resource", gcp, "storage.buckets.get", "storage.get", `providerSpec.permissions[0]: it is "storage.get"`},
		{"an empty permission", gcp, "storage.buckets.get", "''", "providerSpec.permissions[0]: it is missing"},
		{"no truth value", gcp, byHand(""), byHand("    skipServiceCheck: \"true\"\n"), `providerSpec.skipServiceCheck: its type is string; write true or false`},
		{"an account of its own", gcp, byHand(""), byHand("    serviceAccountEmail: " + email + "\n    audience: " + provider + "\n"), ""},
		{"an account without a provider", gcp, byHand(""), byHand("    serviceAccountEmail: " + email + "\n"), "providerSpec: give both serviceAccountEmail and audience"},
		{"a provider without an account", gcp, byHand(""), byHand("    audience: " + provider + "\n"), "providerSpec: give both serviceAccountEmail and audience"},
		{"an account that is a person", gcp, byHand(""), byHand("    serviceAccountEmail: me@example.com\n    audience: " + provider + "\n"),
			`providerSpec.serviceAccountEmail: it is "me@example.com", which is not the address of a Google service account`},
		{"an account that ends the JSON", gcp, byHand(""), byHand("    serviceAccountEmail: 'x\"@a.iam.gserviceaccount.com'\n    audience: " + provider + "\n"),
			"providerSpec.serviceAccountEmail: it is"},
		{"a provider by its project's ID", gcp, byHand(""), byHand("    serviceAccountEmail: " + email + "\n    audience: " + strings.Replace(provider, "/1/", "/demo-project/", 1) + "\n"),
			"providerSpec.audience: it is"},
		{"a provider misspelt", gcp, "GCPProviderSpec", "GcpProviderSpec", "providerSpec.kind: it is GcpProviderSpec; write GCPProviderSpec"},
		{"no provider", gcp, "    kind: GCPProviderSpec\n", "", "providerSpec.kind: it is missing; a request for GCP has GCPProviderSpec"},

		{"as it is", azure, "", "", ""},
		{"more fields than known", azure, ours(""), ours("    later: 1\n"), ""},
		{"only data actions", azure, "    permissions: [Microsoft.Compute/disks/read]\n    roleBindings:\n    - role: Contributor\n",
			"    dataPermissions: [Microsoft.Storage/x/read]\n", ""},
		{"nothing", azure, "    permissions: [Microsoft.Compute/disks/read]\n    roleBindings:\n    - role: Contributor\n", "",
			"providerSpec: roleBindings, permissions and dataPermissions are empty"},
		{"no service account", azure, "[sa]", "[]", "serviceAccountNames: it is empty; name the service accounts in ns that may use the identity"},
		{"an action without a provider", azure, "Microsoft.Compute/disks/read", "read", `providerSpec.permissions[0]: it is "read", which is not an action`},
		{"an action with a blank", azure, "Microsoft.Compute/disks/read", "'Microsoft.Compute/disks/read '", "providerSpec.permissions[0]: it is"},
		{"a binding that is text", azure, "- role: Contributor", "- Contributor", `providerSpec.roleBindings: its type is string; write a mapping`},
		{"a binding with a scope", azure, "- role: Contributor", "- role: Contributor\n      scope: /x", "providerSpec.roleBindings[0].scope: a role binding has no such field, but role"},
		{"a binding without a role", azure, "- role: Contributor", "- role:", "providerSpec.roleBindings[0].role: it is missing"},
		{"a role with a blank at its end", azure, "role: Contributor", "role: 'Contributor '", `providerSpec.roleBindings[0].role: it is "Contributor ", which is not the name`},
		{"an identity of its own", azure, ours(""), ours("    azureClientID: c0000000-0000-4000-8000-000000000001\n    azureTenantID: c0000000-0000-4000-8000-000000000002\n" +
			"    azureSubscriptionID: c0000000-0000-4000-8000-000000000003\n    azureRegion: westeurope\n"), ""},
		{"an identity in part", azure, ours(""), ours("    azureRegion: westeurope\n"),
			"providerSpec: an identity needs all of azureClientID,"},
		{"an identity that is none", azure, ours(""), ours("    azureClientID: demo\n"), `providerSpec.azureClientID: it is "demo", which is not a GUID`},
	} {
		t.Run(string(tt.cloud)+" "+tt.name, func(t *testing.T) {
			text := map[credrequest.Cloud]string{gcp: validGCP, azure: validAzure}[tt.cloud]
			if !strings.Contains(text, tt.from) {
				t.Fatalf("nothing to change: %q", tt.from)
			}
			requests, _, err := credrequest.Read(tt.cloud, "a.yaml", []byte(strings.Replace(text, tt.from, tt.to, 1)), false)
			if tt.want == "" {
				if err != nil || len(requests) != 1 {
					t.Errorf("read %d requests: %v", len(requests), err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), in+tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error\n%v\nwant\n%s", err, in+tt.want)
			}
			if requests != nil {
				t.Error("something was handed out all the same")
			}
		})
	}
}

// An operator of OLM that brings its own identity needs no service accounts: somebody settled by hand what may use it.
func TestIdentityNeedsNoAccounts(t *testing.T) {
	text := strings.Replace(validGCP, "    kind: GCPProviderSpec\n", "    kind: GCPProviderSpec\n    serviceAccountEmail: "+email+"\n    audience: "+provider+"\n", 1)
	requests, _, err := credrequest.Read(credrequest.GCP, "a.yaml", []byte(strings.Replace(text, "  serviceAccountNames: [sa]\n", "", 1)), false)
	if err != nil || len(requests) != 1 || !requests[0].HasIdentity() {
		t.Errorf("read %+v: %v", requests, err)
	}
}

// What one cloud's reader refuses, another's leaves out: a directory may hold manifests that are wrong only for others.
func TestOthersMistakesAreTheirs(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(strings.Replace(validGCP, "[storage.buckets.get]", "no list", 1)), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "b.yaml"), []byte(validAzure), 0o600))
	requests, skipped, err := credrequest.ReadDir(credrequest.Azure, dir, false)
	check(t, err)
	if len(requests) != 1 || !slices.Equal(skipped, []string{"Ignoring CredentialsRequest own/a: it is for another cloud (GCPProviderSpec)"}) {
		t.Errorf("read %+v, skipped %q", requests, skipped)
	}
}
