package credrequest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/credrequest"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestReadDir(t *testing.T) {
	requests, skipped, err := credrequest.ReadDir(credrequest.AWS, "testdata/requests", false)
	check(t, err)
	want := []credrequest.Request{
		{
			File: "0000_10_storage.yaml", Namespace: "openshift-cloud-credential-operator", Name: "demo-storage",
			SecretNamespace: "demo-storage", SecretName: "demo-storage-creds", ServiceAccounts: []string{"storage-operator", "storage-node"},
			AWS: credrequest.AWSSpec{Statements: []credrequest.Statement{
				{Effect: "Allow", Action: []string{"ec2:CreateVolume", "ec2:DeleteVolume"}, Resource: "*"},
				{Effect: "Allow", Action: []string{"kms:CreateGrant"}, Resource: "arn:aws:kms:*:111122223333:key/*", Condition: map[string]map[string]json.RawMessage{
					"StringLike":      {"aws:RequestTag/a<b>&c": json.RawMessage(`["one","two*"]`)},
					"Bool":            {"kms:GrantIsForAWSResource": json.RawMessage("true")},
					"NumericLessThan": {"s3:max-keys": json.RawMessage("10"), "s3:ratio": json.RawMessage("0.5")},
				}},
				{Effect: "Deny", Action: []string{"s3:DeleteObject"}, Resource: "arn:aws:s3:::precious/*"},
			}},
		},
		{
			File: "0000_20_operator.yml", Namespace: "demo-operators", Name: "demo-operator",
			SecretNamespace: "demo-operators", SecretName: "demo-operator-creds",
			CloudTokenPath: "/var/run/secrets/cloud/token",
			AWS:            credrequest.AWSSpec{RoleARN: "arn:aws-us-gov:iam::111122223333:role/path/by-hand"},
		},
	}
	if !reflect.DeepEqual(requests, want) {
		t.Errorf("read\n%#v\nwant\n%#v", requests, want)
	}
	wantSkipped := []string{
		"Ignoring CredentialsRequest openshift-cloud-credential-operator/demo-storage-gcp: it is for another cloud (GCPProviderSpec)",
		"Ignoring document 1 of 0000_30_other.yaml: it is a ConfigMap of v1, not a CredentialsRequest of cloudcredential.openshift.io/v1",
		"Ignoring document 2 of 0000_30_other.yaml: it is a CredentialsRequest of example.com/v1, not a CredentialsRequest of cloudcredential.openshift.io/v1",
		"Ignoring CredentialsRequest openshift-cloud-credential-operator/demo-gone as it is marked for in-cluster deletion",
		"Ignoring README.md: only files whose names end in .yaml or .yml are read",
	}
	if !slices.Equal(skipped, wantSkipped) {
		t.Errorf("skipped\n%s\nwant\n%s", strings.Join(skipped, "\n"), strings.Join(wantSkipped, "\n"))
	}
}

// The bytes are ccoctl's: what it stored in an account and what is stored now then differ only if the permissions do.
func TestPolicyIsCcoctls(t *testing.T) {
	requests, _, err := credrequest.ReadDir(credrequest.AWS, "testdata/requests", false)
	check(t, err)
	for i, want := range []string{
		`{"Version":"2012-10-17","Statement":[` +
			`{"Effect":"Allow","Action":["ec2:CreateVolume","ec2:DeleteVolume"],"Resource":"*"},` +
			`{"Effect":"Allow","Action":["kms:CreateGrant"],"Resource":"arn:aws:kms:*:111122223333:key/*","Condition":{` +
			`"Bool":{"kms:GrantIsForAWSResource":true},"NumericLessThan":{"s3:max-keys":10,"s3:ratio":0.5},` +
			`"StringLike":{"aws:RequestTag/a\u003cb\u003e\u0026c":["one","two*"]}}},` +
			`{"Effect":"Deny","Action":["s3:DeleteObject"],"Resource":"arn:aws:s3:::precious/*"}]}`,
		`{"Version":"2012-10-17","Statement":[]}`,
	} {
		got, err := credrequest.Policy(requests[i].AWS.Statements)
		check(t, err)
		if string(got) != want {
			t.Errorf("policy of %s\n%s\nwant\n%s", requests[i], got, want)
		}
	}
}

