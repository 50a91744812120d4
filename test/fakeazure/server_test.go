package fakeazure

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakecloud/cluster"
)

func TestErrorsAreResourceManagersJSON(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	r := s.call(t, "GET", group, "")
	if r.status != 404 || r.text != `{"error":{"code":"ResourceGroupNotFound","message":"Resource group 'prod-a-oidc' could not be found."}}` ||
		r.header.Get("X-Ms-Request-Id") == "" {
		t.Error(r)
	}
}

func TestACallThatIsNotOneIsRefused(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/dance", "", "404 NotFound"},
		{"POST", group, "", "404 NotFound"},
		{"GET", "/subscriptions/22222222-2222-3333-4444-555555555555/resourceGroups/x", "", "404 SubscriptionNotFound The subscription '22222222-"},
		{"PUT", group, "{", "400 InvalidRequestContent"},
		{"GET", group + "/resources?$skiptoken=5", "", "404 ResourceGroupNotFound"},
		{"GET", subscription + "/resourceGroups?$skiptoken=5", "", "400 InvalidSkipToken"},
	} {
		s.refused(t, c.method, c.path, c.body, c.want)
	}
	for query, want := range map[string]string{"": "MissingApiVersionParameter", "?api-version=1999-01-01": "NoRegisteredProviderFound"} {
		r := s.send1(t, "GET", group+query, "", http.Header{"Authorization": {"Bearer " + AccessToken}})
		if r.status != 400 || r.get("error.code") != want {
			t.Error(r)
		}
	}
}

func TestOneOfMicrosoftsHostsIsOneService(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	for host, want := range map[string][2]int{"management.azure.com": {200, 404}, "login.microsoftonline.com": {404, 200}, "127.0.0.1": {200, 200}} {
		arm := s.send1(t, "GET", subscription+"?api-version=2021-01-01", "", http.Header{"Authorization": {"Bearer " + AccessToken}, "Host": {host}})
		login := s.send1(t, "GET", "/common/discovery/instance?api-version=1.1", "", http.Header{"Host": {host}})
		if arm.status != want[0] || login.status != want[1] {
			t.Error(host, arm.status, login.status)
		}
	}
	if tenant := s.must(t, "GET", subscription, "").get("tenantId"); tenant != "99999999-8888-7777-6666-555555555555" {
		t.Error(tenant)
	}
}

func TestOnlyTheCallerIsServed(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s := Start(t, Options{Now: clock.Now})
	got := s.token(t, "client_id", s.CallerID(), "client_secret", ClientSecret)
	vault := s.token(t, "client_id", s.CallerID(), "client_secret", ClientSecret, "scope", "https://vault.azure.net/.default")
	for token, want := range map[string]string{AccessToken: "", got.get("access_token"): "", "x": "InvalidAuthenticationToken",
		vault.get("access_token"): "InvalidAuthenticationTokenAudience"} {
		if r := s.callAs(t, token, "GET", subscription, ""); r.get("error.code") != want || (want == "") != (r.status == 200) {
			t.Error(token, r.status, r.text)
		}
	}
	if r := s.send1(t, "GET", subscription+"?api-version=2021-01-01", "", http.Header{}); r.status != 401 || r.get("error.code") != "AuthenticationFailed" {
		t.Error(r.text)
	}
	clock.Pass(2 * time.Hour)
	if r := s.callAs(t, got.get("access_token"), "GET", subscription, ""); r.get("error.code") != "ExpiredAuthenticationToken" {
		t.Error(r.text)
	}
}

func TestTheCallerMayDoWhatItIsAllowed(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Permissions: []string{"Microsoft.Resources/*/Write", "Microsoft.ManagedIdentity/userAssignedIdentities/read"}})
	s.must(t, "PUT", group, here)
	s.refused(t, "GET", group, "", "403 AuthorizationFailed The client '")
	s.refused(t, "GET", identity, "", "404 ResourceNotFound")
	r := s.refused(t, "PUT", identity, here, "403 AuthorizationFailed")
	if !strings.Contains(r.text, "does not have authorization to perform action 'Microsoft.ManagedIdentity/userAssignedIdentities/write' over scope '"+identity+"'") {
		t.Error(r.text)
	}
	for _, c := range s.Calls() {
		if c.Permission == "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestPatternsCoverActions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, action string
		want            bool
	}{
		{"*", "A/b/read", true}, {"*/read", "A/b/READ", true}, {"A/*/read", "a/b/c/read", true}, {"A/*/read", "a/read", false},
		{"A/b/read", "A/b/read", true}, {"A/b/read", "A/b/reads", false}, {"A/b*", "A/b/c", true}, {"A/*/b/*/c", "A/x/b/y/c", true}, {"A/*/b/*/c", "A/x/y/c", false},
	} {
		if covers(c.pattern, c.action) != c.want {
			t.Error(c)
		}
	}
}

