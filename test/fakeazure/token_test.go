package fakeazure

import (
	"crypto/elliptic"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/test/fakecloud/cluster"
	"github.com/keypost/keypost/test/keys"
)

func TestAWorkloadGetsItsIdentitysToken(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{})
	r := st.try(t)
	if id, ok := st.ClientID(r.get("access_token")); r.status != 200 || !ok || id != st.client || r.get("token_type") != "Bearer" || r.get("expires_in") != "86399" {
		t.Fatal(r.text)
	}
	if st.issuer.Hits("/.well-known/openid-configuration") != 1 || st.issuer.Hits("/keys.json") != 1 {
		t.Error("the issuer's documents were not fetched")
	}
	if _, ok := st.ClientID(AccessToken); ok {
		t.Error("the caller is no identity")
	}

	// What it may do is what roles give it.
	token := r.get("access_token")
	if got := st.callAs(t, token, "GET", group, ""); got.status != 403 {
		t.Error(got.text)
	}
	principal := st.State().Identities[0].PrincipalID
	st.must(t, "PUT", assignments+"/"+guid("a"), assigned(reader, principal, ""))
	if got := st.callAs(t, token, "GET", group, ""); got.status != 200 {
		t.Error(got.text)
	}
	if got := st.callAs(t, token, "DELETE", group, ""); got.status != 403 {
		t.Error(got.text)
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{})
	now := st.clock.Now()
	const check = " Check your federated identity credential Subject, Audience and Issuer against the presented assertion. "
	for _, c := range []struct {
		name    string
		changes []any
		status  int
		want    string
	}{
		{"good", nil, 200, ""},
		{"other issuer", []any{"iss", "https://oidc.example.com/prod-b"}, 401,
			"AADSTS700211: No matching federated identity record found for presented assertion issuer 'https://oidc.example.com/prod-b'." + check},
		{"trailing slash", []any{"iss", cluster.IssuerURL + "/"}, 401, "AADSTS700211: "},
		{"other namespace", []any{"sub", "system:serviceaccount:other:sa"}, 401,
			"AADSTS700213: No matching federated identity record found for presented assertion subject 'system:serviceaccount:other:sa'." + check},
		{"other account", []any{"sub", cluster.Subject + "x"}, 401, "AADSTS700213: "},
		{"letter case of subject", []any{"sub", "system:serviceaccount:NS:sa"}, 401, "AADSTS7002138: No matching federated identity record found for presented assertion " +
			"subject 'system:serviceaccount:NS:sa'. The subject matches with case-insensitive comparison, but not with case-sensitive comparison."},
		{"letter case of issuer", []any{"iss", "https://OIDC.example.com/prod-a"}, 401, "AADSTS7002138: "},
		{"other audience", []any{"aud", "vault"}, 401, "AADSTS700212: No matching federated identity record found for presented assertion audience 'vault'." + check},
		{"letter case of audience", []any{"aud", []string{"OpenShift"}}, 401, "AADSTS7002138: "},
		{"expired", []any{"exp", now.Add(-10 * time.Minute).Unix()}, 401, "AADSTS700024: Client assertion is not within its valid time range. Current time: "},
		{"not yet", []any{"nbf", now.Add(10 * time.Minute).Unix()}, 401, "AADSTS700024: "},
		{"no subject", []any{"sub", nil}, 401, "AADSTS700213: "},
		{"no audience", []any{"aud", nil}, 401, "AADSTS700212: "},
		{"no end", []any{"exp", nil}, 401, "AADSTS700024: "},
		{"Entra's own", []any{"iss", "https://login.microsoftonline.com/x/v2.0"}, 400, "AADSTS700222: AAD-issued tokens may not be used for federated identity flows."},
	} {
		r := st.try(t, c.changes...)
		if r.status != c.status || !strings.HasPrefix(r.get("error_description"), c.want) {
			t.Errorf("%s: got %d %s\nwant %d %s…", c.name, r.status, r.text, c.status, c.want)
		}
		if c.status == 401 && (r.get("error") != "invalid_client" || !strings.Contains(r.text, `"error_codes":[`+regexp.MustCompile("[0-9]+").FindString(c.want)+"]") || r.get("trace_id") == "") {
			t.Errorf("%s: %s", c.name, r.text)
		}
	}
}

func TestWhoAsksMustBeKnown(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{})
	good := st.key.Sign(t, cluster.Workload(st.clock.Now()))
	says(t, st.token(t, "client_id", guid("nobody"), "client_assertion", good), 400, "AADSTS700016: Application with identifier '"+guid("nobody")+"' was not found in the directory")
	says(t, st.token(t, "client_id", st.client, "client_assertion", good, "tenant", "other"), 400, "AADSTS90002: Tenant 'other' not found.")
	says(t, st.token(t, "client_id", st.client), 401, "AADSTS7000216: ")
	says(t, st.token(t, "client_id", st.client, "client_assertion", good, "grant_type", "password"), 400, "AADSTS70003: ")
	says(t, st.token(t, "client_id", st.client, "client_assertion", good, "scope", "openid"), 400, "AADSTS1002012: ")
	says(t, st.token(t, "client_id", st.client, "client_assertion", good, "client_assertion_type", "x"), 400, "AADSTS90014: ")
	says(t, st.token(t, "client_id", st.client, "client_assertion", good+"\n"), 400, "AADSTS50027: ")
	says(t, st.token(t, "client_id", st.client, "client_assertion", "x.y.z"), 400, "AADSTS50027: ")
	says(t, st.token(t, "client_id", st.CallerID(), "client_secret", "wrong"), 401, "AADSTS7000215: ")
	says(t, st.token(t, "client_id", st.CallerID()), 401, "AADSTS7000216: ")
	if r := st.token(t, "client_id", strings.ToUpper(st.client), "client_assertion", good, "tenant", strings.ToUpper(st.options.Tenant)); r.status != 200 {
		t.Error(r.text)
	}
}