// Annotations and gates decide as in the cluster-version operator; a gate decides nothing unless the gates are known.
func TestAnnotations(t *testing.T) {
	const preview, release = true, false
	const without, off = "with tech-preview annotation", "as it is marked for in-cluster deletion"
	for _, tt := range []struct {
		annotation string
		preview    bool
		skipped    string // how its line ends
	}{
		{`release.openshift.io/delete: "true"`, preview, off},
		{`release.openshift.io/delete: "false"`, preview, ""},
		{`release.openshift.io/delete: true`, preview, off},
		{`release.openshift.io/delete: false`, preview, ""},
		{`release.openshift.io/feature-set: TechPreviewNoUpgrade`, release, without},
		{`release.openshift.io/feature-set: TechPreviewNoUpgrade`, preview, ""},
		{`release.openshift.io/feature-set: CustomNoUpgrade,TechPreviewNoUpgrade`, release, without},
		{`release.openshift.io/feature-set: CustomNoUpgrade,TechPreviewNoUpgrade`, preview, ""},
		{`release.openshift.io/feature-set: "CustomNoUpgrade, TechPreviewNoUpgrade"`, preview, ""},
		{`release.openshift.io/feature-set: Default,TechPreviewNoUpgrade`, release, ""},
		{`release.openshift.io/feature-set: CustomNoUpgrade`, preview, "with tech-preview value CustomNoUpgrade"},
		{`release.openshift.io/feature-set: NotTechPreviewNoUpgrade`, preview, "with tech-preview value NotTechPreviewNoUpgrade"},
		{`release.openshift.io/feature-set: ""`, release, ""},
		{`release.openshift.io/feature-gate: TechPreviewNoUpgrade`, release, without},
		{`release.openshift.io/feature-gate: TechPreviewNoUpgrade`, preview, ""},
		{`release.openshift.io/feature-gate: GateA`, release, ""},
		{`release.openshift.io/feature-gate: "GateA, GateB"`, release, ""},
		{`release.openshift.io/feature-gate: GateA,GateB`, release, ""},
		{`release.openshift.io/feature-gate: -GateA`, release, ""},
		{`capability.openshift.io/name: Storage`, release, ""},
	} {
		manifest := strings.Replace(valid, "metadata:\n", "metadata:\n  annotations:\n    "+tt.annotation+"\n", 1)
		requests, skipped, err := credrequest.Read(credrequest.AWS, "a.yaml", []byte(manifest), tt.preview)
		check(t, err)
		switch {
		case tt.skipped == "" && (len(requests) != 1 || len(skipped) != 0):
			t.Errorf("%s with tech preview %t is left out: %v", tt.annotation, tt.preview, skipped)
		case tt.skipped != "" && (len(requests) != 0 || len(skipped) != 1 || !strings.HasPrefix(skipped[0], "Ignoring CredentialsRequest own/a") ||
			!strings.HasSuffix(skipped[0], tt.skipped)):
			t.Errorf("%s with tech preview %t: read %v, skipped %q, want %q", tt.annotation, tt.preview, requests, skipped, tt.skipped)
		}
	}
}

const valid = `apiVersion: cloudcredential.openshift.io/v1
kind: CredentialsRequest
metadata:
  name: a
  namespace: own
spec:
  providerSpec:
    kind: AWSProviderSpec
    statementEntries:
    - effect: Allow
      action: [s3:Get*]
      resource: "*"
      policyCondition: {StringEquals: {aws:k: v}}
  secretRef: {name: creds, namespace: ns}
  serviceAccountNames: [sa]
`

