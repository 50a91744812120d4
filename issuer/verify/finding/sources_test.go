package finding

import (
	"slices"
	"strings"
	"testing"
)

// sources are where it is written what relying parties answer whom no test asks.
func sources() map[Answer]string {
	const (
		lookup    = "https://login.microsoftonline.com/error?code=" // Microsoft's own list; it is asked for one code at a time
		validator = "https://github.com/hashicorp/cap/blob/main/jwt/jwt.go (validateAll)"
		goOIDC    = "https://github.com/coreos/go-oidc (oidc.go, verify.go and jwks.go)"
	)
	return map[Answer]string{
		{GCP, "invalid_grant"}: "https://www.rfc-editor.org/rfc/rfc6749#section-5.2",
		{GCP, "invalid_grant: Error connecting to the given credential's issuer."}:                            "https://cloud.google.com/iam/docs/troubleshooting-workload-identity-federation",
		{GCP, "invalid_grant: The audience in ID Token"}:                                                      "https://github.com/openshift-online/gcp-hcp-infra/pull/851 (in notes on it)",
		{GCP, "invalid_grant: The issuer in ID Token"}:                                                        "https://github.com/google-github-actions/auth/blob/main/docs/TROUBLESHOOTING.md",
		{GCP, "invalid_grant: ID Token issued at"}:                                                            "https://github.com/auth0/Auth0.Android/issues/285 (Firebase, which has it from the same service)",
		{GCP, "invalid_grant: The size of mapped attribute exceeds the 127 bytes limit."}:                     "https://github.com/google-github-actions/auth/blob/main/docs/TROUBLESHOOTING.md#subject-exceeds-the-127-byte-limit",
		{GCP, "`issuer` claim in OIDC discovery document does not match the issuer specified in the request"}: "https://github.com/siderolabs/talos/issues/13210",

		{Entra, "AADSTS90061"}:   "https://azure.github.io/azure-workload-identity/docs/troubleshooting.html",
		{Entra, "AADSTS50166"}:   "https://learn.microsoft.com/entra/identity-platform/reference-error-codes",
		{Entra, "AADSTS501661"}:  "https://docs.gitlab.com/ci/cloud_services/azure/",
		{Entra, "AADSTS700024"}:  "https://github.com/AzureAD/microsoft-authentication-library-for-dotnet/issues/4951",
		{Entra, "AADSTS700027"}:  "https://github.com/AzureAD/passport-azure-ad/issues/453",
		{Entra, "AADSTS7000272"}: "https://github.com/Azure/azure-workload-identity/issues/1232",
		{Entra, "AADSTS700211"}:  "https://github.com/Azure/azure-workload-identity/issues/1200",
		{Entra, "AADSTS700212"}:  lookup + "700212",
		{Entra, "AADSTS700213"}:  "https://github.com/Azure/azure-workload-identity/issues/1200",
		{Entra, "AADSTS7002138"}: "https://github.com/Azure/login/issues/517",

		{Vault, "invalid issuer (iss) claim"}:                                 validator,
		{Vault, "invalid audience (aud) claim"}:                               validator,
		{Vault, "invalid not before (nbf) claim"}:                             validator,
		{Vault, "invalid issued at (iat) claim"}:                              validator,
		{Vault, "token is expired"}:                                           validator,
		{Vault, "error checking oidc discovery URL"}:                          "https://github.com/hashicorp/vault-plugin-auth-jwt/blob/main/path_config.go (pathConfigWrite)",
		{Vault, "oidc: issuer did not match the issuer returned by provider"}: "https://github.com/coreos/go-oidc/blob/v2.3.0/oidc.go (NewProvider)",
		{Vault, "oidc: issuer URL provided to client"}:                        goOIDC,
		{Vault, "oidc: malformed jwt"}:                                        goOIDC,
		{Vault, "oidc: failed to decode keys"}:                                goOIDC,
		{Vault, "fetching keys"}:                                              goOIDC,
		{Vault, "failed to verify id token signature"}:                        goOIDC,
		{Vault, "no known key successfully validated the token signature"}:    "https://github.com/hashicorp/cap/blob/v0.12.0/jwt/keyset.go, asked in test/parties",
	}
}

// TestSources: each answer of GCP, Entra and Vault stands in one list, word for word and with its source, so that none is made up;
// the list has no other.
func TestSources(t *testing.T) {
	left := sources()
	for _, c := range Causes() {
		for _, a := range c.Answers {
			if source, listed := sources()[a]; !listed && slices.Contains([]string{GCP, Entra, Vault}, a.Party) {
				t.Errorf("%s: nobody knows where it is written that %s answers %q", c.Code, a.Party, a.Text)
			} else if listed && !strings.HasPrefix(source, "https://") {
				t.Errorf("%s answers %q: %q is not a source", a.Party, a.Text, source)
			}
			delete(left, a)
		}
	}
	for a := range left {
		t.Errorf("no cause has the answer %q of %s any more", a.Text, a.Party)
	}
}
