package webidentity

import (
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/provision/iampolicy"
)

// openings are statements beside one that lets a single service account in for a single audience. code is that of the warning that
// they bring, empty where they let no stranger in.
var openings = []struct{ name, statement, code string }{
	{"no condition", opening(``), "aws-trust-open-sub"},
	{"no sub", opening(openAud), "aws-trust-open-sub"},
	{"any sub by a pattern", opening(openAud + `,"StringLike":{"K:sub":"*"}`), "aws-trust-open-sub"},
	{"any service account by a pattern", opening(openAud + `,"StringLike":{"K:sub":"system:serviceaccount:*"}`), "aws-trust-open-sub"},
	{"any namespace and account", opening(openAud + `,"StringLike":{"K:sub":"system:serviceaccount:*:*"}`), "aws-trust-open-sub"},
	{"any namespace with the account's name", opening(openAud + `,"StringLike":{"K:sub":"system:serviceaccount:*:app"}`), "aws-trust-open-sub"},
	{"any namespace with part of a name", opening(openAud + `,"StringLike":{"K:sub":["x","*:app-??"]}`), "aws-trust-open-sub"},
	{"a list with any", opening(openAud + `,"StringLike":{"K:sub":["system:serviceaccount:ns:app","*"]}`), "aws-trust-open-sub"},
	{"a sub has to be there", opening(openAud + `,"Null":{"K:sub":"false"}`), "aws-trust-open-sub"},
	{"all but one sub", opening(openAud + `,"StringNotEquals":{"K:sub":"system:serviceaccount:ns:evil"}`), "aws-trust-open-sub"},
	{"a sub from an address", opening(openAud + `,"IpAddress":{"aws:SourceIp":"192.0.2.0/24"}`), "aws-trust-open-sub"},
	{"any action of STS", strings.Replace(opening(openAud), "sts:AssumeRoleWithWebIdentity", "sts:*", 1), "aws-trust-open-sub"},
	{"any action", strings.Replace(opening(openAud), "sts:AssumeRoleWithWebIdentity", "*", 1), "aws-trust-open-sub"},
	{"any of several subs", opening(openAud + `,"ForAnyValue:StringLike":{"K:sub":"system:serviceaccount:*"}`), "aws-trust-open-sub"},
	{"a sub if there is one", opening(openAud + `,"StringLikeIfExists":{"K:sub":"*"}`), "aws-trust-open-sub"},
	{"one of several subs is denied", opening(openAud) + `,{"Effect":"Deny","Principal":"*","Action":"*","Condition":{"ForAnyValue:StringLike":{"K:sub":"system:serviceaccount:evil:*"}}}`,
		"aws-trust-open-sub"},
	{"everybody, by this issuer's token", anybody(`"*"`, `"StringLike":{"K:sub":"system:serviceaccount:*"}`), "aws-trust-open-sub"},

	{"no aud", opening(openSub), "aws-trust-open-aud"},
	{"any aud by a pattern", opening(openSub + `,"StringLike":{"K:aud":"*"}`), "aws-trust-open-aud"},
	{"an aud has to be there", opening(openSub + `,"Null":{"K:aud":"false"}`), "aws-trust-open-aud"},
	{"all but one aud", opening(openSub + `,"StringNotEquals":{"K:aud":"vault"}`), "aws-trust-open-aud"},

	{"everybody", anybody(`"*"`, ``), "aws-trust-open-all"},
	{"everybody in AWS", anybody(`{"AWS":"*"}`, ``), "aws-trust-open-all"},
	{"everybody federated", anybody(`{"Federated":"*"}`, ``), "aws-trust-open-all"},
	{"all but one", strings.Replace(anybody(`{"AWS":"arn:aws:iam::123456789012:root"}`, ``), "Principal", "NotPrincipal", 1), "aws-trust-open-all"},
	{"everybody without another issuer's sub", anybody(`"*"`, `"StringNotEquals":{"K:sub":"system:serviceaccount:ns:evil"}`), "aws-trust-open-all"},

	{"another account of the namespace", opening(openAud + `,"StringLike":{"K:sub":"system:serviceaccount:ns:*"}`), ""},
	{"namespaces with a name", opening(openAud + `,"StringLike":{"K:sub":"system:serviceaccount:team-*:app"}`), ""},
	{"a sub twice", opening(openSub + `,"StringLike":{"K:sub":"*","K:aud":"sts.*"}`), ""},
	{"a sub that nobody has", opening(openAud + `,"StringNotLike":{"K:sub":"*"},"Null":{"K:sub":"false"}`), ""},
	{"two audiences", opening(openSub + `,"StringLike":{"K:aud":["sts.amazonaws.com","vault"]}`), ""},
	{"another action", strings.Replace(opening(``), "sts:AssumeRoleWithWebIdentity", "sts:TagSession", 1), ""},
	{"another provider", strings.Replace(opening(``), "oidc-provider/", "oidc-provider/other.", 1), ""},
	{"everybody of an organization", anybody(`"*"`, `"StringEquals":{"aws:PrincipalOrgID":"o-1"}`), ""},
	{"strangers are denied", opening(openAud) + `,{"Effect":"Deny","Principal":"*","Action":"*","Condition":{"StringNotLike":{"K:sub":"system:serviceaccount:ns:*"}}}`, ""},
	{"other audiences are denied", opening(openSub) + `,{"Effect":"Deny","Principal":"*","Action":"*","Condition":{"StringNotEquals":{"K:aud":"sts.amazonaws.com"}}}`, ""},
	{"all but this issuer's tokens are denied", opening(openAud) + `,{"Effect":"Deny","NotPrincipal":{"Federated":"` + attempt().ProviderARN + `"},"Action":"*"}`, "aws-trust-open-sub"},
	{"an address is denied", opening(openAud) + `,{"Effect":"Deny","Principal":"*","Action":"*","Condition":{"IpAddress":{"aws:SourceIp":"192.0.2.0/24"}}}`, "aws-trust-open-sub"},
	{"one namespace is denied", opening(openAud) + `,{"Effect":"Deny","Principal":"*","Action":"*","Condition":{"StringLike":{"K:sub":"system:serviceaccount:evil:*"}}}`, "aws-trust-open-sub"},
}