// A manifest with one thing changed is read, or refused in a sentence that leads to that thing.
func TestFields(t *testing.T) {
	const at = "document 1 of a.yaml"
	const in = at + ", CredentialsRequest own/a: "
	for _, tt := range []struct {
		name, from, to string
		want           string // empty: it is read
	}{
		{"as it is", "", "", ""},
		{"more fields than known", "spec:\n", "status: {provisioned: true}\nspec:\n  later: {x: 1}\n", ""},
		{"no namespace of its own", "  namespace: own\n", "", ""},
		{"one action without a list", "[s3:Get*]", "s3:GetObject", ""},
		{"every action", "[s3:Get*]", "'*'", ""},
		{"a name with dots", "name: creds", "name: my.creds-1", ""},
		{"a condition of numbers, truth and lists", "{aws:k: v}", "{a: 1, b: true, c: [x, 2, false, 18446744073709551615], d: 1.5, e: -1}", ""},
		{"no condition", "      policyCondition: {StringEquals: {aws:k: v}}\n", "", ""},
		{"no service account and a role", "  serviceAccountNames: [sa]\n", "", in + "spec.serviceAccountNames: it is empty; name the service accounts in ns that may assume the role"},
		{"empty service accounts", "[sa]", "[]", in + "spec.serviceAccountNames: it is empty"},
		{"one service account without a list", "[sa]", "sa", in + `spec.serviceAccountNames: its type is string; write a list`},
		{"a nameless service account", "[sa]", "[sa, '']", in + "spec.serviceAccountNames[1]: it is missing"},
		{"a service account with a wildcard", "[sa]", "['*']", in + `spec.serviceAccountNames[0]: it is "*", which is not a name that Kubernetes allows, of at most 253 characters`},
		{"a name too long", "[sa]", "[" + strings.Repeat("a", 254) + "]", in + "spec.serviceAccountNames[0]: it is \"" + strings.Repeat("a", 200) + "…\", which is not a name that Kubernetes allows, of at most 253 characters"},
		{"no provider", "  providerSpec:\n    kind: AWSProviderSpec\n", "  other:\n", in + "spec.providerSpec.kind: it is missing; a request for AWS has AWSProviderSpec"},
		{"a provider misspelt", "AWSProviderSpec", "AwsProviderSpec", in + "spec.providerSpec.kind: it is AwsProviderSpec; write AWSProviderSpec"},
		{"a provider that is a list", "    kind: AWSProviderSpec\n    statementEntries:\n", "", in + "spec.providerSpec: its type is array; write a mapping"},
		{"no statement", "    - effect: Allow\n      action: [s3:Get*]\n      resource: \"*\"\n      policyCondition: {StringEquals: {aws:k: v}}\n", "",
			in + "spec.providerSpec.statementEntries: it is empty; AWS refuses a policy without a statement"},
		{"a misspelt condition", "policyCondition", "condition", in + "spec.providerSpec.statementEntries[0].condition: a statement has no such field"},
		{"no effect", "effect: Allow", "effect:", in + `spec.providerSpec.statementEntries[0].effect: it is ""; write Allow or Deny`},
		{"another effect", "Allow", "allow", in + `spec.providerSpec.statementEntries[0].effect: it is "allow"; write Allow or Deny`},
		{"no action", "[s3:Get*]", "[]", in + "spec.providerSpec.statementEntries[0].action: it is empty; name the actions as a list"},
		{"an empty action", "[s3:Get*]", "['']", in + "spec.providerSpec.statementEntries[0].action[0]: it is missing"},
		{"two actions in one text", "[s3:Get*]", "'s3:Get*, s3:Put*'", in + `spec.providerSpec.statementEntries[0].action[0]: it is "s3:Get*, s3:Put*", which is not an action (SERVICE:NAME)`},
		{"an action without a service", "[s3:Get*]", "[s3:Get*, GetObject]", in + `spec.providerSpec.statementEntries[0].action[1]: it is "GetObject", which is not an action`},
		{"an action that is a mapping", "[s3:Get*]", "{s3: Get}", in + "spec.providerSpec.statementEntries[0].action: its type is object; write a list"},
		{"several resources", `resource: "*"`, `resource: ["*"]`, in + "spec.providerSpec.statementEntries[0].resource: its type is array; write text"},
		{"no resource", `resource: "*"`, "resource:", in + `spec.providerSpec.statementEntries[0].resource: it is ""; write one ARN, or *`},
		{"a resource that is none", `resource: "*"`, "resource: bucket", in + `spec.providerSpec.statementEntries[0].resource: it is "bucket"; write one ARN, or *`},
		{"a condition without keys", "{aws:k: v}", "{}", in + "spec.providerSpec.statementEntries[0].policyCondition.StringEquals: it is empty"},
		{"a condition without a value", "{aws:k: v}", "{aws:k: }", in + "spec.providerSpec.statementEntries[0].policyCondition.StringEquals.aws:k: write text, a number"},
		{"a mapping in a condition", "{aws:k: v}", "{aws:k: {v: w}}", in + "spec.providerSpec.statementEntries[0].policyCondition.StringEquals.aws:k: write text, a number"},
		{"a list in a list", "{aws:k: v}", "{aws:k: [[v]]}", in + "spec.providerSpec.statementEntries[0].policyCondition.StringEquals.aws:k: write text, a number"},
		{"no number", "{aws:k: v}", "{aws:k: .nan}", "a.yaml: document 1 cannot be read: it is not valid YAML: "},
		{"a key that is a number", "{aws:k: v}", "{1: v}", ""},
		{"no secret", "  secretRef: {name: creds, namespace: ns}\n", "", in + "spec.secretRef.namespace: it is missing"},
		{"a secret that climbs", "name: creds", "name: ../../creds", in + `spec.secretRef.name: it is "../../creds", which is not a name that Kubernetes allows, of at most 253 characters`},
		{"a namespace with a dot", "namespace: ns", "namespace: n.s", in + `spec.secretRef.namespace: it is "n.s", which is not the name of a namespace`},
		{"a name that is a number", "name: creds", "name: 1", in + "spec.secretRef.name: its type is number; write text, in quotes if need be"},
		{"an annotation that is a number", "metadata:\n", "metadata:\n  annotations: {release.openshift.io/delete: 1}\n",
			in + "metadata.annotations.release.openshift.io/delete: write text, in quotes if need be"},
		{"a statement as IAM writes it", "effect: Allow\n      action:", "Effect: Allow\n      Action:", ""},
		{"an effect in two cases", "effect: Allow", "effect: Allow\n      Effect: Deny", in + "spec.providerSpec.statementEntries[0].effect: a statement has no such field, or has it already"},
		{"an effect with a blank", "effect: Allow", "effect: 'Allow '", in + `spec.providerSpec.statementEntries[0].effect: it is "Allow "; write Allow or Deny`},
		{"a merge", "effect: Allow\n", "<<: {effect: Allow}\n", ""},
		{"a merge over a key of its own", "effect: Allow\n", "effect: Allow\n      <<: {effect: Deny}\n", "a.yaml: document 1 cannot be read: it is not valid YAML: "},
		{"an alias", "{aws:k: v}", "{aws:k: &v x, aws:l: *v}", "a.yaml: document 1 cannot be read: it has a YAML anchor (&name); write the value in each place"},
		{"a separator of YAML that ccoctl does not know", "serviceAccountNames: [sa]\n", "serviceAccountNames: [sa]\n...\nx: 1\n", "a.yaml: document 1 cannot be read: it holds more than one YAML document"},
		{"one key twice, deep down", "effect: Allow", "effect: Allow\n      effect: Deny", `a.yaml: document 1 cannot be read: it is not valid YAML: line 11: key "effect" already set in map`},
		{"the provider's own version", "    kind: AWSProviderSpec", "    apiVersion: cloudcredential.openshift.io/v1\n    kind: AWSProviderSpec", ""},
		{"another version of the provider", "    kind: AWSProviderSpec", "    apiVersion: cloudcredential.openshift.io/v2\n    kind: AWSProviderSpec",
			in + `spec.providerSpec.apiVersion: it is "cloudcredential.openshift.io/v2", which is not a version that this program knows`},
		{"annotations that are none", "metadata:\n", "metadata:\n  annotations: [x]\n", at + ": metadata.annotations: its type is array; write a mapping"},
		{"no name", "  name: a\n", "", at + ": metadata.name: it is missing"},
		{"a name that a terminal obeys", "  name: a\n", "  name: \"\\e[2J\"\n", at + `: metadata.name: it is "\x1b[2J", which is not a name`},
		{"a token path that goes on", "spec:\n", "spec:\n  cloudTokenPath: \"/t\\nrole_arn = x\"\n", in + `spec.cloudTokenPath: it is "/t\nrole_arn = x", which is not the absolute path of a file`},
		{"a relative token path", "spec:\n", "spec:\n  cloudTokenPath: token\n", in + `spec.cloudTokenPath: it is "token", which is not the absolute path`},
		{"a role that is none", "    kind: AWSProviderSpec\n", "    kind: AWSProviderSpec\n    stsIAMRoleARN: by-hand\n",
			in + `spec.providerSpec.stsIAMRoleARN: it is "by-hand", which is not the ARN of an IAM role (arn:aws:iam::ACCOUNT:role/NAME)`},
		{"a list of manifests", "kind: CredentialsRequest", "kind: List", at + ": it is a List: write each item that it holds as a document of its own"},
		{"a later version", "io/v1\n", "io/v2\n", at + `: apiVersion: it is "cloudcredential.openshift.io/v2", which is not a version that this program knows; it knows cloudcredential.openshift.io/v1`},
		{"no manifest", "", "- x\n---\n", at + ": it is not a manifest"},
		{"one key twice", "spec:\n", "spec: {}\nspec:\n", "a.yaml: document 1 cannot be read: "},
		{"no YAML", "", "\t:", "a.yaml: document 1 cannot be read: "},
		{"no YAML further down", "", "{}\n---\n{}\n---\n]", "a.yaml: document 3 cannot be read: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(valid, tt.from) {
				t.Fatalf("nothing to change: %q", tt.from)
			}
			requests, _, err := credrequest.Read(credrequest.AWS, "a.yaml", []byte(strings.Replace(valid, tt.from, tt.to, 1)), false)
			if tt.want == "" {
				if err != nil || len(requests) != 1 {
					t.Errorf("read %d requests: %v", len(requests), err)
				}
				return
			}
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error\n%v\nwant\n%s", err, tt.want)
			}
			if requests != nil {
				t.Error("something was handed out all the same")
			}
		})
	}
}

