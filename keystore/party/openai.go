package party

import "time"

const (
	openaiPage1 = "https://developers.openai.com/api/reference/workload-identity-federation"
	openaiPage2 = "https://developers.openai.com/api/docs/guides/workload-identity-federation"
)

// openai is a workload identity provider of an organization.
func openai() Party {
	return Party{
		Name: "openai", Title: "OpenAI", Keeps: 10 * time.Minute,
		Given: []Fact{
			{
				Says:  "an uploaded JWKS (`keypost sync-keys`); discovery only of the issuers that OpenAI documents",
				Page:  openaiPage1,
				Quote: "Arbitrary OIDC issuer endpoints other than the providers documented in the setup guides aren't supported yet.",
			},
		},
		Keeping: []Fact{
			{
				Says:  "10 minutes where it fetches",
				Page:  openaiPage2,
				Quote: "Discovery documents and remote JWKS payloads are cached for 600 seconds.",
			},
			{
				Says: "an unknown key is fetched at once",
				Page: openaiPage2,
				Quote: "If a token kid isn't found in the cached JWKS, OpenAI refreshes the JWKS and tries the lookup again " +
					"before rejecting the token.",
			},
		},
		Signed: Fact{Says: "nothing is documented"},
		Audience: Fact{
			Says:  "one, of the provider",
			Page:  openaiPage2,
			Quote: "The expected aud claim on the external subject token.",
		},
		Limits: []Fact{
			{
				Says:  "50 providers in an organization",
				Page:  openaiPage1,
				Quote: "Each organization can create at most 50 Workload Identity Providers.",
			},
		},
		Fetch: Fact{Says: "not shown"},
		Ends: []Fact{
			{
				Says:  "an update of the uploaded JWKS, at once",
				Page:  openaiPage2,
				Quote: "After a provider update is saved and available to token exchange, new exchanges use the saved JWKS.",
			},
		},
		Refusals: []Fact{
			{
				Says: "whatever the cause",
				Page: openaiPage1,
				Quote: "the signature is invalid, the issuer or audience doesn't match, a required claim is missing, the " +
					"token is expired, or no JWKS key matches the token kid.",
			},
		},
	}
}
