package party

const alibabaPage = "https://www.alibabacloud.com/help/en/ram/developer-reference/api-ims-2019-08-15-createoidcprovider"

// alibaba is AssumeRoleWithOIDC; ACK calls it RRSA.
func alibaba() Party {
	return Party{
		Name: "alibaba", Title: "Alibaba Cloud RAM", Called: []string{"aliyun", "rrsa"}, Keeps: unknown,
		Given: []Fact{
			{Says: "discovery, over TLS whose CA has one of the fingerprints that you give it"},
		},
		Keeping: []Fact{
			{Says: "24 h is an allowance: nothing is documented"},
		},
		Signed: Fact{Says: "nothing is documented"},
		Audience: Fact{
			Says:  "at most 50 client IDs",
			Page:  alibabaPage,
			Quote: "You can add a maximum of 50 client IDs to an OIDC IdP.",
		},
		Limits: []Fact{
			{
				Says:  "at most 5 fingerprints; a new CA's first, and a day later its certificate",
				Page:  alibabaPage,
				Quote: "You can add a maximum of five fingerprints to an OIDC IdP.",
			},
			{
				Says:  "an issuer URL of at most 255 characters",
				Page:  alibabaPage,
				Quote: "The URL can be up to 255 characters in length.",
			},
			{
				Says:  "tokens issued within the last 12 h, or up to 168 h",
				Page:  "https://www.alibabacloud.com/help/en/ram/user-guide/manage-an-oidc-idp",
				Quote: "Default value: 12 hours. Valid values: 1 to 168 hours.",
			},
			{
				Says:  "100 issuers in an account",
				Page:  alibabaPage,
				Quote: "You can create a maximum of 100 OIDC IdPs in an Alibaba Cloud account.",
			},
		},
		Fetch: Fact{Says: "not shown"},
		Ends: []Fact{
			{Says: "nothing is documented"},
		},
	}
}
