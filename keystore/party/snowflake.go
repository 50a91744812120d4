package party

const snowflakePage = "https://docs.snowflake.com/en/sql-reference/sql/alter-user-modify-workload-identity"

// snowflake is a user's workload identity of type OIDC.
func snowflake() Party {
	return Party{
		Name: "snowflake", Title: "Snowflake", Keeps: unknown,
		Given: []Fact{
			{Says: "discovery, from ISSUER"},
		},
		Keeping: []Fact{
			{Says: "24 h is an allowance: nothing is documented"},
		},
		Signed: Fact{Says: "nothing is documented"},
		Audience: Fact{
			Says: "OIDC_AUDIENCE_LIST",
			Page: "https://docs.snowflake.com/sql-reference/sql/alter-user-add-workload-identity",
		},
		Limits: []Fact{
			{
				Says:  "an identity cannot be changed, only removed and added",
				Page:  snowflakePage,
				Quote: "Those properties are fixed when the workload identity is created.",
			},
		},
		Fetch: Fact{
			Says:  "not shown; when the identity was last used is",
			Page:  "https://docs.snowflake.com/en/sql-reference/sql/show-user-workload-identity-authentication-methods",
			Quote: "Date and time that the service user last used workload identity federation to authenticate to Snowflake.",
		},
		Ends: []Fact{
			{
				Says:  "disabling the identity ends new log-ins",
				Page:  snowflakePage,
				Quote: "Disabling a workload identity blocks new authentication attempts that use it.",
			},
		},
	}
}
