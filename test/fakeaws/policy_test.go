package fakeaws

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
)

func TestInlinePoliciesShareTheirRoom(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	c, ctx := iamOf(s), t.Context()
	must(c.CreateRole(ctx, newRoleInput("r")))(t)
	put := func(name string, n int) error {
		frame := strings.Replace(permissions, `"*"`, `"arn:aws:s3:::%s"`, 1)
		text := fmt.Sprintf(frame, strings.Repeat("b", n-len(frame)+2)) + strings.Repeat(" \n", 400)
		_, err := c.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: aws.String("r"), PolicyName: &name, PolicyDocument: &text})
		return err
	}
	if err := put("a", 10000); err != nil {
		t.Fatal(err)
	}
	refused(t, put("b", 241), "LimitExceeded", "Maximum policy size of 10240 bytes exceeded for role r")
	if err := put("b", 240); err != nil {
		t.Error("white space does not count:", err)
	}
	if err := put("a", 10000); err != nil {
		t.Error("a policy that is replaced does not count twice:", err)
	}
}

func TestMalformedTrustPolicies(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	check := func(text, says string) {
		in := newRoleInput("r")
		in.AssumeRolePolicyDocument = &text
		_, err := iamOf(s).CreateRole(t.Context(), in)
		t.Run(text, func(t *testing.T) { refused(t, err, "MalformedPolicyDocument", says) })
	}
	const (
		who, what = `"Principal":{"AWS":"*"}`, `"Action":"sts:AssumeRole"`
		good      = `"Effect":"Allow",` + who + `,` + what
		federated = "Federated principals must be valid domain names or SAML metadata ARNs"
		syntax    = "Syntax errors in policy."
	)
	for text, says := range map[string]string{
		`{`:                        "This policy contains invalid Json",
		`[]`:                       "This policy contains invalid Json",
		`{"Version":"2012-10-17"}`: syntax,
		`{"Version":"2012-10-17","Statement":[]}`:                           syntax,
		`{"version":"2012-10-17","Statement":[{` + good + `}]}`:             syntax,
		`{"Version":"2012-10-18","Statement":[{` + good + `}]}`:             "The policy must contain a valid version string",
		`{"Statement":[{"Sid":"a",` + good + `},{"Sid":"a",` + good + `}]}`: "Statement IDs (SID) in a single policy must be unique.",
	} {
		check(text, says)
	}
	for statement, says := range map[string]string{
		who + `,` + what:                                                           "Missing required field Effect",
		`"Effect":"allow",` + who + `,` + what:                                     "Invalid effect: allow",
		`"Effect":"Allow",` + what:                                                 "Missing required field Principal",
		`"Effect":"Allow",` + who:                                                  "Missing required field Action",
		`"Effect":"Allow",` + who + `,"Action":"s3:GetObject"`:                     "AssumeRole policy may only specify STS AssumeRole actions.",
		`"Effect":"Allow",` + who + `,"Action":{"a":1}`:                            syntax,
		good + `,"NotAction":"sts:AssumeRole"`:                                     syntax,
		good + `,"Extra":1`:                                                        syntax,
		good + `,"Resource":"*"`:                                                   "Has prohibited field Resource",
		good + `,"Sid":"a b"`:                                                      "Statement IDs (SID) must be alpha-numeric.",
		good + `,"Condition":{"StringIs":{"a:b":"c"}}`:                             "Invalid Condition type : StringIs.",
		good + `,"Condition":{"StringLike":{"sub":"c"}}`:                           "must be prefaced by a vendor",
		`"Effect":"Allow","Principal":{"Federated":""},` + what:                    federated,
		`"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::12:x/y"},` + what: federated,
		`"Effect":"Allow","Principal":{"Federated":[]},` + what:                    "cannot be empty",
		`"Effect":"Allow","Principal":"*",` + what:                                 `Invalid principal in policy: "*":"*"`,
		`"Effect":"Allow","Principal":{"AWS":"me"},` + what:                        `Invalid principal in policy: "AWS":"me"`,
		`"Effect":"Allow","Principal":{"User":"me"},` + what:                       `Invalid principal in policy: "USER":"me"`,
	} {
		check(`{"Statement":[{`+statement+`}]}`, says)
	}
}

// putPolicy gives the role r the inline policy p.
func putPolicy(t testing.TB, s *Server, text string) error {
	_, err := iamOf(s).PutRolePolicy(t.Context(),
		&iam.PutRolePolicyInput{RoleName: aws.String("r"), PolicyName: aws.String("p"), PolicyDocument: &text})
	return err
}

func TestMalformedPermissions(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	must(iamOf(s).CreateRole(t.Context(), newRoleInput("r")))(t)
	for statement, says := range map[string]string{
		`{"Effect":"Allow","Action":"s3:*","Resource":"*","Principal":"*"}`:      "Policy document should not specify a principal.",
		`{"Effect":"Allow","Resource":"*"}`:                                      "Policy statement must contain actions.",
		`{"Effect":"Allow","Action":[],"Resource":"*"}`:                          "Policy statement must contain actions.",
		`{"Effect":"Allow","Action":"s3:*"}`:                                     "Policy statement must contain resources.",
		`{"Effect":"Allow","Action":"GetObject","Resource":"*"}`:                 "Actions/Conditions must be prefaced by a vendor",
		`{"Effect":"Allow","Action":"s3:*","Resource":"bucket"}`:                 `Resource bucket must be in ARN format or "*".`,
		`{"Effect":"Allow","Action":"s3:*","Resource":"arn:azure:s3:::bucket"}`:  `Partition "azure" is not valid for resource "arn:azure`,
		`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws-cn:s3:::bucket"}`: `Partition "aws-cn" is not valid for resource "arn:aws-cn`,
		`{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws::::bucket"}`:      "Vendor is missing",
		`{"Effect":"Allow","Action":"s3:*","NotAction":"s3:*","Resource":"*"}`:   "Syntax errors in policy.",
	} {
		err := putPolicy(t, s, `{"Version":"2012-10-17","Statement":`+statement+`}`)
		t.Run(statement, func(t *testing.T) { refused(t, err, "MalformedPolicyDocument", says) })
	}
	for _, good := range []string{
		`{"Effect":"Allow","NotAction":"iam:*","NotResource":"arn:*:s3:::b/*"}`,
		`{"Effect":"Deny","Action":["ec2:Describe*","*"],"Resource":["arn:aws:ec2:*:*:instance/*","*"],` +
			`"Condition":{"StringNotLikeIfExists":{"aws:RequestedRegion":["eu-*"]},"Bool":{"aws:SecureTransport":false}}}`,
	} {
		if err := putPolicy(t, s, `{"Statement":`+good+`}`); err != nil {
			t.Error(err)
		}
	}
}
