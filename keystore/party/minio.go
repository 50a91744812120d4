package party

const minioPage = "https://github.com/minio/minio/blob/7aac2a2c5b7c/internal/config/identity/openid/jwt.go"

// minio is AssumeRoleWithWebIdentity of MinIO and of what is built on it.
func minio() Party {
	return Party{
		Name: "minio", Title: "MinIO STS", OnMiss: true,
		Given: []Fact{
			{
				Says:  "discovery, by the document's whole URL in `config_url`",
				Page:  "https://github.com/minio/minio/blob/7aac2a2c5b7c/internal/config/identity/openid/help.go",
				Quote: "openid discovery document e.g. \"https://accounts.google.com/.well-known/openid-configuration\"",
			},
		},
		Keeping: []Fact{
			{
				Says: "it fetches when a token does not verify, and only adds keys: one that left is trusted until a restart",
				Page: minioPage,
			},
		},
		Signed: Fact{
			Says: "RS256 to RS512 and ES256 to ES512; a key of another type (ML-DSA) breaks the whole JWKS",
			Page: minioPage,
		},
		Audience: Fact{
			Says:  "`client_id`, in aud or azp",
			Page:  minioPage,
			Quote: "Validate that matching clientID appears in the aud or azp claims.",
		},
		Limits: []Fact{
			{
				Says: "it does not look at iss: any token of the keys is good",
				Page: minioPage,
			},
		},
		Fetch: Fact{Says: "not shown"},
		Ends: []Fact{
			{Says: "a restart, or a change of `identity_openid`"},
		},
		Refusals: []Fact{
			{
				Says:  "unknown key",
				Page:  minioPage,
				Quote: "No public key found for kid",
			},
			{
				Says:  "expired",
				Page:  "https://github.com/golang-jwt/jwt/blob/v4.5.2/map_claims.go",
				Quote: "Token is expired",
			},
		},
		Tried: "test/parties/run -run TestMinIO",
		ends: []string{
			"minio without end: restart it, once no cache has the key any more (--wait), or after {until}",
		},
	}
}
