package fakeaws

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

const providerName = "arn:aws:iam::123456789012:oidc-provider/oidc.example.com/prod-a"

// texts are n different texts of at least length characters.
func texts(n, length int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%0*d", length, i))
	}
	return out
}

func tagged(keys ...string) []types.Tag {
	var out []types.Tag
	for _, k := range keys {
		out = append(out, types.Tag{Key: aws.String(k), Value: aws.String("owned")})
	}
	return out
}

func TestWhatAWSRefusesOfANewProvider(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	c := iamOf(s)
	for name, x := range map[string]struct {
		in         makeProvider
		code, says string
	}{
		"http": {makeProvider{Url: aws.String("http://oidc.example.com")},
			"ValidationError", "Invalid Open ID Connect Provider URL"},
		"no scheme":      {makeProvider{Url: aws.String("oidc.example.com")}, "ValidationError", "Invalid Open ID"},
		"no host":        {makeProvider{Url: aws.String("https:///prod")}, "ValidationError", "Invalid Open ID"},
		"a query":        {makeProvider{Url: aws.String(issuerURL + "?a=b")}, "ValidationError", "Invalid Open ID"},
		"an empty query": {makeProvider{Url: aws.String(issuerURL + "?")}, "ValidationError", "Invalid Open ID"},
		"a fragment":     {makeProvider{Url: aws.String(issuerURL + "#")}, "ValidationError", "Invalid Open ID"},
		"a user":         {makeProvider{Url: aws.String("https://me@oidc.example.com")}, "ValidationError", "Invalid Open ID"},
		"a port":         {makeProvider{Url: aws.String("https://oidc.example.com:8443")}, "ValidationError", "Invalid Open ID"},
		"256 characters": {makeProvider{Url: aws.String("https://oidc.example.com/" + strings.Repeat("a", 231))},
			"ValidationError", "less than or equal to 255"},
		"101 client IDs":          {makeProvider{ClientIDList: texts(101, 5)}, "LimitExceeded", "ClientIdsPerOpenIdConnectProvider: 100"},
		"a long client ID":        {makeProvider{ClientIDList: texts(1, 256)}, "ValidationError", "clientIDList.1.member"},
		"an empty client ID":      {makeProvider{ClientIDList: []string{""}}, "ValidationError", "clientIDList.1.member"},
		"six thumbprints":         {makeProvider{ThumbprintList: texts(6, 40)}, "LimitExceeded", "ThumbprintsPerOpenIdConnectProvider: 5"},
		"a short thumbprint":      {makeProvider{ThumbprintList: texts(1, 39)}, "ValidationError", "thumbprintList.1.member"},
		"a thumbprint not hex":    {makeProvider{ThumbprintList: []string{strings.Repeat("g", 40)}}, "InvalidInput", "thumbprint"},
		"51 tags":                 {makeProvider{Tags: tagged(texts(51, 3)...)}, "ValidationError", "tags"},
		"one tag in two cases":    {makeProvider{Tags: tagged("Name", "name")}, "InvalidInput", "Duplicate tag keys found"},
		"a tag of AWS":            {makeProvider{Tags: tagged("aws:x")}, "InvalidInput", "reserved"},
		"a long key":              {makeProvider{Tags: tagged(texts(1, 129)...)}, "ValidationError", "tags.1.member.key"},
		"a key with a bad letter": {makeProvider{Tags: tagged("a#b")}, "ValidationError", "tags.1.member.key"},
		"a long value": {makeProvider{Tags: []types.Tag{{Key: aws.String("k"), Value: &texts(1, 257)[0]}}},
			"ValidationError", "tags.1.member.value"},
	} {
		t.Run(name, func(t *testing.T) {
			in := x.in
			if in.Url == nil {
				in.Url = aws.String(issuerURL)
			}
			_, err := c.CreateOpenIDConnectProvider(t.Context(), &in)
			refused(t, err, x.code, x.says)
		})
	}
	if st := s.State(); len(st.Providers) != 0 {
		t.Errorf("a refused call has made %+v", st.Providers)
	}
	must(c.CreateOpenIDConnectProvider(t.Context(), &makeProvider{ClientIDList: texts(100, 255),
		Url:            aws.String("https://oidc.example.com/" + strings.Repeat("a", 230)),
		ThumbprintList: texts(5, 40), Tags: tagged(texts(50, 128)...)}))(t)
}

func TestAPortIsTakenOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	in := &makeProvider{Url: aws.String("https://oidc.example.com:8443/a")}
	made := must(iamOf(Start(t, Options{AllowPorts: true})).CreateOpenIDConnectProvider(t.Context(), in))(t)
	if got := *made.OpenIDConnectProviderArn; got != "arn:aws:iam::123456789012:oidc-provider/oidc.example.com:8443/a" {
		t.Error(got)
	}
}

func TestEveryPartitionHasItsOwnARNs(t *testing.T) {
	t.Parallel()
	for _, partition := range []string{"aws", "aws-us-gov", "aws-cn", "aws-iso", "aws-iso-b", "aws-iso-e", "aws-iso-f", "aws-eusc"} {
		s := Start(t, Options{Partition: partition, Account: "210987654321", User: "me"})
		if got := *must(stsOf(s).GetCallerIdentity(t.Context(), nil))(t).Arn; got != "arn:"+partition+":iam::210987654321:user/me" {
			t.Error(got)
		}
		made := must(iamOf(s).CreateOpenIDConnectProvider(t.Context(), &makeProvider{Url: aws.String(issuerURL)}))(t)
		if got := *made.OpenIDConnectProviderArn; got != "arn:"+partition+":iam::210987654321:oidc-provider/oidc.example.com/prod-a" {
			t.Error(got)
		}
	}
}
