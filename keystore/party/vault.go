package party

const (
	vaultPage1 = "https://developer.hashicorp.com/vault/api-docs/auth/jwt"
	vaultPage2 = "https://github.com/hashicorp/cap/blob/v0.12.0/jwt/jwt.go"
)

// vault is the JWT auth method; OpenBao's has the same code.
func vault() Party {
	return Party{
		Name: "vault", Title: "Vault and OpenBao, JWT auth", OnMiss: true, Called: []string{"hashicorp", "openbao"},
		Given: []Fact{
			{
				Says:  "`oidc_discovery_url`, `jwks_url` or `jwt_validation_pubkeys`, one of them",
				Page:  vaultPage1,
				Quote: "One (and only one) of oidc_discovery_url, jwks_url, and jwt_validation_pubkeys must be set.",
			},
			{
				Says:  "uploaded keys are PEM: `keypost sync-keys`",
				Page:  vaultPage1,
				Quote: "A list of PEM-encoded public keys to use to authenticate signatures locally.",
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
		Signed: Fact{
			Says:  "all of a key set's, unless `jwt_supported_algs` is set",
			Page:  vaultPage1,
			Quote: "Defaults to [RS256] for OIDC roles. Defaults to all available algorithms for JWT roles.",
		},
		Audience: Fact{
			Says:  "`bound_audiences` of the role",
			Page:  vaultPage1,
			Quote: "List of aud claims to match against. Any match is sufficient.",
		},
		Limits: []Fact{
			{
				Says:  "tokens count for 60 s after their end (`clock_skew_leeway`); `expiration_leeway` is for tokens without an end",
				Page:  vaultPage2,
				Quote: "If the duration is zero or not provided, a default leeway of 60 seconds",
			},
			{
				Says:  "a login may break off while the configuration is written, as by an upload; repeat it",
				Page:  "https://github.com/hashicorp/vault-plugin-auth-jwt/blob/v0.26.1/path_login.go",
				Quote: "NewProviderConfig(ctx, b.cachedConfig, ProviderMap())",
			},
			{
				Says: "a login while uploaded keys are written may leave the old ones in use, until the next write: " +
					"`keypost sync-keys` writes twice, a second apart; do so by hand, too",
				Page:  "https://github.com/hashicorp/vault-plugin-auth-jwt/blob/v0.26.1/path_login.go",
				Quote: "validator, err := b.jwtValidator(config)",
			},
			{
				Says:  "without `bound_issuer` nobody checks `iss`",
				Page:  vaultPage2,
				Quote: `expected.Issuer != "" && expected.Issuer != claims.Issuer`,
			},
		},
		Fetch: Fact{Says: "not shown; uploaded keys can be read back"},
		Ends: []Fact{
			{
				Says:  "writing the configuration again drops the copy",
				Page:  "https://github.com/hashicorp/vault-plugin-auth-jwt/blob/2e68bbaf4c9291dd8ad4cf2cb0bec24e9db4f632/backend.go",
				Quote: "Clear pre-warmed caches on config change",
			},
		},
		Refusals: vaultRefusals(),
		Tried:    "test/parties/run -run TestVault",
		ends: []string{
			"vault without end, " + onlyUnknown + " {until}, write the auth method's configuration again as it is, which drops its copy:",
			"  vault read -format=json auth/NAME/config | jq .data | vault write auth/NAME/config -",
		},
		granted: []string{
			"vault tokens that it has given out, until they end; to end them at once:",
			"  vault token revoke -mode path auth/NAME",
		},
	}
}

func vaultRefusals() []Fact {
	return []Fact{
		{
			Says:  "unknown key",
			Page:  "https://github.com/coreos/go-oidc/blob/v3.21.0/oidc/verify.go",
			Quote: "failed to verify id token signature",
		},
		{
			Says:  "unknown key, where keys are uploaded",
			Page:  "https://github.com/hashicorp/cap/blob/v0.12.0/jwt/keyset.go",
			Quote: "no known key successfully validated the token signature",
		},
		{
			Says:  "wrong audience",
			Page:  vaultPage2,
			Quote: "invalid audience (aud) claim: audience claim does not match any expected audience",
		},
		{
			Says:  "wrong issuer",
			Page:  vaultPage2,
			Quote: "invalid issuer (iss) claim",
		},
		{
			Says:  "expired",
			Page:  vaultPage2,
			Quote: "invalid expiration time (exp) claim: token is expired",
		},
	}
}
