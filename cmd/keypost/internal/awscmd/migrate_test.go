package awscmd

import "testing"

func TestBucketName(t *testing.T) {
	for issuer, want := range map[string]string{
		"https://prod-a-oidc.s3.us-east-1.amazonaws.com":           "prod-a",
		"https://prod.a-oidc.s3.cn-north-1.amazonaws.com.cn":       "prod.a",
		"https://prod-a-oidc.s3-us-gov-west-1.amazonaws.com":       "prod-a",
		"https://mybucket.s3.us-east-1.amazonaws.com":              "",
		"https://prod-a-oidc.s3.us-east-1.amazonaws.com/path":      "",
		"https://prod-a-oidc.s3.us-east-1.amazonaws.com.evil.test": "",
		"https://prod-a-oidc.s3.eusc-de-east-1.amazonaws.eu":       "prod-a",
		"https://prod-a-oidc.s3.us-iso-east-1.c2s.ic.gov":          "prod-a",
		"https://prod-a-oidc.s3.us-isob-east-1.sc2s.sgov.gov":      "prod-a",
	} {
		if got := bucketName(issuer); got != want {
			t.Errorf("bucketName(%s) = %q, want %q", issuer, got, want)
		}
	}
}
