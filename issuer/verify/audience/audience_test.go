package audience

import (
	"slices"
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
