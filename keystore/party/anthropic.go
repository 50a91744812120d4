package party

import "time"

const (
	anthropicPage1 = "https://platform.claude.com/docs/en/manage-claude/wif-reference"
	anthropicPage2 = "https://github.com/anthropics/anthropic-sdk-go/blob/a45273ba392fc9868c6c6961f33c21387c1e4314/organizationfederationissuer.go"
)

// anthropic is a federation issuer of an organization.
func anthropic() Party {
	return Party{
		Name: "anthropic", Title: "Anthropic", Called: []string{"claude"}, Keeps: 15 * time.Minute,
		Given: []Fact{
			{
				Says: "discovery, a JWKS URL, or keys inline: `keypost sync-keys`",
				Page: "https://platform.claude.com/docs/en/api/http/organization/federation/issuers/create",
				Quote: "takes one of three shapes selected by type: discovery (resolve keys through OIDC discovery), " +
					"explicit_url (fetch keys from a fixed JWKS URL), or inline (provide a static key set).",
			},
		},
		Keeping: []Fact{
			{
				Says: "15 minutes",
				Page: anthropicPage1,
				Quote: "publish a new signing key in the JWKS at least 15 minutes before your identity provider starts " +
					"signing tokens with it, and keep the superseded key in the JWKS until tokens it signed have expired.",
			},
		},
		Signed: Fact{
			Says: "all of a key set's",
			Page: anthropicPage1,
			Quote: "Only asymmetric algorithms (RSA and ECDSA families: ES256, ES384, ES512, RS256, RS384, RS512, " +
				"PS256, PS384, PS512) are accepted.",
		},
		Audience: Fact{
			Says:  "one, of the federation rule",
			Page:  anthropicPage1,
			Quote: "The JWT aud claim must contain this exact string.",
		},
		Limits: []Fact{
			{
				Says: "a token lives for at most 1 h, or up to 49 h where that is set",
				Page: anthropicPage2,
				Quote: "Maximum allowed iat→exp spread for assertions from this issuer (1-176400 seconds, i.e. up to 49h). " +
					"Defaults to 3600 (1h).",
			},
			{
				Says: "a token with `jti`, as Kubernetes makes them, works once",
				Page: anthropicPage2,
				Quote: "Whether the jwt-bearer exchange enforces JTI single-use (replay protection) for tokens from this " +
					"issuer. Defaults to true.",
			},
			{
				Says: "public addresses",
				Page: anthropicPage1,
				Quote: "Must be a public DNS host name for your OIDC provider. Must resolve to public IP addresses; IP " +
					"literals are not accepted.",
			},
		},
		Fetch: Fact{
			Says: "`poll_status.last_fetched_at` of the issuer; give it to issuer observe with `--fetched anthropic=TIME` after a key " +
				"is published: promotion then waits for a later fetch",
			Page:  anthropicPage2,
			Quote: "When the last successful fetch completed.",
		},
		Ends: []Fact{
			{
				Says:  "archiving the issuer",
				Page:  anthropicPage2,
				Quote: "If set, all rules referencing this issuer reject token exchange.",
			},
		},
		Refusals: []Fact{
			{
				Says: "whatever the cause",
				Page: anthropicPage1,
				Quote: "All invalid_grant failures return HTTP 400; the specific cause is logged server-side only and not " +
					"exposed in the response.",
			},
		},
		ends: []string{
			"anthropic until {until}; poll_status of the federation issuer says when it last fetched; archiving " +
				"the issuer ends it at once",
		},
	}
}
