package party

import "time"

const (
	gcpPage1 = "https://github.com/googleapis/google-api-go-client/blob/v0.305.0/iam/v1/iam-gen.go"
	gcpPage2 = "https://cloud.google.com/iam/docs/workload-identity-federation-with-other-providers"
)

// gcp is Google's Security Token Service, where it fetches; see [Upload] for a provider with a JWKS of its own.
func gcp() Party {
	return Party{
		Name: "gcp", Title: "Google Cloud workload identity federation", Called: []string{"google"}, Keeps: time.Hour, Takes: []string{"RS256", "ES256"},
		Given: []Fact{
			{
				Says: "discovery",
				Page: gcpPage1,
				Quote: "If not set, the jwks_uri from the discovery document(fetched from the .well-known path of the " +
					"issuer_uri) will be used.",
			},
			{Says: "a JWKS that is uploaded: `keypost sync-keys`"},
		},
		Keeping: []Fact{
			{Says: "1 h is an allowance: Google documents nothing"},
		},
		Signed: Fact{
			Says: "RS256 and ES256: P-384, P-521 and Ed25519 are refused at upload",
			Page: gcpPage2,
		},
		Audience: Fact{
			Says:  "at most 10 of at most 256 characters; without any, the provider's full name",
			Page:  gcpPage1,
			Quote: "Each audience may be at most 256 characters. A maximum of 10 audiences may be configured.",
		},
		Limits: []Fact{
			{
				Says:  "a JWK has only the members that Google lists",
				Page:  gcpPage1,
				Quote: "The JWK must use following format and include only the following fields",
			},
			{
				Says:  "a certificate that everybody trusts",
				Page:  gcpPage2,
				Quote: "Endpoints that are secured with self-signed certificates aren't supported by Google Cloud.",
			},
		},
		Fetch: Fact{Says: "not shown; an upload can be read back"},
		Ends: []Fact{
			{Says: "disabling the provider"},
			{
				Says:  "access tokens that were given out live for up to 1 h",
				Page:  "https://docs.cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateAccessToken",
				Quote: "By default, the maximum allowed value is 1 hour.",
			},
		},
		ends: []string{
			"gcp until {until}, and with an uploaded JWKS until another one is (--jwk-json-path FILE); to end it at once:",
			"  gcloud iam workload-identity-pools providers update-oidc PROVIDER --workload-identity-pool POOL " +
				"--location global --disabled",
		},
		granted: []string{"gcp access tokens that it has given out, for up to 1h: disable the service accounts to end them"},
	}
}
