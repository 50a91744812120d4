package party

import "time"

const confluentPage = "https://docs.confluent.io/cloud/current/security/authenticate/workload-identities/identity-providers/oauth/jwks-manual-refresh.html"

// confluent is an OAuth identity provider of Confluent Cloud.
func confluent() Party {
	return Party{
		Name: "confluent", Title: "Confluent Cloud", Keeps: 5 * time.Minute,
		Given: []Fact{
			{Says: "an issuer URI and a JWKS URI"},
		},
		Keeping: []Fact{
			{
				Says: "max-age, and at least 5 minutes",
				Page: confluentPage,
				Quote: "Values below the minimum are automatically set to 5 minutes, while values above the maximum are " +
					"capped at 7 days.",
			},
			{
				Says:  "a day without max-age",
				Page:  confluentPage,
				Quote: "Default: 24 hours (86400 seconds) when max-age is not specified.",
			},
		},
		Signed:   Fact{Says: "nothing is documented"},
		Audience: Fact{Says: "by the filter of an identity pool"},
		Fetch: Fact{
			Says: "not shown; it can be forced, and the time of that be given to issuer observe with `--fetched confluent=TIME`",
			Page: confluentPage,
			Quote: "You can manually refresh the JWKS URI of your OAuth identity provider using either the Confluent " +
				"Cloud Console or the Confluent Cloud REST API",
		},
		Ends: []Fact{
			{
				Says:  "a forced refresh",
				Page:  confluentPage,
				Quote: "Force immediate application of rotated public keys.",
			},
			{
				Says: "an issuer that does not answer keeps old keys alive",
				Page: confluentPage,
				Quote: "If the JWKS URI is temporarily unavailable, the system continues using the cached keys until the " +
					"next successful refresh.",
			},
		},
		ends: []string{
			"confluent until {until}, or until you refresh the JWKS of the identity provider in its console",
		},
	}
}
