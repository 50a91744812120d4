package iampolicy

import (
	"fmt"
	"testing"
)

const (
	judgedIssuer   = "https://oidc.example.com/prod-a"
	judgedProvider = "arn:aws:iam::123456789012:oidc-provider/oidc.example.com/prod-a"
)

func statementFor(effect, provider, action, condition string) string {
	return fmt.Sprintf(`{"Effect":%q,"Principal":{"Federated":%q},"Action":%q,"Condition":{%s}}`, effect, provider, action, condition)
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
