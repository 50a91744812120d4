package webidentity

import (
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/provision/iampolicy"
)

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
		found := a.CheckTrust(d)
		finding.Sort(found)
		if len(found) == 0 || found[0].Code != tt.code || found[0].Severity != tt.severity {
			t.Errorf("%s: %+v; want %s %s first", name, found, tt.severity, tt.code)
		}
	}
}