func TestAProviderThatIsNotRegisteredMakesNothing(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Unregistered: []string{"Microsoft.ManagedIdentity"}})
	s.must(t, "PUT", group, here)
	s.refused(t, "PUT", identity, here, "409 MissingSubscriptionRegistration The subscription is not registered to use namespace 'Microsoft.ManagedIdentity'.")
	for namespace, want := range map[string]string{"Microsoft.ManagedIdentity": "NotRegistered", "Microsoft.Storage": "Registered"} {
		if got := s.must(t, "GET", subscription+"/providers/"+namespace, "").get("registrationState"); got != want {
			t.Error(namespace, got)
		}
	}
	s.must(t, "POST", subscription+"/providers/Microsoft.ManagedIdentity/register", "")
	s.must(t, "PUT", identity, here)
}

func TestCallsAreRecorded(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	s.must(t, "PUT", group, here)
	s.refused(t, "GET", identity, "", "404")
	s.token(t, "client_id", "x", "client_assertion", "secret")
	calls := s.Calls()
	if len(calls) != 3 {
		t.Fatal(calls)
	}
	a, b, c := calls[0], calls[1], calls[2]
	if a.N != 1 || a.Service != "Microsoft.Resources" || a.Action != "PutGroup" || !a.Write || a.Code != "" || a.Body != here || a.Method != "PUT" ||
		a.Permission != "Microsoft.Resources/subscriptions/resourceGroups/write" {
		t.Errorf("%+v", a)
	}
	if b.Write || b.Code != "ResourceNotFound" || b.Action != "GetIdentity" {
		t.Errorf("%+v", b)
	}
	if c.Service != "login" || c.Body != "" || c.Code != "AADSTS700016" {
		t.Errorf("%+v", c)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	var fault atomic.Pointer[Fault] // nothing orders a call whose connection was cut before what the test does next
	goWrong := func(f Fault) { fault.Store(&f) }
	goWrong(Throttle(1500 * time.Millisecond))
	s.Fault(func(Call) Fault { return *fault.Load() })
	if r := s.refused(t, "PUT", group, here, "429 SubscriptionRequestsThrottled"); r.header.Get("Retry-After") != "2" {
		t.Error(r.header)
	}
	goWrong(Unavailable())
	s.refused(t, "PUT", group, here, "503 ServiceUnavailable")
	goWrong(Fail(409, "AnotherOperationInProgress", "later"))
	s.refused(t, "PUT", group, here, "409 AnotherOperationInProgress later")
	if len(s.State().Groups) != 0 {
		t.Error("something happened")
	}
	goWrong(Fault{Lost: true})
	if r := s.call(t, "PUT", group, here); r.status != 0 || len(s.State().Groups) != 1 {
		t.Error("the reply came, or nothing happened", r)
	}
	goWrong(Fault{Late: 20 * time.Millisecond})
	start := time.Now()
	if s.must(t, "PUT", group, here); time.Since(start) < 20*time.Millisecond {
		t.Error("too soon")
	}
}

func TestWritesAreThrottled(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s := Start(t, Options{Now: clock.Now, WritesPerSecond: 2})
	s.must(t, "PUT", group, here)
	s.must(t, "PUT", group, here)
	if r := s.refused(t, "PUT", group, here, "429"); r.header.Get("Retry-After") != "1" {
		t.Error(r.header)
	}
	s.must(t, "GET", group, "")
	clock.Pass(time.Second)
	s.must(t, "PUT", group, here)
}

func TestListsComeInPages(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{PageSize: 2})
	for i := range 5 {
		s.must(t, "PUT", fmt.Sprintf("%s/resourceGroups/g%d", subscription, i), here)
	}
	var names []string
	for path := subscription + "/resourceGroups"; path != ""; {
		r := s.must(t, "GET", path, "")
		names = append(names, r.names()...)
		next, _ := strings.CutPrefix(r.get("nextLink"), "https://management.azure.com")
		path = strings.ReplaceAll(next, "api-version=2021-04-01&", "")
	}
	if !slices.Equal(names, []string{"g0", "g1", "g2", "g3", "g4"}) {
		t.Error(names)
	}
}

func TestIDsComeBackInVaryingLetterCase(t *testing.T) {
	t.Parallel()
	s, _ := furnished(t, Options{VaryCase: true})
	seen := map[string]bool{}
	for range 6 {
		r := s.must(t, "GET", strings.ToUpper(identity), "")
		if !strings.EqualFold(r.get("id"), identity) || r.get("name") != "prod-a-ns-creds" {
			t.Error(r.text)
		}
		seen[r.get("id")] = true
	}
	if len(seen) != 3 {
		t.Error(seen)
	}
}
