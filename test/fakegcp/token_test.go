package fakegcp

import (
	"crypto/elliptic"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/api/iam/v1"

	"github.com/keypost/keypost/test/fakecloud/cluster"
	"github.com/keypost/keypost/test/keys"
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

func TestEllipticKeysAreP256Only(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{}, nil)
	p256 := cluster.Signer{KID: "e1", Alg: jose.ES256, Key: keys.EC(elliptic.P256(), 1)}
	p384 := cluster.Signer{KID: "e2", Alg: jose.ES384, Key: keys.EC(elliptic.P384(), 1)}
	unnamed := cluster.Signer{KID: "", Alg: jose.ES256, Key: keys.EC(elliptic.P256(), 2)}
	st.issuer.Keys = []jose.JSONWebKey{p256.Public(), p384.Public(), unnamed.Public()}
	if err := st.tryToken(t, p256.Sign(t, cluster.Workload(st.clock.Now()))); err != nil {
		t.Error(err)
	}
	for _, key := range []cluster.Signer{p384, unnamed} { // a key needs a name, too
		says(t, st.tryToken(t, key.Sign(t, cluster.Workload(st.clock.Now()))), "Error connecting to the given credential's issuer.")
	}
}

func TestAnIssuerThatDoesNotAnswerAsItShouldIsOutOfReach(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*cluster.Issuer){
		"another issuer in it":  func(i *cluster.Issuer) { i.Discovery["issuer"] = issuerURL + "/" },
		"no jwks_uri":           func(i *cluster.Issuer) { delete(i.Discovery, "jwks_uri") },
		"keys over plain http":  func(i *cluster.Issuer) { i.Discovery["jwks_uri"] = "http://oidc.example.com/prod-a/keys.json" },
		"no keys":               func(i *cluster.Issuer) { i.Keys = []jose.JSONWebKey{} },
		"a key set that is not": func(i *cluster.Issuer) { i.Discovery["jwks_uri"] = issuerURL + "/absent" },
		"a redirect":            func(i *cluster.Issuer) { i.Moved = true },
	} {
		st := newStage(t, Options{}, nil)
		st.issuer.Change(change)
		if err := st.try(t); err == nil || !strings.Contains(err.Error(), "Error connecting to the given credential's issuer.") {
			t.Errorf("%s: %v", name, err)
		}
	}
	st := newStage(t, Options{}, nil)
	s := Start(t, Options{Dial: st.issuer.Dial, Now: st.clock.Now})
	makePool(t, s)
	makeProvider(t, s, goodProvider())
	source := must(credentials(t, s, st.key.Sign(t, cluster.Workload(st.clock.Now())), ""))(t)
	_, err := source.Token()
	says(t, err, "Error connecting") // its certificate is nobody's
}

func TestTheDefaultAudienceIsTheProvidersName(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{}, func(p *iam.WorkloadIdentityPoolProvider) { p.Oidc.AllowedAudiences = nil })
	for _, prefix := range []string{"", "https:"} {
		if err := st.try(t, "aud", prefix+"//iam.googleapis.com/"+numbered+"/providers/prod-a"); err != nil {
			t.Error(err)
		}
	}
	says(t, st.try(t), "The audience in ID Token [openshift] does not match")
}

func TestWhatIsDisabledOrDeletedIsNoTarget(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{ReviveProviders: true}, nil)
	pools := poolsOf(t, st.Server)
	disable := func(off bool) func() (*iam.Operation, error) {
		return func() (*iam.Operation, error) {
			return pools.Providers.Patch(provPath, &iam.WorkloadIdentityPoolProvider{Disabled: off}).UpdateMask("disabled").Do()
		}
	}
	for name, c := range map[string]struct {
		off, on func() (*iam.Operation, error)
	}{
		"pool disabled": {
			func() (*iam.Operation, error) {
				return pools.Patch(poolPath, &iam.WorkloadIdentityPool{Disabled: true}).UpdateMask("disabled").Do()
			},
			func() (*iam.Operation, error) {
				return pools.Patch(poolPath, &iam.WorkloadIdentityPool{}).UpdateMask("disabled").Do()
			}},
		"provider disabled": {disable(true), disable(false)},
		"provider deleted": {
			func() (*iam.Operation, error) { return pools.Providers.Delete(provPath).Do() },
			func() (*iam.Operation, error) {
				return pools.Providers.Undelete(provPath, &iam.UndeleteWorkloadIdentityPoolProviderRequest{}).Do()
			}},
		"pool deleted": {
			func() (*iam.Operation, error) { return pools.Delete(poolPath).Do() },
			func() (*iam.Operation, error) {
				return pools.Undelete(poolPath, &iam.UndeleteWorkloadIdentityPoolRequest{}).Do()
			}},
	} {
		must(c.off())(t)
		err := st.try(t)
		if err == nil || !strings.Contains(err.Error(), `"invalid_target","error_description":"The target service indicated by the \"audience\" parameters is invalid.`) {
			t.Errorf("%s: %v", name, err)
		}
		must(c.on())(t)
		if err := st.try(t); err != nil {
			t.Errorf("%s, and back: %v", name, err)
		}
	}
}
