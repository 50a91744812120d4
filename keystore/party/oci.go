package party

const (
	ociPage1 = "https://github.com/oracle/oci-go-sdk/blob/v65.121.0/apigateway/remote_json_web_key_set.go"
	ociPage2 = "https://docs.oracle.com/en-us/iaas/Content/APIGateway/Tasks/apigatewayusingjwttokens-prerequisites.htm"
)

// oci is the JWT authentication of an API Gateway deployment.
func oci() Party {
	return Party{
		Name: "oci", Title: "Oracle Cloud, API Gateway", Called: []string{"oracle"}, Keeps: unknown, Takes: []string{"RS256", "RS384", "RS512"},
		Given: []Fact{
			{
				Says:  "a JWKS URI, or static keys",
				Page:  ociPage1,
				Quote: "It must be accessible without authentication.",
			},
		},
		Keeping: []Fact{
			{
				Says:  "as long as the deployment says; 24 h is an allowance",
				Page:  ociPage1,
				Quote: "The duration for which the JWKS should be cached before it is fetched again.",
			},
		},
		Signed: Fact{
			Says:  "RS256, RS384, RS512",
			Page:  ociPage2,
			Quote: "the signing algorithm used to generate the JWT's signature must be one of RS256, RS384, or RS512",
		},
		Audience: Fact{Says: "as the deployment says"},
		Limits: []Fact{
			{
				Says:  "10 keys",
				Page:  "https://docs.oracle.com/en-us/iaas/Content/APIGateway/Tasks/apigatewayusingjwttokens-identityprovider.htm",
				Quote: "Note that regardless of identity provider, a JWKS can contain a maximum of ten keys.",
			},
			{
				Says:  "RSA keys of 2048 to 4096 bits",
				Page:  ociPage2,
				Quote: "the public verification key must have a minimum length of 2048 bits and must not exceed 4096 bits",
			},
		},
		Fetch: Fact{Says: "not shown"},
		Ends: []Fact{
			{Says: "nothing is documented"},
		},
	}
}
