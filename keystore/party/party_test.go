package party

import (
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	oneUpload   = "gcp-upload:projects/123456789012/locations/global/workloadIdentityPools/prod-a/providers/prod-a"
	newerUpload = "newer-upload:org/1" // of a kind that this version does not know
)

func TestHowLongKeysAreKept(t *testing.T) {
	for name, want := range map[string]struct {
		keeps time.Duration
		why   string
	}{
		"aws":            {time.Hour, "nothing is documented"},
		"gcp":            {time.Hour, "nothing is documented"},
		"entra":          {24 * time.Hour, "nothing is documented"},
		"vault":          {0, "go-oidc v3 fetches for a kid that it does not know"},
		"kube-apiserver": {0, "go-oidc v2 keeps its copy for max-age, which the gate counts anyway"},
		"snowflake":      {24 * time.Hour, "nothing is known of it"},
		"AWS":            {24 * time.Hour, "names are compared byte for byte"},
	} {
		if got := Keeps(name); got != want.keeps {
			t.Errorf("%q is counted on to keep keys for %v, want %v: %s", name, got, want.keeps, want.why)
		}
	}
	if got, known := Common(), []string{"aws", "entra", "gcp", "kube-apiserver", "vault"}; !slices.Equal(got, known) {
		t.Errorf("common are %q", got)
	}
	if UploadKeeps(oneUpload) != time.Hour || UploadKeeps(newerUpload) != 24*time.Hour {
		t.Errorf("uploads count for %v and %v", UploadKeeps(oneUpload), UploadKeeps(newerUpload))
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		alg     string
		parties []string
		refused []string
	}{
		{"RS256", []string{"aws", "gcp", "entra", "vault", "kube-apiserver", "my-app", oneUpload}, nil},
		{"ES256", []string{"aws", "gcp", oneUpload, "vault", "kube-apiserver", "my-app"}, nil},
		{"ES256", []string{"gcp", "entra"}, []string{"entra"}},
		{"ES384", []string{"aws", "vault", "kube-apiserver", "my-app"}, nil},
		{"ES384", []string{"entra", "gcp"}, []string{"entra", "gcp"}},
		{"ES512", []string{"aws", "gcp"}, []string{"gcp"}},
		{"ES512", []string{oneUpload}, []string{"gcp"}},
		{"ES512", []string{"gcp", oneUpload}, []string{"gcp"}},
		{"ES512", nil, nil},
	} {
		got := Refusals(tt.parties, "key-1", tt.alg)
		if len(got) != len(tt.refused) {
			t.Errorf("%s, %v: %v; want refusals by %v", tt.alg, tt.parties, got, tt.refused)
			continue
		}
		for i, by := range tt.refused {
			if !strings.HasPrefix(got[i].Error(), "key key-1 is for "+tt.alg+", and the relying party "+by+" takes only tokens signed with RS256") {
				t.Errorf("%s, %v: %v; want a refusal by %s", tt.alg, tt.parties, got[i], by)
			}
		}
	}
}

func TestPartiesHaveOneForm(t *testing.T) {
	for name, refused := range map[string]string{
		"aws":       "",
		"my-app":    "",
		oneUpload:   "",
		newerUpload: "",
		"salesforce-upload:https://example.com/x?y":                                                     "",
		"gcp-upload:projects/my-project/locations/global/workloadIdentityPools/prod-a/providers/prod-a": "write it with the project's number",
		"gcp-upload:projects/123/locations/global/workloadIdentityPools/prod-a":                         "is not projects/NUMBER/",
		"gcp-upload:projects/123/locations/global/workloadIdentityPools/prod-a/providers/x":             "POOL and PROVIDER are 4 to 32 of a-z, 0-9 and hyphens",
		"gcp-upload:projects/123/locations/global/workloadIdentityPools/Prod-A/providers/prod-a":        "is not projects/NUMBER/",
		"gcp-upload:projects/123/locations/global/workloadIdentityPools/prod-a/providers/gcp-prod":      "is not projects/NUMBER/",
		"vault-upload:vault.example.com:8200/auth/team/jwt":                                             "",
		"vault-upload:https://vault.example.com/auth/jwt":                                               "HOST[:PORT]/auth/PATH",
		"vault-upload:vault.example.com/auth/../sys":                                                    "HOST[:PORT]/auth/PATH",
		"file-upload:prod-a.json":              "",
		"file-upload:../prod-a.json":           "in the directory of sync-keys --files",
		"openai-upload:wip_123/../../projects": "ID of a workload identity provider",
		"anthropic-upload:rule_1?x":            "ID of a federation issuer",
		"databricks-upload:accounts.cloud.databricks.com/accounts/1-2/federationPolicies/k":          "",
		"databricks-upload:accounts.cloud.databricks.com/accounts/1-2/servicePrincipals/7/secrets/k": "federationPolicies/ID",
		"gcp-upload:": "KIND-upload:PLACE",
		"Gcp-upload:projects/123/locations/global/workloadIdentityPools/prod-a/providers/prod-a": "KIND-upload:PLACE",
		"a-upload:two words":                   "KIND-upload:PLACE",
		"a-upload:\x1b[2J":                     "KIND-upload:PLACE",
		"a-upload:" + strings.Repeat("x", 600): "KIND-upload:PLACE",
		"gcp:projects/123":                     "neither a name",
		"":                                     "neither a name",
	} {
		err := Check(name)
		if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused) || strings.ContainsAny(err.Error(), "\n\x1b")) {
			t.Errorf("%q: %v; want %q", name, err, refused)
		}
	}
}