// Every file is read to its end before anything is handed out, and everything that is wrong is told at once.
func TestReadDirRefusesTheLot(t *testing.T) {
	named := func(namespace, name string) string {
		return strings.Replace(valid, "{name: creds, namespace: ns}", "{name: "+name+", namespace: "+namespace+"}", 1)
	}
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  []string // what the lines of the error begin with
	}{
		{"one broken file of three", map[string]string{"a.yaml": valid, "b.yaml": "kind: [", "c.yaml": named("ns", "c")},
			[]string{"b.yaml: document 1 cannot be read"}},
		{"two broken documents", map[string]string{"a.yaml": strings.Replace(valid, "[sa]", "[]", 1) + "---\n" + valid, "b.yml": strings.Replace(valid, "Allow", "Let", 1)},
			[]string{"document 1 of a.yaml, CredentialsRequest own/a: spec.serviceAccountNames", "document 1 of b.yml, CredentialsRequest own/a: spec.providerSpec.statementEntries[0].effect"}},
		{"one Secret asked for twice", map[string]string{"a.yaml": valid, "b.yaml": strings.Replace(valid, "name: a", "name: b", 1)},
			[]string{"a.yaml (own/a) and b.yaml (own/b) ask for Secrets with one manifest name, ns/creds and ns/creds: remove or rename one"}},
		{"one Secret asked for twice in one file", map[string]string{"a.yaml": valid + "---\n" + valid}, []string{"a.yaml (own/a) and a.yaml (own/a) ask for"}},
		{"two Secrets whose manifests have one name", map[string]string{"a.yaml": named("x", "y-z"), "b.yaml": named("x-y", "z")},
			[]string{"a.yaml (own/a) and b.yaml (own/a) ask for Secrets with one manifest name, x/y-z and x-y/z"}},
		{"a flood", map[string]string{"a.yaml": strings.Repeat("#", 1<<20+1)}, []string{"DIR/a.yaml is larger than 1048576 bytes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			requests, skipped, err := credrequest.ReadDir(credrequest.AWS, dir, false)
			if err == nil || requests != nil || skipped != nil {
				t.Fatalf("read %v, %v: %v", requests, skipped, err)
			}
			lines := strings.Split(strings.ReplaceAll(err.Error(), dir, "DIR"), "\n")
			if !slices.EqualFunc(lines, tt.want, strings.HasPrefix) {
				t.Errorf("error\n%v\nwant\n%s", err, strings.Join(tt.want, "\n"))
			}
		})
	}
}

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
