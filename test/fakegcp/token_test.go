package fakegcp

import (
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/test/fakecloud/cluster"
)

func TestATokenIsAcceptedOnlyWhenAllOfItIsRight(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{}, nil)
	now := st.clock.Now()
	if err := st.try(t); err != nil {
		t.Fatal(err)
	}
	const stale = "is stale to sign-in."
	for name, c := range map[string]struct {
		claims []any
		says   string
	}{
		"another issuer": {[]any{"iss", issuerURL + "/"}, `"invalid_grant","error_description":"The issuer in ID Token ` + issuerURL +
			`/ does not match the expected one in config: ` + issuerURL + `."`},
		"another case":       {[]any{"iss", strings.Replace(issuerURL, "prod", "Prod", 1)}, "does not match the expected one in config"},
		"no issuer":          {[]any{"iss", nil}, "The issuer in ID Token null does not match"},
		"another audience":   {[]any{"aud", "other"}, `"invalid_grant","error_description":"The audience in ID Token [other] does not match the expected audience."`},
		"the default one":    {[]any{"aud", "https://iam.googleapis.com/" + numbered + "/providers/prod-a"}, "does not match the expected audience."},
		"no audience":        {[]any{"aud", nil}, "The audience in ID Token [] does not"},
		"expired":            {[]any{"exp", now.Add(-61 * time.Second).Unix()}, stale},
		"of the future":      {[]any{"iat", now.Add(61 * time.Second).Unix()}, stale},
		"longer than a day":  {[]any{"exp", now.Add(24*time.Hour + time.Second).Unix()}, stale},
		"no exp":             {[]any{"exp", nil}, stale},
		"no iat":             {[]any{"iat", nil}, "ID Token issued at null is stale"},
		"no subject":         {[]any{"sub", nil}, "google.subject is missing"},
		"a long subject":     {[]any{"sub", strings.Repeat("s", 128)}, `"invalid_request","error_description":"The size of mapped attribute google.subject exceeds the 127 bytes limit.`},
		"another subject":    {[]any{"sub", subject + "2"}, "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist)."},
		"another namespace":  {[]any{"sub", "system:serviceaccount:ns2:sa"}, "getAccessToken"},
		"a subject in parts": {[]any{"sub", "system:serviceaccount:NS:sa"}, "getAccessToken"},
	} {
		err := st.try(t, c.claims...)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v\nwant …%s…", name, err, c.says)
		}
	}
	for name, claims := range map[string][]any{
		"many audiences": {"aud", []string{"a", "openshift"}},
		"one audience":   {"aud", "openshift"},
		"a clock apart":  {"exp", now.Add(-59 * time.Second).Unix(), "iat", now.Add(59 * time.Second).Unix()},
		"a whole day":    {"exp", now.Add(24 * time.Hour).Unix()},
	} {
		if err := st.try(t, claims...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATokenIsBelievedOnlyWithAPublishedKey(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{}, nil)
	other := signer("k2")
	const unreached = `"invalid_grant","error_description":"Error connecting to the given credential's issuer."`
	now := cluster.Workload(st.clock.Now())
	says(t, st.tryToken(t, other.Sign(t, now)), unreached)
	forged := other
	forged.KID = "k1"
	says(t, st.tryToken(t, forged.Sign(t, now)), "Unable to verify the ID Token signature.")
	unnamed := st.key
	unnamed.KID = ""
	says(t, st.tryToken(t, unnamed.Sign(t, now)), unreached)
	for _, alg := range []jose.SignatureAlgorithm{jose.RS384, jose.PS256} {
		wrong := st.key
		wrong.Alg = alg
		says(t, st.tryToken(t, wrong.Sign(t, now)), unreached)
	}
	says(t, st.tryToken(t, "a.b.c"), "Unable to parse the ID Token.")

	// The copy is kept as long as the issuer says.
	st.issuer.Change(func(i *cluster.Issuer) { i.Keys = append(i.Keys, other.Public()) })
	says(t, st.tryToken(t, other.Sign(t, now)), unreached)
	st.clock.Pass(5 * time.Minute)
	if err := st.tryToken(t, other.Sign(t, now)); err != nil {
		t.Error("the copy did not lapse:", err)
	}
	st.issuer.Change(func(i *cluster.Issuer) { i.Headers.Set("Cache-Control", "no-store"); i.Keys = i.Keys[1:] })
	st.clock.Pass(5 * time.Minute)
	says(t, st.tryToken(t, st.key.Sign(t, now)), unreached)
	if err := st.tryToken(t, other.Sign(t, now)); err != nil {
		t.Error(err)
	}
}
