package party

const fulcioPage = "https://github.com/sigstore/fulcio/blob/main/docs/oidc.md"

// fulcio is a Fulcio of your own, with the issuer among its oidc-issuers.
func fulcio() Party {
	return Party{
		Name: "fulcio", Title: "Sigstore Fulcio", OnMiss: true, Called: []string{"sigstore"},
		Given: []Fact{
			{
				Says:  "discovery",
				Page:  "https://github.com/sigstore/fulcio/blob/eb10c98e186f1d8e78dd60a257d8897f66d5147a/docs/new-idp-requirements.md",
				Quote: "MUST host a /.well-known/openid-configuration file that conforms to the OpenID standard for this file.",
			},
		},
		Keeping: []Fact{
			{
				Says: "a new key is fetched at its first token; a key that left is trusted until a token comes that no kept key verifies, " +
					"a forged one too",
				Page: "https://github.com/coreos/go-oidc/blob/v3.21.0/oidc/jwks.go",
				Quote: "The returned KeySet is a long lived verifier that caches keys in memory, re-fetching from the " +
					"remote URL when it encounters a key ID it hasn't seen.",
			},
		},
		Signed: Fact{Says: "those that the discovery document lists"},
		Audience: Fact{
			Says:  "`client-id` of the entry; `sigstore` as a rule",
			Page:  fulcioPage,
			Quote: "Audience (aud), set to \"sigstore\"",
		},
		Limits: []Fact{
			{
				Says: "the public instance takes no issuer of a single company",
				Page: fulcioPage,
			},
		},
		Fetch: Fact{Says: "not shown"},
		Ends: []Fact{
			{Says: "a restart, or a change of its configuration"},
		},
		Refusals: []Fact{
			{
				Says:  "whatever the cause; Fulcio's log has more",
				Page:  "https://github.com/sigstore/fulcio/blob/eb10c98e186f1d8e78dd60a257d8897f66d5147a/pkg/server/error.go",
				Quote: "There was an error processing the identity token",
			},
		},
		Tried: "test/parties/run -run TestFulcio",
		ends: []string{
			"fulcio without end, " + onlyUnknown + " {until}, restart it",
		},
	}
}
