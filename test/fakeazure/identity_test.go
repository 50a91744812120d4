package fakeazure

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakecloud/cluster"
)

func TestAnIdentityIsMadeChangedAndDeleted(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	s.refused(t, "PUT", identity, here, "404 ResourceGroupNotFound")
	s.refused(t, "GET", identity, "", "404 ResourceGroupNotFound")
	s.must(t, "PUT", group, here)
	s.refused(t, "GET", identity, "", "404 ResourceNotFound The Resource 'Microsoft.ManagedIdentity/userAssignedIdentities/prod-a-ns-creds' under resource group "+
		"'prod-a-oidc' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix")
	a := s.must(t, "PUT", identity, here)
	if a.status != 201 || a.get("properties.tenantId") != "99999999-8888-7777-6666-555555555555" || !guidForm.MatchString(a.get("properties.clientId")) ||
		a.get("properties.clientId") == a.get("properties.principalId") {
		t.Error(a.text)
	}
	b := s.must(t, "PUT", strings.ToUpper(identity), `{"location":"centralus","tags":{"a":"b"}}`)
	if b.status != 200 || b.get("properties.clientId") != a.get("properties.clientId") || b.get("tags.a") != "b" || b.get("id") != identity {
		t.Error(b.text)
	}
	if c := s.must(t, "PATCH", identity, `{"tags":{"c":"d"}}`); c.get("tags.c") != "d" {
		t.Error(c.text)
	}
	s.refused(t, "PUT", identity, `{"location":"westeurope"}`, "409 InvalidResourceLocation")
	for _, name := range []string{"ab", "-abc", "a.b", strings.Repeat("a", 129)} {
		s.refused(t, "PUT", identities+"/"+name, here, "400 BadRequest")
	}
	for _, path := range []string{identities, subscription + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities"} {
		if n := s.must(t, "GET", path, "").names(); fmt.Sprint(n) != "[prod-a-ns-creds]" {
			t.Error(n)
		}
	}
	if x, y := s.must(t, "DELETE", identity, ""), s.must(t, "DELETE", identity, ""); x.status != 200 || y.status != 204 {
		t.Error(x.status, y.status)
	}
	if again := s.must(t, "PUT", identity, here); again.get("properties.clientId") == a.get("properties.clientId") {
		t.Error("what was deleted came back")
	}
}

func TestAFederatedCredentialIsMadeReplacedAndDeleted(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{NoFederation: []string{"malaysiasouth"}})
	good := federated(cluster.IssuerURL, cluster.Subject, "openshift")
	s.must(t, "PUT", group, here)
	s.refused(t, "PUT", credential, good, "404 ParentResourceNotFound Failed to perform 'write' on resource(s) of type "+
		"'userAssignedIdentities/federatedIdentityCredentials', because the parent resource '"+identity+"' could not be found.")
	s.must(t, "PUT", identity, here)
	s.refused(t, "GET", credential, "", "404 NotFound")
	if r := s.must(t, "PUT", credential, good); r.status != 201 || r.get("properties.subject") != cluster.Subject {
		t.Error(r.text)
	}
	if r := s.must(t, "PUT", credential, federated(cluster.IssuerURL, cluster.Subject, "vault")); r.status != 200 || r.get("properties.audiences") != "[vault]" {
		t.Error(r.text)
	}
	s.refused(t, "PUT", credential+"2", good, "409 Conflict Issuer and subject combination already exists for this Managed Identity.")
	s.must(t, "PUT", credential+"2", federated(cluster.IssuerURL+"/", cluster.Subject, "openshift"))
	if n := s.must(t, "GET", identity+"/federatedIdentityCredentials", "").names(); fmt.Sprint(n) != "[app app2]" {
		t.Error(n)
	}
	if x, y := s.must(t, "DELETE", credential+"2", ""), s.must(t, "DELETE", credential+"2", ""); x.status != 200 || y.status != 204 {
		t.Error(x.status, y.status)
	}
	s.must(t, "PUT", identities+"/far", `{"location":"malaysiasouth"}`)
	s.refused(t, "PUT", identities+"/far/federatedIdentityCredentials/sa1", good, "405 MethodNotAllowed Support for federated identity credentials not enabled")
}

