package audience

import (
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore/party"
)

func TestIsOf(t *testing.T) {
	for audience, want := range map[string][]string{
		"sts.amazonaws.com":                  {finding.AWS},
		"sts.amazonaws.com.cn":               {finding.AWS},
		"sts.amazonaws.com.evil":             nil,
		"openshift":                          {finding.AWS, finding.Entra, finding.GCP},
		"openshift2":                         nil,
		"//iam.googleapis.com/projects/1":    {finding.GCP},
		"https://iam.googleapis.com/p/1":     {finding.GCP},
		"https://iam.googleapis.com.evil/":   nil,
		"api://AzureADTokenExchange":         {finding.Entra},
		"api://AzureADTokenExchangeUSGov":    {finding.Entra},
		"api://AzureADTokenExchangeChina":    {finding.Entra},
		"api://AzureADTokenExchangeNowhere":  nil,
		"https://kubernetes.default.svc":     nil,
		"https://vault.example.com":          nil,
		"":                                   nil,
		"x//iam.googleapis.com/projects/1/x": nil,
	} {
		var got []string
		for _, known := range party.Known() {
			if IsOf(known, audience) {
				got = append(got, known)
			}
		}
		if !slices.Equal(got, want) || IsClouds(audience) != (len(want) > 0) {
			t.Errorf("%q is asked for by %q, want %q; by a cloud: %v", audience, got, want, IsClouds(audience))
		}
	}
}

// TestEveryParty: each known relying party has audiences of its own, or a place where they are chosen.
func TestEveryParty(t *testing.T) {
	for _, known := range party.Known() {
		if named := !strings.Contains(Chosen(known), "not known"); named != (len(Of(known)) == 0) {
			t.Errorf("%s asks for %q by default, and: %s", known, Of(known), Chosen(known))
		}
	}
	if got := Chosen("snowflake"); got != "snowflake's is not known here" {
		t.Errorf("of a party that is not known: %s", got)
	}
}

func TestIsClusters(t *testing.T) {
	for audience, want := range map[string]bool{
		"https://a.example.com": true, "https://b.example.com": true, "https://a.example.com/": false, "https://c.example.com": false,
		"https://kubernetes.default.svc": true, "https://kubernetes.default.svc.cluster.local": true, "kubernetes.default.svc": false, "": false,
	} {
		if got := IsClusters(audience, "https://a.example.com", "https://b.example.com"); got != want {
			t.Errorf("%q is the cluster's: %v", audience, got)
		}
	}
}

func TestToTry(t *testing.T) {
	for _, c := range []struct{ parties, want []string }{
		{nil, []string{"sts.amazonaws.com"}},
		{[]string{"entra", "aws"}, []string{"sts.amazonaws.com"}},
		{[]string{"vault", "entra"}, []string{"api://AzureADTokenExchange"}},
		{[]string{"gcp"}, nil},
		{[]string{"vault"}, nil},
	} {
		if got := ToTry(c.parties); !slices.Equal(got, c.want) {
			t.Errorf("for %q: %q, want %q", c.parties, got, c.want)
		}
	}
}

// TestFit: the advice is for the relying parties that are declared, and for every cloud where none is.
func TestFit(t *testing.T) {
	const gcp = "for GCP an allowed audience of the provider, or //iam.googleapis.com/ and the provider's name where it has none"
	for parties, want := range map[string]string{
		"":          finding.AnyAudience,
		"aws":       "sts.amazonaws.com",
		"entra":     "api://AzureADTokenExchange",
		"gcp":       "AUDIENCE (" + gcp + ")",
		"entra aws": "AUDIENCE (api://AzureADTokenExchange for Entra, sts.amazonaws.com for AWS)",
		"gcp vault": "AUDIENCE (" + gcp + ", vault's is in bound_audiences of its role)",
		"snowflake": "AUDIENCE (snowflake's is not known here)",
	} {
		findings := []finding.Finding{finding.CauseOf("token-malformed").Finding(finding.Fail, "", ""), finding.CauseOf("token-expired").Finding(finding.Fail, "", "")}
		Fit(findings, strings.Fields(parties))
		if got := findings[0].Repair; got != "make one with kubectl create token SERVICEACCOUNT --audience "+want+", and give the whole of it" {
			t.Errorf("for %q: %s", parties, got)
		}
		if findings[1].Repair != finding.CauseOf("token-expired").Repair {
			t.Errorf("for %q another repair is %s", parties, findings[1].Repair)
		}
	}
	for _, cloud := range []string{finding.AWS, finding.Entra, finding.GCP} {
		if !strings.Contains(finding.AnyAudience, askedBy(cloud)) {
			t.Errorf("of no declared party the advice lacks %s", askedBy(cloud))
		}
	}
}

// TestNoCloudsAdvice: no repair of a token tells an audience of one cloud alone, whatever is declared.
func TestNoCloudsAdvice(t *testing.T) {
	for _, c := range finding.Causes() {
		rest := strings.ReplaceAll(c.Repair, finding.AnyAudience, "")
		if strings.HasPrefix(c.Code, "token-") && strings.Contains(rest, Of(finding.AWS)[0]) {
			t.Errorf("%s: %s", c.Code, c.Repair)
		}
	}
}
