package fakegcp

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/iam/v1"

	"github.com/keypost/keypost/test/fakecloud/cluster"
)

func TestAPoolIsMadeSeenChangedAndDeleted(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s := Start(t, Options{Now: clock.Now})
	pools := poolsOf(t, s)
	_, err := pools.Get(poolPath).Do()
	refused(t, err, http.StatusNotFound, "Requested entity was not found.")

	op := must(pools.Create(locations, &iam.WorkloadIdentityPool{DisplayName: "d", State: "ACTIVE", Name: "x"}).WorkloadIdentityPoolId("prod-a").Do())(t)
	if !op.Done || !strings.HasPrefix(op.Name, numbered+"/operations/") || !strings.Contains(string(op.Response), `"displayName":"d"`) {
		t.Errorf("%+v %s", op, op.Response)
	}
	_, err = pools.Create(locations, &iam.WorkloadIdentityPool{}).WorkloadIdentityPoolId("prod-a").Do()
	refused(t, err, http.StatusConflict, "Requested entity already exists, alreadyExists")

	must(pools.Patch(poolPath, &iam.WorkloadIdentityPool{Description: "new"}).UpdateMask("description,display_name").Do())(t)
	p := must(pools.Get(poolPath).Do())(t)
	if p.Name != numbered || p.DisplayName != "" || p.Description != "new" || p.State != "ACTIVE" {
		t.Errorf("%+v", p)
	}
	_, err = pools.Patch(poolPath, &iam.WorkloadIdentityPool{}).Do()
	refused(t, err, http.StatusBadRequest, "update_mask")
	_, err = pools.Patch(poolPath, &iam.WorkloadIdentityPool{}).UpdateMask("state").Do()
	refused(t, err, http.StatusBadRequest, "state")

	must(pools.Delete(poolPath).Do())(t)
	p = must(pools.Get(poolPath).Do())(t)
	if p.State != "DELETED" || p.ExpireTime != clock.Now().Add(30*24*time.Hour).Format(time.RFC3339Nano) && !strings.HasPrefix(p.ExpireTime, "20") {
		t.Errorf("%+v", p)
	}
	_, err = pools.Create(locations, &iam.WorkloadIdentityPool{}).WorkloadIdentityPoolId("prod-a").Do()
	refused(t, err, http.StatusConflict, "already exists")
	_, err = pools.Patch(poolPath, &iam.WorkloadIdentityPool{}).UpdateMask("disabled").Do()
	refused(t, err, http.StatusBadRequest, "failedPrecondition")
	_, err = pools.Delete(poolPath).Do()
	refused(t, err, http.StatusNotFound, "")
	if l := must(pools.List(locations).Do())(t); len(l.WorkloadIdentityPools) != 0 {
		t.Error("a deleted pool is listed")
	}
	if l := must(pools.List(locations).ShowDeleted(true).Do())(t); len(l.WorkloadIdentityPools) != 1 {
		t.Error("a deleted pool is not listed when asked for")
	}
	must(pools.Undelete(poolPath, &iam.UndeleteWorkloadIdentityPoolRequest{}).Do())(t)
	_, err = pools.Undelete(poolPath, &iam.UndeleteWorkloadIdentityPoolRequest{}).Do()
	refused(t, err, http.StatusBadRequest, "failedPrecondition")
	if st := s.State(); len(st.Pools) != 1 || st.Pools[0].State != active || st.Pools[0].ExpireTime != nil {
		t.Errorf("%+v", st.Pools)
	}
}

func TestAPoolTakesItsProvidersAlong(t *testing.T) {
	t.Parallel()
	for _, revive := range []bool{false, true} {
		s := Start(t, Options{ReviveProviders: revive})
		pools := poolsOf(t, s)
		makePool(t, s)
		makeProvider(t, s, goodProvider())
		must(pools.Delete(poolPath).Do())(t)
		if p := must(pools.Providers.Get(provPath).Do())(t); p.State != "DELETED" || p.ExpireTime == "" {
			t.Errorf("%+v", p)
		}
		_, err := pools.Providers.Undelete(provPath, &iam.UndeleteWorkloadIdentityPoolProviderRequest{}).Do()
		refused(t, err, http.StatusBadRequest, "failedPrecondition")
		_, err = pools.Providers.Create(poolPath, goodProvider()).WorkloadIdentityPoolProviderId("prod-b").Do()
		refused(t, err, http.StatusBadRequest, "failedPrecondition")
		must(pools.Undelete(poolPath, &iam.UndeleteWorkloadIdentityPoolRequest{}).Do())(t)
		if p := must(pools.Providers.Get(provPath).Do())(t); (p.State == "ACTIVE") != revive {
			t.Errorf("%v: %+v", revive, p)
		}
		_, err = pools.Providers.Undelete(provPath, &iam.UndeleteWorkloadIdentityPoolProviderRequest{}).Do()
		if (err != nil) != revive {
			t.Error(err)
		}
	}
}

