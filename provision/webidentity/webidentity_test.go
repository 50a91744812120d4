package webidentity

import (
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/iampolicy"
)

func attempt() Attempt {
	return Attempt{Role: "app", ProviderARN: "arn:aws:iam::123456789012:oidc-provider/oidc.example.com/a", Issuer: "https://oidc.example.com/a"}
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
		f := attempt().NoProvider(tt.urls, tt.trust)
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
		if f := a.CheckTrust(d)[0]; f.Code != "aws-trust-audience" || !strings.Contains(f.Repair, tt.repair) {
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
					for _, f := range append(append(b.CheckProvider(awsiam.ProviderState{ClientIDs: clients}, &d), b.CheckTrust(d)...), b.NoProvider(nil, &d)) {
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
