package webidentity

import (
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/iampolicy"
)

func attempt() Attempt {
	return Attempt{Role: "app", ProviderARN: "arn:aws:iam::123456789012:oidc-provider/oidc.example.com/a", Issuer: "https://oidc.example.com/a"}
}

// examine returns what an examination finds.
func examine(a Attempt, check func(e *examination)) []finding.Finding {
	e := &examination{Attempt: a}
	check(e)
	return e.Findings
}

func trusting(a Attempt, d iampolicy.Document) []finding.Finding {
	return examine(a, func(e *examination) { e.checkTrust(d) })
}

// The provider that somebody meant is named; those of other clusters on the same host are not.
func TestNoProvider(t *testing.T) {
	trusting, err := iampolicy.Parse(`{"Statement":[{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::123456789012:oidc-provider/oidc.example.com/old"},"Action":"sts:AssumeRoleWithWebIdentity"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	others := []string{"https://oidc.example.com/b", "https://oidc.example.com/c"}
	for _, tt := range []struct {
		name  string
		urls  []string
		trust *iampolicy.Document
		code  string
		says  string
	}{
		{"none at all", nil, nil, "aws-provider-missing", "there is no arn:aws:iam::123456789012:oidc-provider/oidc.example.com/a"},
		{"other hosts", []string{"https://x.example.com/a"}, &trusting, "aws-provider-missing", ""},
		{"other clusters", others, &trusting, "aws-provider-missing", ""},
		{"one other path", others[:1], nil, "aws-provider-missing", "has one for https://oidc.example.com/b: host"},
		{"another case", append(others, "https://oidc.example.com/A"), nil, "aws-provider-missing", "https://oidc.example.com/A"},
		{"a slash", append(others, "https://oidc.example.com/a/"), nil, "aws-provider-missing", "https://oidc.example.com/a/"},
		{"the trusted one", append(others, "https://oidc.example.com/old"), &trusting, "aws-provider-missing", "https://oidc.example.com/old: host"},
	} {
		f := attempt().noProvider(tt.urls, tt.trust)
		if f.Code != tt.code || !strings.Contains(f.Evidence, tt.says) || !strings.Contains(f.Repair, "--url https://oidc.example.com/a --client-id-list sts.amazonaws.com") {
			t.Errorf("%s: %s: %s (%s)", tt.name, f.Code, f.Evidence, f.Repair)
		}
	}
}

// Where the provider takes the token's audience, the role that asks for one that the provider does not take is what is wrong.
func TestTheRoleThatAsksForAnotherAudience(t *testing.T) {
	for _, tt := range []struct {
		clients      []string
		token, asked string
		repair       string
	}{
		{[]string{"sts.amazonaws.com"}, "sts.amazonaws.com", "sts.amazonaw.com", "aws iam update-assume-role-policy"},
		{[]string{"sts.amazonaws.com"}, "sts.amazonaws.com", "sts.amazonaws.com.cn", "aws iam update-assume-role-policy"},
		{[]string{"sts.amazonaws.com", "openshift"}, "sts.amazonaws.com", "openshift", "kubectl create token app --namespace ns --audience openshift"},
		{[]string{"openshift"}, "sts.amazonaws.com", "openshift", "kubectl create token app --namespace ns --audience openshift"},
		{nil, "vault", "sts.amazonaws.com", "kubectl create token app --namespace ns --audience sts.amazonaws.com"},
	} {
		a := attempt()
		a.Subject, a.Audience, a.ClientIDs = "system:serviceaccount:ns:app", tt.token, tt.clients
		d, err := iampolicy.Parse(`{"Statement":[{"Effect":"Allow","Principal":{"Federated":"` + a.ProviderARN + `"},"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{` +
			`"oidc.example.com/a:sub":"system:serviceaccount:ns:app","oidc.example.com/a:aud":"` + tt.asked + `"}}}]}`)
		if err != nil {
			t.Fatal(err)
		}
		if f := trusting(a, d)[0]; f.Code != "aws-trust-audience" || !strings.Contains(f.Repair, tt.repair) {
			t.Errorf("%+v: %s: %s", tt, f.Code, f.Repair)
		}
	}
}

// No repair has AWS trust an audience that every pod has a token for.
func TestNoRepairTrustsTheCluster(t *testing.T) {
	a := attempt()
	policy := func(sub, aud string) iampolicy.Document {
		d, err := iampolicy.Parse(`{"Statement":[{"Effect":"Allow","Principal":{"Federated":"` + a.ProviderARN + `"},"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{` +
			`"oidc.example.com/a:sub":"system:serviceaccount:ns:` + sub + `","oidc.example.com/a:aud":` + aud + `}}}]}`)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, own := range []string{a.Issuer, "https://old.example.com/bucket", "https://kubernetes.default.svc.cluster.local"} {
		for _, clients := range [][]string{{"sts.amazonaws.com"}, {"openshift"}, {"vault"}, {own}} {
			for _, asked := range []string{`"sts.amazonaws.com"`, `"` + own + `"`, `["sts.amazonaws.com","vault"]`} {
				for _, tokens := range []string{own, ""} {
					b := a
					if b.Audience = tokens; tokens != "" {
						b.Subject = "system:serviceaccount:ns:app"
					}
					b.ClientIDs = clients
					d := policy("other", asked)
					for _, f := range append(examine(b, func(e *examination) { e.checkProvider(awsiam.ProviderState{ClientIDs: clients}, &d); e.checkTrust(d) }), b.noProvider(nil, &d)) {
						opens := strings.Contains(f.Repair, "--client-id "+own) || strings.Contains(f.Repair, "--client-id-list "+own) ||
							strings.Count(f.Repair, own+`"`) > strings.Count(asked, own+`"`) || strings.Contains(f.Repair, "--audience "+own)
						if opens {
							t.Errorf("token %q, role %s, provider %s: %s: %s", tokens, asked, clients, f.Code, f.Repair)
						}
					}
				}
			}
		}
	}
}

// openings are statements beside one that lets a single service account in for a single audience. code is that of the warning that
// they bring, empty where they let no stranger in.
var openings = []struct{ name, statement, code string }{
	{"no condition", opening(``), "aws-trust-open-sub"},
	{"no sub", opening(openAud), "aws-trust-open-sub"},
	{"any sub by a pattern", opening(openAud + `,"StringLike":{"K:sub":"*"}`), "aws-trust-open-sub"},
	{"any service account by a pattern", opening(openAud + `,"StringLike":{"K:sub":"system:serviceaccount:*"}`), "aws-trust-open-sub"},
	{"any namespace and account", opening(openAud + `,"StringLike":{"K:sub":"system:serviceaccount:*:*"}`), "aws-trust-open-sub"},
	{likeTheToken, opening(openAud + `,"StringLike":{"K:sub":"system:serviceaccount:*:app"}`), "aws-trust-open-sub"},
	{"a list with any", opening(openAud + `,"StringLike":{"K:sub":["system:serviceaccount:ns:app","*"]}`), "aws-trust-open-sub"},
	{"a sub has to be there", opening(openAud + `,"Null":{"K:sub":"false"}`), "aws-trust-open-sub"},
	{"all but one sub", opening(openAud + `,"StringNotEquals":{"K:sub":"system:serviceaccount:ns:evil"}`), "aws-trust-open-sub"},
	{"a sub from an address", opening(openAud + `,"IpAddress":{"aws:SourceIp":"192.0.2.0/24"}`), ""},
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

	{"everybody", anybody(`"*"`, ``), "aws-trust-open-sub"},
	{"everybody in AWS", anybody(`{"AWS":"*"}`, ``), "aws-trust-open-sub"},
	{"everybody federated", anybody(`{"Federated":"*"}`, ``), "aws-trust-open-sub"},
	{"all but one", strings.Replace(anybody(`{"AWS":"arn:aws:iam::123456789012:root"}`, ``), "Principal", "NotPrincipal", 1), "aws-trust-open-sub"},
	{"everybody without another issuer's sub", anybody(`"*"`, `"StringNotEquals":{"K:sub":"system:serviceaccount:ns:evil"}`), "aws-trust-open-sub"},

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
	likeTheToken = "any namespace with the account's name" // which only a token says

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
		"sub": "lets service accounts of every namespace in", "aud": "takes a token for any audience",
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
				for _, f := range trusting(a, d) {
					if strings.HasPrefix(f.Code, "aws-trust-open") {
						got = append(got, f.Code+"-"+kindOf(f.Evidence))
						if f.Severity != finding.Warn || !strings.Contains(f.Evidence, "statement 2 of") || !strings.Contains(f.Repair, "aws iam get-role") {
							t.Errorf("%s, %s: %s: %s (%s)", tt.name, where, f.Severity, f.Evidence, f.Repair)
						}
					}
				}
				want := tt.code
				if tt.name == likeTheToken && subject == "" {
					want = ""
				}
				if strings.Join(got, " ") != want {
					t.Errorf("%s, %s, sub %q: %q, want %q", tt.name, where, subject, got, want)
				}
			}
		}
	}
}