func TestTheRulesOfAFederatedCredential(t *testing.T) {
	t.Parallel()
	s, _ := furnished(t, Options{})
	const missing = "400 BadRequest The request format was unexpected. Federated Identity Credential must specify 'issuer', 'subject' and 'audience'."
	path := identity + "/federatedIdentityCredentials/"
	for _, c := range []struct{ name, body, want string }{
		{"abc", federated("", "s", "a"), missing},
		{"abc", federated("https://i", "s"), missing},
		{"abc", federated("https://i", "s", "a", "b"), "400 BadRequest"},
		{"abc", federated("https://"+strings.Repeat("i", 600), "s", "a"), "400 BadRequest The 'issuer'"},
		{"abc", federated("https://i", " s", "a"), "400 BadRequest The 'subject'"},
		{"abc", federated("http://i", "s", "a"), "400 BadRequest The 'issuer'"},
		{"ab", federated("https://i", "s", "a"), "400 BadRequest The federated identity credential name"},
		{"a.bc", federated("https://i", "s", "a"), "400 BadRequest The federated identity credential name"},
		{"_abc", federated("https://i", "s", "a"), "400 BadRequest The federated identity credential name"},
		{strings.Repeat("a", 121), federated("https://i", "s", "a"), "400 BadRequest The federated identity credential name"},
	} {
		s.refused(t, "PUT", path+c.name, c.body, c.want)
	}
	for i := range 20 {
		s.must(t, "PUT", fmt.Sprintf("%ssa-%d", path, i), federated("https://i", fmt.Sprint(i), "a"))
	}
	s.refused(t, "PUT", path+"one-more", federated("https://i", "more", "a"), "400 BadRequest The maximum number")
	s.must(t, "PUT", path+"sa-7", federated("https://i", "seven", "a"))
}

func TestFederatedCredentialsOfOneIdentityAreWrittenOneAfterAnother(t *testing.T) {
	t.Parallel()
	s, _ := furnished(t, Options{Latency: 50 * time.Millisecond})
	s.must(t, "PUT", identities+"/other", here)
	done := make(chan reply, 3)
	for _, path := range []string{credential + "1", credential + "2", identities + "/other/federatedIdentityCredentials/sa1"} {
		go func() { done <- s.call(t, "PUT", path, federated("https://i", path, "a")) }()
	}
	codes := map[string]int{}
	for range 3 {
		r := <-done
		codes[r.get("error.code")]++
		if r.status == 409 && !strings.Contains(r.text, strings.ToLower(identity)+"'. Concurrent Federated Identity Credentials writes under the same managed identity are not supported.") {
			t.Error(r.text)
		}
	}
	if codes[""] != 2 || codes["ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity"] != 1 {
		t.Error(codes)
	}
}

func TestFederatedCredentialsHaveTheDocumentedRates(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s, _ := furnished(t, Options{Now: clock.Now, FederationRate: 1})
	s.must(t, "PUT", credential, federated("https://i", "1", "a"))
	if r := s.refused(t, "PUT", credential+"2", federated("https://i", "2", "a"), "429 TooManyRequests"); r.header.Get("Retry-After") != "4" {
		t.Error(r.header)
	}
	s.must(t, "PUT", identities+"/other", here)
	s.must(t, "PUT", identities+"/other/federatedIdentityCredentials/sa1", federated("https://i", "1", "a"))
	clock.Pass(4 * time.Second)
	s.must(t, "PUT", credential+"2", federated("https://i", "2", "a"))
	s.must(t, "GET", credential, "")
	s.refused(t, "GET", credential, "", "429")
	s.must(t, "GET", identity+"/federatedIdentityCredentials", "")
	s.refused(t, "GET", identity+"/federatedIdentityCredentials", "", "429")
	s.must(t, "DELETE", credential, "")
	s.refused(t, "DELETE", credential+"2", "", "429")
}

func TestANewIdentityIsNotKnownAtOnce(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s, made := furnished(t, Options{Now: clock.Now, IdentityDelay: 10 * time.Second, PrincipalDelay: 20 * time.Second})
	good, principal := federated(cluster.IssuerURL, cluster.Subject, "openshift"), made.get("properties.principalId")
	s.refused(t, "GET", credential, "", "404 NotFound")
	s.refused(t, "PUT", credential, good, "404 ParentResourceNotFound")
	clock.Pass(10 * time.Second)
	s.must(t, "PUT", credential, good)
	s.refused(t, "PUT", assignments+"/"+guid("a"), assigned(reader, principal, ""), "400 PrincipalNotFound Principal "+bare(principal)+" does not exist in the directory "+
		"99999999-8888-7777-6666-555555555555. Check that you have the correct principal ID. If you are creating this principal and then immediately assigning a role, "+
		"this error might be related to a replication delay.")
	s.must(t, "PUT", assignments+"/"+guid("a"), assigned(reader, principal, "ServicePrincipal"))
	clock.Pass(10 * time.Second)
	s.must(t, "PUT", group+"/providers/Microsoft.ManagedIdentity/x/y/providers/Microsoft.Authorization/roleAssignments/"+guid("b"), assigned(reader, principal, ""))
}
