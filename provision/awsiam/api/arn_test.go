package api

import "testing"

func TestProviderURLRefuses(t *testing.T) {
	t.Parallel()
	for _, arn := range []string{
		"", "oidc-provider/h", "arn:aws:iam::111122223333:oidc-provider/", "arn:aws:iam::111122223333:saml-provider/h", "arn:aws:iam::aws:oidc-provider/h",
		"arn:aws:iam:us-east-1:111122223333:oidc-provider/h", "arn:aws:sts::111122223333:oidc-provider/h", "arn::iam::111122223333:oidc-provider/h",
	} {
		if u, err := ProviderURL(arn); err == nil {
			t.Errorf("%q: %s", arn, u)
		}
	}
}