// The verdict comes first, then how close a statement is.
func TestTheVerdictCounts(t *testing.T) {
	const arn = "arn:aws:iam::123456789012:oidc-provider/oidc.example.com/c1"
	statement := func(effect, condition string) string {
		return `{"Effect":"` + effect + `","Principal":{"Federated":"` + arn + `"},"Action":"sts:AssumeRoleWithWebIdentity","Condition":{` + condition + `}}`
	}
	const (
		other   = `"StringEquals":{"oidc.example.com/c1:sub":"system:serviceaccount:ns:other"}`
		unclear = `"IpAddress":{"aws:SourceIp":"10.0.0.0/8"},"DateGreaterThan":{"aws:CurrentTime":"2020-01-01T00:00:00Z"},"StringEquals":{"oidc.example.com/c1:sub":"system:serviceaccount:ns:app"}`
		own     = `"StringEquals":{"oidc.example.com/c1:sub":"system:serviceaccount:ns:app"}`
	)
	for name, tt := range map[string]struct {
		statements []string
		code       string
		severity   finding.Severity
	}{
		"one that may apply, after one that does not": {[]string{statement("Allow", other), statement("Allow", unclear)}, "aws-trust-unclear", finding.Warn},
		"only one that denies":                        {[]string{statement("Deny", own)}, "aws-trust-provider", finding.Fail},
		"only one that denies somebody else":          {[]string{statement("Deny", other)}, "aws-trust-provider", finding.Fail},
	} {
		d, err := iampolicy.Parse(`{"Version":"2012-10-17","Statement":[` + strings.Join(tt.statements, ",") + `]}`)
		if err != nil {
			t.Fatal(err)
		}
		a := Attempt{Role: "app", Issuer: "https://oidc.example.com/c1", ProviderARN: arn, Subject: "system:serviceaccount:ns:app", Audience: "sts.amazonaws.com"}
		found := trusting(a, d)
		finding.Sort(found)
		if len(found) == 0 || found[0].Code != tt.code || found[0].Severity != tt.severity {
			t.Errorf("%s: %+v; want %s %s first", name, found, tt.severity, tt.code)
		}
	}
}