func TestAProviderIsCheckedBeforeItIsKept(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{AllowedIssuers: []string{issuerURL}})
	makePool(t, s)
	k1, k2 := signer("k1").Public(), signer("k2").Public()
	mapping := func(pairs ...string) func(*iam.WorkloadIdentityPoolProvider) {
		return func(p *iam.WorkloadIdentityPoolProvider) {
			for i := 0; i < len(pairs); i += 2 {
				p.AttributeMapping[pairs[i]] = pairs[i+1]
			}
		}
	}
	issuer := func(u string) func(*iam.WorkloadIdentityPoolProvider) {
		return func(p *iam.WorkloadIdentityPoolProvider) { p.Oidc.IssuerUri = u }
	}
	jwks := func(text string) func(*iam.WorkloadIdentityPoolProvider) {
		return func(p *iam.WorkloadIdentityPoolProvider) { p.Oidc.JwksJson = text }
	}
	condition := func(text string) func(*iam.WorkloadIdentityPoolProvider) {
		return func(p *iam.WorkloadIdentityPoolProvider) { p.AttributeCondition = text }
	}
	for name, c := range map[string]struct {
		change func(*iam.WorkloadIdentityPoolProvider)
		says   string
	}{
		"plain http": {issuer("http://oidc.example.com/prod-a"), "Invalid OIDC issuer URI. The scheme must be https."},
		"no URL":     {issuer("oidc"), "Invalid OIDC issuer URI."},
		"a query":    {issuer(issuerURL + "?a"), "Invalid OIDC issuer URI."},
		"no issuer":  {issuer(""), "Invalid OIDC issuer URI."},
		"nothing":    {func(p *iam.WorkloadIdentityPoolProvider) { p.Oidc = nil }, "oidc"},
		"eleven audiences": {func(p *iam.WorkloadIdentityPoolProvider) {
			p.Oidc.AllowedAudiences = strings.Split(strings.Repeat("a", 11), "")
		}, "allowed_audiences"},
		"a discovery": {func(p *iam.WorkloadIdentityPoolProvider) {
			p.Oidc.DiscoveryUri = "https://else.example.com/.well-known/x"
		}, "discovery"},
		"no subject":    {func(p *iam.WorkloadIdentityPoolProvider) { p.AttributeMapping = nil }, "google.subject"},
		"no expression": {mapping("attribute.name", "assertion."), "attribute.name"},
		"a condition":   {condition("assertion.sub =="), "attribute condition"},
		"no JSON":       {jwks("keys"), "Input JWK is not in a valid json format."},
		"x5c":           {jwks(`{"keys":[{"kty":"RSA","x5c":["a"]}]}`), "Input JWK is not in a valid json format."},
		"Ed25519":       {jwks(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"a"}]}`), "Input jwks contains corrupted key material."},
		"P-384":         {jwks(`{"keys":[{"kty":"EC","crv":"P-384","x":"a","y":"a"}]}`), "Only RSA, EC key types are supported."},
		"nine keys":     {jwks(`{"keys":[` + strings.Repeat(`{"kty":"RSA"},`, 8) + `{"kty":"RSA"}]}`), "At most 8 keys"},
	} {
		p := goodProvider()
		c.change(p)
		_, err := poolsOf(t, s).Providers.Create(poolPath, p).WorkloadIdentityPoolProviderId("prod-a").Do()
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "400") {
			t.Errorf("%s: got %v\nwant …%s…", name, err, c.says)
		}
	}
	p := goodProvider()
	issuer(issuerURL + "/other")(p)
	_, err := poolsOf(t, s).Providers.Create(poolPath, p).WorkloadIdentityPoolProviderId("prod-a").Do()
	details := refused(t, err, http.StatusBadRequest, "Precondition check failed.")
	if !strings.Contains(details, "Org Policy violated for value: '"+issuerURL+"/other'.") || !strings.Contains(details, poolConstraint) {
		t.Error(details)
	}

	p = goodProvider()
	jwks(upload(t, k1, k2))(p)
	condition("assertion.sub.startsWith('system:')")(p)
	makeProvider(t, s, p)
	_, err = poolsOf(t, s).Providers.Patch(provPath, &iam.WorkloadIdentityPoolProvider{Oidc: &iam.Oidc{IssuerUri: issuerURL + "/b"}}).UpdateMask("oidc.issuer_uri").Do()
	refused(t, err, http.StatusBadRequest, "Precondition")
}

func TestAProviderIsPatchedByItsMask(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	makePool(t, s)
	providers := poolsOf(t, s).Providers
	p := goodProvider()
	p.Oidc.JwksJson = upload(t, signer("k1").Public())
	makeProvider(t, s, p)
	_, err := providers.Create(poolPath, goodProvider()).WorkloadIdentityPoolProviderId("prod-a").Do()
	refused(t, err, http.StatusConflict, "Requested entity already exists")

	patch := func(mask string, p *iam.WorkloadIdentityPoolProvider) OIDC {
		t.Helper()
		must(providers.Patch(provPath, p).UpdateMask(mask).Do())(t)
		return *s.State().Providers[0].OIDC
	}
	if o := patch("oidc.allowed_audiences", &iam.WorkloadIdentityPoolProvider{Oidc: &iam.Oidc{AllowedAudiences: []string{"a"}}}); o.Issuer != issuerURL || o.Audiences[0] != "a" || o.JWKS == "" {
		t.Errorf("%+v", o)
	}
	if o := patch("oidc.jwksJson", &iam.WorkloadIdentityPoolProvider{Oidc: &iam.Oidc{}}); o.JWKS == "" {
		t.Error("an upload that was not sent is gone")
	}
	if o := patch("oidc.jwks_json", &iam.WorkloadIdentityPoolProvider{Oidc: &iam.Oidc{ForceSendFields: []string{"JwksJson"}}}); o.JWKS != "" || o.Issuer != issuerURL {
		t.Errorf("%+v", o)
	}
	patch("display_name,description,disabled,attribute_condition,attribute_mapping,oidc", &iam.WorkloadIdentityPoolProvider{DisplayName: "d", Description: "e",
		Disabled: true, AttributeCondition: "true", AttributeMapping: map[string]string{"google.subject": "assertion.jti"}, Oidc: &iam.Oidc{IssuerUri: issuerURL}})
	if got := s.State().Providers[0]; got.DisplayName != "d" || !got.Disabled || got.Condition != "true" || got.Mapping["google.subject"] != "assertion.jti" || got.OIDC.Audiences != nil {
		t.Errorf("%+v", got)
	}
	_, err = providers.Patch(provPath, goodProvider()).UpdateMask("name").Do()
	refused(t, err, http.StatusBadRequest, "name")

	must(providers.Delete(provPath).Do())(t)
	_, err = providers.Delete(provPath).Do()
	refused(t, err, http.StatusNotFound, "")
	_, err = providers.Patch(provPath, goodProvider()).UpdateMask("disabled").Do()
	refused(t, err, http.StatusBadRequest, "failedPrecondition")
	_, err = providers.Create(poolPath, goodProvider()).WorkloadIdentityPoolProviderId("prod-a").Do()
	refused(t, err, http.StatusConflict, "already exists")
	if l := must(providers.List(poolPath).Do())(t); len(l.WorkloadIdentityPoolProviders) != 0 {
		t.Error("a deleted provider is listed")
	}
	if l := must(providers.List(poolPath).ShowDeleted(true).Do())(t); len(l.WorkloadIdentityPoolProviders) != 1 {
		t.Error("a deleted provider is not listed when asked for")
	}
	must(providers.Undelete(provPath, &iam.UndeleteWorkloadIdentityPoolProviderRequest{}).Do())(t)
	_, err = providers.Get(poolPath + "/providers/absent").Do()
	refused(t, err, http.StatusNotFound, "Requested entity was not found.")
}
