package party

const databricksPage = "https://databricks.github.io/sdk-js/api/interfaces/_databricks_sdk-authentication.v1.OidcFederationPolicy.html"

// databricks is a federation policy of an account or a service principal.
func databricks() Party {
	return Party{
		Name: "databricks", Title: "Databricks", Keeps: unknown, Takes: []string{"RS256", "ES256"},
		Given: []Fact{
			{
				Says: "discovery, `jwks_uri` or `jwks_json`: `keypost sync-keys`",
				Page: databricksPage,
				Quote: "If jwks_uri and jwks_json are both unspecified (recommended), automatically fetches the public keys " +
					"from your issuer’s well known endpoint.",
			},
		},
		Keeping: []Fact{
			{Says: "24 h is an allowance: nothing is documented"},
		},
		Signed: Fact{
			Says:  "RS256 and ES256",
			Page:  "https://docs.databricks.com/en/dev-tools/auth/oauth-federation-howto.html",
			Quote: "Tokens must be valid JWTs that are signed using the RS256 or ES256 algorithms.",
		},
		Audience: Fact{
			Says:  "a list; without one, the account's ID",
			Page:  databricksPage,
			Quote: "If audiences is unspecified, defaults to your account id.",
		},
		Limits: []Fact{
			{
				Says:  "20 policies for a service principal",
				Page:  "https://docs.databricks.com/aws/en/dev-tools/auth/oauth-federation-policy",
				Quote: "You can create a maximum of 20 service principal federation policies per Databricks service principal.",
			},
		},
		Fetch: Fact{Says: "not shown; `jwks_json` can be read back"},
		Ends: []Fact{
			{Says: "nothing is documented"},
		},
	}
}