func TestOnlyAPublishedRS256KeySigns(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{})
	claims := cluster.Workload(st.clock.Now())
	says(t, st.tryToken(t, cluster.Signer{KID: "k2", Alg: jose.RS256, Key: secondKey()}.Sign(t, claims)), 401, "AADSTS7000272: The certificate with identifier k2 used to "+
		"sign the federated credential could not be found in the metadata of identity provider "+cluster.IssuerURL+".")
	says(t, st.tryToken(t, cluster.Signer{Alg: jose.RS256, Key: firstKey()}.Sign(t, claims)), 401, "AADSTS7000272: ")
	says(t, st.tryToken(t, cluster.Signer{KID: "k1", Alg: jose.RS256, Key: secondKey()}.Sign(t, claims)), 401, "AADSTS700027: Client assertion failed signature validation.")
	says(t, st.tryToken(t, cluster.Signer{KID: "k1", Alg: jose.RS512, Key: firstKey()}.Sign(t, claims)), 401, "AADSTS700027: ")

	curve := cluster.Signer{KID: "ec", Alg: jose.ES256, Key: keys.EC(elliptic.P256(), 0)}
	st.issuer.Change(func(i *cluster.Issuer) { i.Keys = append(i.Keys, curve.Public()) })
	st.pass(time.Hour)
	claims = cluster.Workload(st.clock.Now())
	says(t, st.tryToken(t, curve.Sign(t, claims)), 401, "AADSTS700027: ")
	if r := st.try(t); r.status != 200 {
		t.Error("a key set with an EC key spoils the others", r.text)
	}
}

func TestKeysAreKeptForAWhile(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{KeyLag: 20 * time.Minute})
	st.try(t)
	second := cluster.Signer{KID: "k2", Alg: jose.RS256, Key: secondKey()}
	st.issuer.Change(func(i *cluster.Issuer) { i.Keys = append(i.Keys, second.Public()) })
	try := func() reply { return st.tryToken(t, second.Sign(t, cluster.Workload(st.clock.Now()))) }
	st.pass(19 * time.Minute)
	says(t, try(), 401, "AADSTS7000272: ")
	st.pass(time.Minute)
	if r := try(); r.status != 200 {
		t.Error(r.text)
	}
}

func TestAnIssuerMustBeReachedAndBeWhole(t *testing.T) {
	t.Parallel()
	for code, change := range map[string]func(*cluster.Issuer){
		"50166":   func(i *cluster.Issuer) { i.Status = http.StatusNotFound },
		"50166 ":  func(i *cluster.Issuer) { i.Moved = true },
		"90061":   func(i *cluster.Issuer) { i.Discovery["issuer"] = cluster.IssuerURL + "/" },
		"90061 ":  func(i *cluster.Issuer) { i.Discovery["authorization_endpoint"] = "" },
		"90061  ": func(i *cluster.Issuer) { delete(i.Discovery, "subject_types_supported") },
		"90061 \t": func(i *cluster.Issuer) {
			i.Discovery["jwks_uri"] = "http://oidc.example.com/prod-a/keys.json"
		},
	} {
		st := newStage(t, Options{})
		st.issuer.Change(change)
		says(t, st.try(t), 400, "AADSTS"+strings.TrimSpace(code)+": Request to External OIDC endpoint failed.")
	}
	st := newStage(t, Options{})
	other := Start(t, Options{Now: st.clock.Now})
	client := other.Trust(cluster.IssuerURL, cluster.Subject, "openshift")
	says(t, other.token(t, "client_id", client, "client_assertion", st.key.Sign(t, cluster.Workload(st.clock.Now()))), 400, "AADSTS501661: ")
}

func TestWhoIsTrustedNeedsNoProvisioning(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{IdentityDelay: 0})
	st.client = st.Trust(cluster.IssuerURL, "anybody", "vault")
	if r := st.try(t, "sub", "anybody", "aud", "vault"); r.status != 200 {
		t.Error(r.text)
	}
}

func TestAnExchangeSeesAChangeLaterAndMayRememberARefusal(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{FederationDelay: 10 * time.Second, RefusalsLast: time.Minute})
	says(t, st.try(t), 401, "AADSTS700211: ")
	st.pass(10 * time.Second)
	says(t, st.try(t), 400, "AADSTS70021: No matching federated identity record found for presented assertion. Assertion Issuer: '"+cluster.IssuerURL+"'.")
	st.pass(50 * time.Second)
	if r := st.try(t); r.status != 200 {
		t.Error(r.text)
	}
	st.must(t, "DELETE", credential, "")
	if r := st.try(t); r.status != 200 {
		t.Error("a deletion is seen at once", r.text)
	}
	st.pass(10 * time.Second)
	says(t, st.try(t), 401, "AADSTS700211: ")
}