const (
	openAud = `"StringEquals":{"K:aud":"sts.amazonaws.com"}`
	openSub = `"StringEquals":{"K:sub":"system:serviceaccount:ns:app"}`
)

// opening is a statement for the provider of the issuer K.
func opening(condition string) string {
	return anybody(`{"Federated":"`+attempt().ProviderARN+`"}`, condition)
}

func anybody(principal, condition string) string {
	action := "sts:AssumeRoleWithWebIdentity"
	if !strings.Contains(principal, "Federated") {
		action = "sts:*"
	}
	return `{"Effect":"Allow","Principal":` + principal + `,"Action":"` + action + `","Condition":{` + condition + `}}`
}

// kindOf tells by its words who a statement lets in.
func kindOf(evidence string) string {
	for kind, words := range map[string]string{
		"all": "lets everybody in", "sub": "lets service accounts of every namespace in", "aud": "takes a token for any audience",
	} {
		if strings.Contains(evidence, words) {
			return kind
		}
	}
	return evidence
}

// A statement that lets strangers in is named wherever it stands, and whatever else lets the token in or keeps it out.
func TestOpenStatements(t *testing.T) {
	tight := opening(`"StringEquals":{"K:sub":"system:serviceaccount:ns:app","K:aud":"sts.amazonaws.com"}`)
	denied := strings.Replace(tight, "ns:app", "ns:another", 1)
	for _, tt := range openings {
		for where, statements := range map[string]string{"second": tight + "," + tt.statement, "second, the token's is another": denied + "," + tt.statement} {
			a := attempt()
			d, err := iampolicy.Parse(`{"Version":"2012-10-17","Statement":[` + strings.ReplaceAll(statements, `"K:`, `"oidc.example.com/a:`) + `]}`)
			if err != nil {
				t.Fatal(err)
			}
			for _, subject := range []string{"", "system:serviceaccount:ns:app"} {
				a.Subject, a.Audience = subject, ""
				if subject != "" {
					a.Audience = "sts.amazonaws.com"
				}
				var got []string
				for _, f := range a.CheckTrust(d) {
					if strings.HasPrefix(f.Code, "aws-trust-open") {
						got = append(got, f.Code+"-"+kindOf(f.Evidence))
						if f.Severity != finding.Warn || !strings.Contains(f.Evidence, "statement 2 of") || !strings.Contains(f.Repair, "aws iam get-role") {
							t.Errorf("%s, %s: %s: %s (%s)", tt.name, where, f.Severity, f.Evidence, f.Repair)
						}
					}
				}
				if strings.Join(got, " ") != tt.code {
					t.Errorf("%s, %s, sub %q: %q, want %q", tt.name, where, subject, got, tt.code)
				}
			}
		}
	}
}
