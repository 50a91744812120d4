package iampolicy

import (
	"fmt"
	"testing"
)

const (
	judgedIssuer   = "https://oidc.example.com/prod-a"
	judgedProvider = "arn:aws:iam::123456789012:oidc-provider/oidc.example.com/prod-a"
	judgedSubject  = "system:serviceaccount:ns:app"
)

func judged(t *testing.T, id Identity, statements string) []Judgement {
	t.Helper()
	d, err := Parse(`{"Version":"2012-10-17","Statement":[` + statements + `]}`)
	if err != nil {
		t.Fatal(err)
	}
	return d.Judge(id)
}

func statementFor(effect, provider, action, condition string) string {
	return fmt.Sprintf(`{"Effect":%q,"Principal":{"Federated":%q},"Action":%q,"Condition":{%s}}`, effect, provider, action, condition)
}

func TestJudge(t *testing.T) {
	whole := Identity{ProviderARN: judgedProvider, Issuer: judgedIssuer, Subject: judgedSubject, Audience: "sts.amazonaws.com"}
	structure := Identity{ProviderARN: judgedProvider, Issuer: judgedIssuer}
	const k, other = "oidc.example.com/prod-a", "old.example.com/prod-a"
	for _, tt := range []struct {
		name, condition  string
		whole, structure Truth
	}{
		{"no condition", ``, Yes, Yes},
		{"the subject", `"StringEquals":{"` + k + `:sub":"system:serviceaccount:ns:app"}`, Yes, Unknown},
		{"one of several subjects", `"StringEquals":{"` + k + `:sub":["x","system:serviceaccount:ns:app"]}`, Yes, Unknown},
		{"another subject", `"StringEquals":{"` + k + `:sub":"system:serviceaccount:ns:other"}`, No, Unknown},
		{"the subject in another case", `"StringEquals":{"` + k + `:sub":"system:serviceaccount:ns:App"}`, No, Unknown},
		{"case ignored", `"StringEqualsIgnoreCase":{"` + k + `:sub":"system:serviceaccount:ns:App"}`, Yes, Unknown},
		{"a pattern", `"StringLike":{"` + k + `:sub":"system:serviceaccount:n?:*"}`, Yes, Unknown},
		{"a pattern that does not match", `"StringLike":{"` + k + `:sub":"system:serviceacount:ns:*"}`, No, Unknown},
		{"a pattern compared letter for letter", `"StringEquals":{"` + k + `:sub":"system:serviceaccount:ns:*"}`, No, Unknown},
		{"the audience and the subject", `"StringEquals":{"` + k + `:aud":"sts.amazonaws.com","` + k + `:sub":"system:serviceaccount:ns:app"}`, Yes, Unknown},
		{"another audience", `"StringEquals":{"` + k + `:aud":"openshift","` + k + `:sub":"system:serviceaccount:ns:app"}`, No, Unknown},
		{"any but another subject", `"StringNotEquals":{"` + k + `:sub":"system:serviceaccount:ns:other"}`, Yes, Unknown},
		{"any but the subject", `"StringNotLike":{"` + k + `:sub":"system:serviceaccount:ns:*"}`, No, Unknown},
		{"a key of another issuer", `"StringEquals":{"` + other + `:sub":"system:serviceaccount:ns:app"}`, No, No},
		{"a key of another issuer, negated", `"StringNotEquals":{"` + other + `:sub":"x"}`, Yes, Yes},
		{"a key of another issuer, if it exists", `"StringEqualsIfExists":{"` + other + `:sub":"x"}`, Yes, Yes},
		{"a claim that is not in Kubernetes' tokens", `"StringEquals":{"` + k + `:amr":"x"}`, No, No},
		{"all of no values", `"ForAllValues:StringEquals":{"` + k + `:amr":"x"}`, Yes, Yes},
		{"any of no values", `"ForAnyValue:StringEquals":{"` + k + `:amr":"x"}`, No, No},
		{"any of no values that is not it", `"ForAnyValue:StringNotEquals":{"` + k + `:amr":"x"}`, No, No},
		{"all of the subjects", `"ForAllValues:StringEquals":{"` + k + `:sub":"system:serviceaccount:ns:other"}`, No, Unknown},
		{"a subject has to be absent", `"Null":{"` + k + `:sub":"true"}`, No, No},
		{"a subject has to be present", `"Null":{"` + k + `:sub":"false"}`, Yes, Yes},
		{"a key in another case", `"StringEquals":{"OIDC.example.com/prod-a:sub":"system:serviceaccount:ns:app"}`, Unknown, Unknown},
		{"a key of IAM's own", `"IpAddress":{"aws:SourceIp":"192.0.2.0/24"}`, Unknown, Unknown},
		{"a variable", `"StringEquals":{"` + k + `:sub":"system:serviceaccount:${aws:PrincipalTag/ns}:app"}`, Unknown, Unknown},
		{"a variable beside the subject", `"StringEquals":{"` + k + `:sub":["${aws:x}","system:serviceaccount:ns:app"]}`, Yes, Unknown},
		{"a comparison that is not for text", `"NumericEquals":{"` + k + `:sub":"1"}`, Unknown, Unknown},
	} {
		allow := statementFor("Allow", judgedProvider, "sts:AssumeRoleWithWebIdentity", tt.condition)
		deny := statementFor("Deny", judgedProvider, "sts:*", tt.condition)
		for id, want := range map[Identity]Truth{whole: tt.whole, structure: tt.structure} {
			if got := Decide(judged(t, id, allow)); got != want {
				t.Errorf("%s: Decide(%+v) = %v, want %v", tt.name, id, got, want)
			}
			open := statementFor("Allow", judgedProvider, "sts:AssumeRoleWithWebIdentity", "")
			if got := Decide(judged(t, id, open+","+deny)); got != want.not() {
				t.Errorf("%s, denied: Decide(%+v) = %v, want %v", tt.name, id, got, want.not())
			}
		}
	}
}

