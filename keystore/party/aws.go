package party

import "time"

const (
	awsPage1 = "https://github.com/aws/aws-sdk-go-v2/blob/service/iam/v1.64.7/service/iam/api_op_CreateOpenIDConnectProvider.go"
	awsPage2 = "https://repost.aws/knowledge-center/iam-sts-invalididentitytoken"
)

// aws is AssumeRoleWithWebIdentity, in every partition.
//
// Sessions: IAM user guide, "Revoke IAM role temporary security credentials".
func aws() Party {
	return Party{
		Name: "aws", Title: "AWS STS and IAM", Called: []string{"amazon", "sts"}, Keeps: time.Hour,
		Given: []Fact{
			{Says: "discovery, from the URL of an IAM OIDC identity provider"},
		},
		Keeping: []Fact{
			{Says: "1 h is an allowance: AWS documents nothing"},
		},
		Signed: Fact{
			Says:  "RS256, RS384, RS512, ES256, ES384, ES512",
			Page:  "https://github.com/aws/aws-sdk-go-v2/blob/service/sts/v1.51.7/service/sts/api_op_AssumeRoleWithWebIdentity.go",
			Quote: "Tokens must be signed using either RSA keys (RS256, RS384, or RS512) or ECDSA keys (ES256, ES384, or ES512).",
		},
		Audience: Fact{
			Says:  "at most 100 client IDs",
			Page:  awsPage1,
			Quote: "You cannot register more than 100 client IDs with a single IAM OIDC provider.",
		},
		Limits: []Fact{
			{
				Says:  "no port in the URL",
				Page:  awsPage1,
				Quote: "The URL should not contain a port number.",
			},
			{
				Says:  "at most 5 thumbprints, used only for a CA that AWS does not know",
				Page:  awsPage1,
				Quote: "However, IAM lets you have up to five thumbprints for an OIDC provider.",
			},
			{
				Says:  "the issuer answers within 5 s",
				Page:  awsPage2,
				Quote: "There's latency of more than 5 seconds in API requests from the IdP to reach the AWS STS endpoint.",
			},
		},
		Fetch: Fact{
			Says:  "not shown, and not in CloudTrail either",
			Page:  awsPage2,
			Quote: "Because this issue fails on the client side, AWS CloudTrail event history doesn't log this error.",
		},
		Ends: []Fact{
			{Says: "deleting the provider ends new sessions"},
			{
				Says:  "sessions that were given out live for up to 12 h",
				Page:  "https://github.com/aws/aws-sdk-go-v2/blob/service/sts/v1.51.7/service/sts/api_op_AssumeRoleWithWebIdentity.go",
				Quote: "This setting can have a value from 1 hour to 12 hours.",
			},
		},
		Refusals: []Fact{
			{
				Says:  "unknown key, or no JWKS",
				Page:  awsPage2,
				Quote: "Couldn't retrieve verification key from your identity provider",
			},
			{
				Says:  "no provider for the issuer",
				Page:  "https://repost.aws/knowledge-center/iam-oidc-idp-federation",
				Quote: "No OpenIDConnect provider found in your account",
			},
			{
				Says:  "expired",
				Page:  "https://github.com/aws/aws-sdk-go-v2/blob/service/sts/v1.51.7/service/sts/types/errors.go",
				Quote: "The web identity token that was passed is expired or is not valid.",
			},
		},
		ends: []string{
			"aws until {until}: nothing makes STS fetch sooner; deleting the provider (oidc-provider/{provider}) " +
				"ends it at once, for your own pods too",
			"aws sessions that STS has given out, for up to 12h: for each of these roles, now and again after " +
				"that time, whereupon your own pods need new ones, too:",
			"  aws iam list-roles --output text --query 'Roles[?contains(to_string(AssumeRolePolicyDocument), " +
				"'\\''oidc-provider/{provider}\"'\\'')].RoleName'",
			"  aws iam put-role-policy --role-name ROLE --policy-name AWSRevokeOlderSessions --policy-document " + revokeSessions,
		},
	}
}

// revokeSessions is the policy of AWS's console ("Revoke active sessions") as a word of a shell, with the time at which it is run.
const revokeSessions = `'{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":["*"],"Resource":["*"],"Condition":{"DateLessThan":{"aws:TokenIssueTime":"'$(date -u +%Y-%m-%dT%H:%M:%SZ)'"}}}]}'`
