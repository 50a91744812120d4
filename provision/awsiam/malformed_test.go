package awsiam_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/test/fakeaws"
)

// Most of a generated document is right, so that each of its faults is met where it is the only one.
var documentParts = map[string][]string{
	`"Version":`: {`"2012-10-17"`, `"2008-10-17"`, `"2012-10-18"`, `2012`},
	`"Effect":`:  {`"Allow"`, `"Deny"`, `"allow"`, `""`, `1`},
	`"Action":`:  {`"s3:GetObject"`, `["s3:Get*","ec2:Describe?"]`, `"*"`, `"GetObject"`, `[]`, `"s3:"`, `{"s3":"x"}`, `"s3:Get Object"`, `["s3:A",1]`, `null`},
	`"Resource":`: {`"*"`, `"arn:aws:s3:::b/*"`, `["*","arn:*:s3:::b"]`, `"arn:aws:s3:b"`, `"bucket"`, `"arn:aws-us-gov:s3:::b"`, `"arn:azure:s3:::b"`, `"arn:aws::::b"`, `[]`,
		`"arn:aws*:s3:::b"`, `""`, `"arn::s3:::b"`, `["arn:aws:s3:::b",["*"]]`},
	`"Condition":`: {`{}`, `{"StringEquals":{"aws:x":"y"}}`, `{"ForAnyValue:ArnNotLikeIfExists":{"aws:x":["y","z"]}}`, `{"Bool":{"aws:x":true},"NumericLessThanEquals":{"s3:x":3}}`,
		`{"StringEqualz":{"aws:x":"y"}}`, `{"StringEquals":{"x":"y"}}`, `{"ForAllValue:StringLike":{"aws:x":"y"}}`, `{"stringequals":{"aws:x":"y"}}`, `{"StringEquals":"y"}`,
		`{"StringEquals":{"aws:x":{"y":"z"}}}`, `[]`, `{"StringEquals":{"aws:x":null}}`, `{"DateGreaterThan":{"":"x"}}`},
	`"Sid":`: {`""`, `"Read1"`, `"a b"`, `1`},
}

func malformedDocument(r *rand.Rand) string {
	pick := func(member string) string {
		choices := documentParts[member]
		if r.IntN(8) > 0 {
			choices = choices[:2]
		}
		return member + choices[r.IntN(len(choices))]
	}
	var statements []string
	for range 1 + r.IntN(2) {
		members := []string{pick(`"Effect":`), pick(`"Action":`), pick(`"Resource":`)}
		for _, optional := range []string{`"Condition":`, `"Sid":`} {
			if r.IntN(2) == 0 {
				members = append(members, pick(optional))
			}
		}
		if r.IntN(12) == 0 {
			members = append(members, []string{`"Principal":"*"`, `"Principal":{"AWS":"*"}`, `"NotPrincipal":{"AWS":"*"}`, `"Extra":1`, `"NotAction":"s3:*"`, `"NotResource":"*"`}[r.IntN(6)])
		}
		if r.IntN(12) == 0 {
			at := r.IntN(len(members))
			members = append(members[:at:at], members[at+1:]...)
		}
		statements = append(statements, "{"+strings.Join(members, ",")+"}")
	}
	list := "[" + strings.Join(statements, ",") + "]"
	if r.IntN(10) == 0 {
		list = []string{statements[0], `[]`, `""`, `null`, `[1]`}[r.IntN(5)]
	}
	document := "{" + pick(`"Version":`) + `,"Statement":` + list
	if r.IntN(20) == 0 {
		document += `,"Extra":1`
	}
	return document + "}"
}

// A document that AWS refuses, after it has taken the role, leaves a role without permissions.
func TestWhatIAMRefusesOfAPolicyIsRefusedBeforeTheFirstCall(t *testing.T) {
	t.Parallel()
	for _, partition := range []string{"aws", "aws-cn"} {
		s := fakeaws.Start(t, fakeaws.Options{Partition: partition})
		client := handOf(s)
		account := awsiam.Account{ID: "123456789012", Partition: partition}
		trust := awsiam.Trust{ProviderARN: account.ProviderARN(issuer), Issuer: issuer, Audiences: []string{"openshift"}}
		if _, err := client.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: aws.String("r"), AssumeRolePolicyDocument: aws.String(
			`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}}`)}); err != nil {
			t.Fatal(err)
		}
		refused := 0
		for seed := range uint64(800) {
			text := malformedDocument(rand.New(rand.NewPCG(seed, 5)))
			if !json.Valid([]byte(text)) {
				t.Fatal(text)
			}
			role := awsiam.Role{Name: "r", Subjects: []string{"system:serviceaccount:ns:a"}, Owner: awsiam.OwnedBy("c1"), Policy: []byte(text)}
			_, err := client.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: aws.String("r"), PolicyName: aws.String("p"), PolicyDocument: &text})
			ours := awsiam.Check(awsiam.Provider{}, trust, []awsiam.Role{role})
			if (err == nil) != (ours == nil) {
				t.Errorf("%s: %s\nIAM:     %v\nkeypost: %v", partition, text, err, ours)
			}
			if err != nil {
				refused++
			}
		}
		if refused < 300 || refused > 700 {
			t.Errorf("IAM refuses %d of 800", refused)
		}
	}
}

// handOf returns IAM's own client of an account.
func handOf(s *fakeaws.Server) *iam.Client {
	env := map[string]string{}
	for _, v := range s.Env() {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	return iam.New(iam.Options{
		BaseEndpoint: aws.String(s.URL), Region: env["AWS_REGION"], Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: env["AWS_ACCESS_KEY_ID"], SecretAccessKey: env["AWS_SECRET_ACCESS_KEY"]}, nil
		}),
	})
}