func TestJudgeActionsAndPrincipals(t *testing.T) {
	id := Identity{ProviderARN: judgedProvider, Issuer: judgedIssuer, Subject: judgedSubject, Audience: "a"}
	for statement, want := range map[string]Truth{
		statementFor("Allow", "*", "sts:AssumeRoleWithWebIdentity", ""):                                           Unknown,
		statementFor("Allow", judgedProvider, "sts:assumerolewithwebidentity", ""):                                Yes,
		statementFor("Allow", judgedProvider, "sts:AssumeRole*", ""):                                              Yes,
		statementFor("Allow", judgedProvider, "sts:AssumeRole", ""):                                               No,
		statementFor("Allow", judgedProvider+"/", "sts:*", ""):                                                    No,
		statementFor("Allow", "arn:aws:iam::210987654321:oidc-provider/oidc.example.com/prod-a", "*", ""):         No,
		`{"Effect":"Allow","Principal":{"Federated":"` + judgedProvider + `"},"NotAction":"sts:TagSession"}`:      Yes,
		`{"Effect":"Allow","Principal":{"Federated":"` + judgedProvider + `"},"NotAction":"sts:Assume*"}`:         No,
		`{"Effect":"Allow","Principal":{"Federated":["x","` + judgedProvider + `"]},"Action":["sts:*"]}`:          Yes,
		`{"Effect":"Allow","Principal":"*","Action":"sts:*"}`:                                                     Yes,
		`{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:*"}`:                                             Unknown,
		`{"Effect":"Allow","NotPrincipal":{"AWS":"arn:aws:iam::123456789012:root"},"Action":"sts:*"}`:             Unknown,
		`{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::123456789012:root"},"Action":"sts:AssumeRole"}`:       No,
		`{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRoleWithWebIdentity"}`: No,
	} {
		if got := Decide(judged(t, id, statement)); got != want {
			t.Errorf("%s: %v, want %v", statement, got, want)
		}
	}
}

// What does not hold is named, so that a reader can find it in the policy.
func TestJudgementNamesTheCondition(t *testing.T) {
	id := Identity{ProviderARN: judgedProvider, Issuer: judgedIssuer, Subject: judgedSubject, Audience: "a"}
	got := judged(t, id, statementFor("Deny", "x", "sts:*", "")+","+statementFor("Allow", judgedProvider, "sts:*",
		`"StringLike":{"oidc.example.com/prod-a:sub":["b","a"]},"StringEquals":{"old.example.com:aud":"a"}`))
	want := []Test{
		{Operator: "StringEquals", Key: "old.example.com:aud", Values: []string{"a"}, OtherIssuer: true},
		{Operator: "StringLike", Key: "oidc.example.com/prod-a:sub", Values: []string{"a", "b"}, Claim: "sub"},
	}
	if len(got) != 2 || !got[0].Deny || got[0].Applies() != No || got[1].Number != 2 || fmt.Sprint(got[1].Tests) != fmt.Sprint(want) {
		t.Errorf("Judge = %+v", got)
	}
}

func TestAsksFor(t *testing.T) {
	id := Identity{ProviderARN: judgedProvider, Issuer: judgedIssuer}
	asks := func(values string) string {
		return statementFor("Allow", judgedProvider, "sts:AssumeRoleWithWebIdentity", `"StringEquals":{"oidc.example.com/prod-a:aud":`+values+`}`)
	}
	for statements, want := range map[string]string{
		asks(`"b"`):                           "[b]",
		asks(`["c","b"]`) + "," + asks(`"a"`): "[a b c]",
		asks(`"b"`) + "," + statementFor("Allow", judgedProvider, "sts:*", ""):                                  "[]",
		asks(`"b"`) + "," + statementFor("Allow", "arn:aws:iam::1:oidc-provider/x", "sts:*", ""):                "[b]",
		asks(`"b"`) + "," + statementFor("Deny", judgedProvider, "sts:*", ""):                                   "[b]",
		statementFor("Allow", judgedProvider, "sts:*", `"StringNotEquals":{"oidc.example.com/prod-a:aud":"a"}`): "[]",
		statementFor("Allow", judgedProvider, "sts:*", `"StringLike":{"oidc.example.com/prod-a:aud":"a*"}`):     "[]",
	} {
		d, err := Parse(`{"Statement":[` + statements + `]}`)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(d.AsksFor(id, "aud")); got != want {
			t.Errorf("%s: %s, want %s", statements, got, want)
		}
	}
}

// Plus leaves what is there byte for byte.
func TestPlus(t *testing.T) {
	const there = `{"Version":"2012-10-17","Statement":[{"Effect" : "Allow","Principal":{"AWS":"x"},"Action":"sts:AssumeRole"}]}`
	d, err := Parse(there)
	if err != nil {
		t.Fatal(err)
	}
	trust := Trust{ProviderARN: judgedProvider, Issuer: judgedIssuer, Audiences: []string{"a"}}
	plus := d.Plus(trust, []string{judgedSubject})
	if got := plus.String(); got[:len(there)-2] != there[:len(there)-2] || d.String() != there {
		t.Errorf("Plus = %s", got)
	}
	if got := Decide(plus.Judge(Identity{ProviderARN: judgedProvider, Issuer: judgedIssuer, Subject: judgedSubject, Audience: "a"})); got != Yes {
		t.Errorf("the plus does not let it in: %v", got)
	}
	if got := fmt.Sprint(plus.Providers()); got != "["+judgedProvider+"]" {
		t.Errorf("Providers = %s", got)
	}
}
