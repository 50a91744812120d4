package fakegcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/iam/v1"
	"google.golang.org/api/option"

	"github.com/keypost/keypost/test/fakecloud/cluster"
)

// do makes one request, of the caller's unless change takes the token away.
func (s *Server) do(t testing.TB, method, path, body string, change func(*http.Request)) (int, string) {
	t.Helper()
	r := must(http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body)))(t)
	r.Header.Set("Authorization", "Bearer "+AccessToken)
	if change != nil {
		change(r)
	}
	response := must(http.DefaultClient.Do(r))(t)
	defer response.Body.Close()
	return response.StatusCode, string(must(io.ReadAll(response.Body))(t))
}

func TestErrorsAreGooglesJSON(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	status, body := s.do(t, "GET", "/v1/"+poolPath, "", nil)
	if status != http.StatusNotFound || body != `{"error":{"code":404,"message":"Requested entity was not found.",`+
		`"errors":[{"message":"Requested entity was not found.","domain":"global","reason":"notFound"}],"status":"NOT_FOUND"}}` {
		t.Error(status, body)
	}
}

func TestACallThatIsNotOneIsRefused(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	makePool(t, s)
	for _, c := range []struct{ method, path, body, says string }{
		{"GET", "/v1/dance", "", "was not found on this server"},
		{"PUT", "/v1/" + poolPath, "", "was not found on this server"},
		{"POST", "/v1/" + poolPath + ":dance", "", "was not found on this server"},
		{"GET", "/v1/" + poolPath + "?dance=1", "", `Unknown name \"dance\": Cannot bind query parameter.`},
		{"PATCH", "/v1/" + poolPath + "?updateMask=disabled", `{"dance":1}`, `Unknown name \"dance\": Cannot find field.`},
		{"PATCH", "/v1/" + poolPath + "?updateMask=disabled", `{`, "Invalid JSON payload received."},
		{"GET", "/v1/" + parent + "/roles?view=SOME", "", "view"},
		{"GET", "/v1/" + parent + "/roles?pageSize=-1", "", "page_size"},
	} {
		if _, body := s.do(t, c.method, c.path, c.body, nil); !strings.Contains(body, c.says) {
			t.Errorf("%s %s\ngot  %s\nwant …%s…", c.method, c.path, body, c.says)
		}
	}
}

func TestOneOfGooglesHostsIsOneService(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	for host, want := range map[string]int{"": 200, "cloudresourcemanager.googleapis.com": 200, "iam.googleapis.com": 404, "sts.googleapis.com:443": 404} {
		status, body := s.do(t, "GET", "/v1/projects/my-project", "", func(r *http.Request) { r.Host = host })
		if status != want {
			t.Error(host, status, body)
		}
	}
}

func TestOnlyTheCallerIsServed(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{}, nil)
	federated := must(must(credentials(t, st.Server, st.key.Sign(t, cluster.Workload(st.clock.Now())), ""))(t).Token())(t).AccessToken
	account := must(must(credentials(t, st.Server, st.key.Sign(t, cluster.Workload(st.clock.Now())), st.email))(t).Token())(t).AccessToken
	const path = "/v1/" + poolPath
	for token, want := range map[string]int{"": 401, "x": 401, "a.b.c": 401, AccessToken: 200, federated: 403, account: 403} {
		status, body := st.do(t, "GET", path, "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
		if status != want || status == 401 && !strings.Contains(body, "Request had invalid authentication credentials. Expected OAuth 2 access token") {
			t.Errorf("%q: %d %s", token, status, body)
		}
	}
	if status, _ := st.do(t, "GET", path, "", func(r *http.Request) { r.Header.Del("Authorization") }); status != 401 {
		t.Error(status)
	}
	if _, ok := st.Email(federated); ok {
		t.Error("a federated token is no account's")
	}
	st.clock.Pass(time.Hour)
	if status, _ := st.do(t, "GET", path, "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+account) }); status != 401 {
		t.Error("a token lives for ever")
	}
}

func TestTheCallerMayDoWhatItIsAllowed(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Permissions: []string{"iam.workloadIdentityPools.create"}})
	makePool(t, s)
	_, err := poolsOf(t, s).Get(poolPath).Do()
	refused(t, err, http.StatusForbidden, "Permission 'iam.workloadIdentityPools.get' denied on resource '//iam.googleapis.com/"+poolPath+"' (or it may not exist).")
	_, err = projectsOf(t, s).Get("my-project").Do()
	refused(t, err, http.StatusForbidden, "The caller does not have permission")
	for _, c := range s.Calls() {
		if c.Permission == "" {
			t.Errorf("%+v", c)
		}
	}
}

func TestTheCallersKeyGetsATokenAndIsOne(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s := Start(t, Options{Now: clock.Now})
	makePool(t, s)
	ctx := context.WithValue(t.Context(), oauth2.HTTPClient, s.Client())
	config := must(google.JWTConfigFromJSON([]byte(must(s.Credentials())(t)), iam.CloudPlatformScope))(t)
	pools := must(iam.NewService(ctx, option.WithHTTPClient(config.Client(ctx))))(t).Projects.Locations.WorkloadIdentityPools
	must(pools.Get(poolPath).Do())(t)
	own := must(google.JWTAccessTokenSourceWithScope([]byte(must(s.Credentials())(t)), iam.CloudPlatformScope))(t)
	pools = must(iam.NewService(ctx, option.WithHTTPClient(oauth2.NewClient(ctx, own))))(t).Projects.Locations.WorkloadIdentityPools
	must(pools.Get(poolPath).Do())(t)
	clock.Pass(2 * time.Hour)
	_, err := pools.Get(poolPath).Do()
	refused(t, err, http.StatusUnauthorized, "Request had invalid authentication credentials.")

	stranger := Start(t, Options{})
	other := must(google.JWTConfigFromJSON([]byte(must(stranger.Credentials())(t)), iam.CloudPlatformScope))(t)
	other.TokenURL = s.URL + "/token"
	_, err = other.TokenSource(t.Context()).Token()
	says(t, err, "invalid_grant")
	if _, body := s.do(t, "POST", "/token", "grant_type=password", nil); !strings.Contains(body, "unsupported_grant_type") {
		t.Error(body)
	}
}

func TestCallsAreRecorded(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	makePool(t, s)
	_, err := poolsOf(t, s).Get(poolPath + "x").Do()
	refused(t, err, http.StatusNotFound, "")
	calls := s.Calls()
	if len(calls) != 2 {
		t.Fatal(calls)
	}
	a, b := calls[0], calls[1]
	if a.N != 1 || a.Service != "iam" || a.Action != "CreateWorkloadIdentityPool" || !a.Write || a.Code != "" || a.InFlight != 1 ||
		a.Query.Get("workloadIdentityPoolId") != "prod-a" || a.Method != "POST" || a.Body == "" {
		t.Errorf("%+v", a)
	}
	if b.Write || b.Code != "NOT_FOUND" || b.Permission != "iam.workloadIdentityPools.get" {
		t.Errorf("%+v", b)
	}
	s.ResetCalls()
	if len(s.Calls()) != 0 {
		t.Error("calls are left")
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	create := func() error {
		_, err := poolsOf(t, s).Create(locations, &iam.WorkloadIdentityPool{}).WorkloadIdentityPoolId("prod-a").Do()
		return err
	}
	var fault atomic.Pointer[Fault] // nothing orders a call whose connection was cut before what the test does next
	var told atomic.Int32
	goWrong := func(f Fault) { fault.Store(&f) }
	goWrong(Throttle(7 * time.Second))
	s.Fault(func(c Call) Fault { return *fault.Load() })
	s.OnCall(func(n int, c Call) { told.Add(1) })
	details := refused(t, create(), http.StatusTooManyRequests, "Quota exceeded for quota metric")
	if !strings.Contains(details, "RetryInfo") || !strings.Contains(details, "7s") || !strings.Contains(details, "RATE_LIMIT_EXCEEDED") {
		t.Error(details)
	}
	goWrong(Fail(http.StatusForbidden, "PERMISSION_DENIED", "no"))
	refused(t, create(), http.StatusForbidden, "no")
	goWrong(Unavailable())
	if status, body := s.do(t, "POST", "/v1/"+locations+"/workloadIdentityPools?workloadIdentityPoolId=prod-a", "{}", nil); status != http.StatusServiceUnavailable {
		t.Error(status, body)
	}
	if len(s.State().Pools) != 0 {
		t.Error("something happened")
	}
	goWrong(Fault{Lost: true})
	if err := create(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if len(s.State().Pools) != 1 {
		t.Error("nothing happened")
	}
	goWrong(Fault{Late: 20 * time.Millisecond})
	start := time.Now()
	refused(t, create(), http.StatusConflict, "")
	if time.Since(start) < 20*time.Millisecond || told.Load() < 4 {
		t.Error("too soon", told.Load())
	}
	goWrong(Throttle(time.Second))
	if status, body := exchangeForm(t, s, func(url.Values) {}); status != http.StatusTooManyRequests || !strings.Contains(body, `"quota_exceeded","error_description":"The request was throttled`) {
		t.Error(status, body)
	}
}

func TestWritesAreThrottled(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s := Start(t, Options{Now: clock.Now, FederationWritesPerMinute: 30, WritesPerSecond: 2})
	makePool(t, s)
	_, err := poolsOf(t, s).Delete(poolPath).Do()
	details := refused(t, err, http.StatusTooManyRequests, "Quota exceeded for quota metric 'Write requests' and limit 'Write requests per minute' "+
		"of service 'iam.googleapis.com' for consumer 'project_number:123456789012'.")
	if !strings.Contains(details, "retryDelay:2s") {
		t.Error(details)
	}
	_, err = accountsOf(t, s).Create(parent, &iam.CreateServiceAccountRequest{AccountId: "prod-a"}).Do()
	refused(t, err, http.StatusTooManyRequests, "")
	must(poolsOf(t, s).Get(poolPath).Do())(t)
	clock.Pass(2 * time.Second)
	makeAccount(t, s, "prod-a")
	must(poolsOf(t, s).Delete(poolPath).Do())(t)
}

func TestLatencyIsAddedToEveryCall(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Latency: 20 * time.Millisecond})
	start := time.Now()
	makePool(t, s)
	if time.Since(start) < 20*time.Millisecond {
		t.Error("too soon")
	}
}

func TestAnAccessTokenLivesAsLongAsItIsAskedFor(t *testing.T) {
	t.Parallel()
	st := newStage(t, Options{Permissions: nil}, nil)
	federated := must(must(credentials(t, st.Server, st.key.Sign(t, cluster.Workload(st.clock.Now())), ""))(t).Token())(t).AccessToken
	ask := func(body string) string {
		_, answer := st.do(t, "POST", "/v1/projects/-/serviceAccounts/"+st.email+":generateAccessToken", body, func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+federated)
		})
		return answer
	}
	for body, want := range map[string]string{
		`{"scope":["s"],"lifetime":"0s"}`:    "Lifetime of access token must be larger then zero.",
		`{"scope":["s"],"lifetime":"3601s"}`: "can not have lifetimes of more than 1 hour.",
		`{"scope":["s"],"lifetime":"1h"}`:    "Invalid value at 'lifetime'",
		`{"lifetime":"10s"}`:                 "scope",
		`{"scope":["s"],"lifetime":"600s"}`:  `"expireTime":"` + st.clock.Now().Add(10*time.Minute).UTC().Format(time.RFC3339) + `"`,
		`{"scope":["s"]}`:                    `"expireTime":"` + st.clock.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"`,
	} {
		if got := ask(body); !strings.Contains(got, want) {
			t.Errorf("%s: got %s\nwant …%s…", body, got, want)
		}
	}
	// Deleting the provider ends no token that was given; disabling the pool does.
	must(poolsOf(t, st.Server).Providers.Delete(provPath).Do())(t)
	if got := ask(`{"scope":["s"]}`); !strings.Contains(got, "accessToken") {
		t.Error(got)
	}
	must(poolsOf(t, st.Server).Patch(poolPath, &iam.WorkloadIdentityPool{Disabled: true}).UpdateMask("disabled").Do())(t)
	if got := ask(`{"scope":["s"]}`); !strings.Contains(got, "getAccessToken") {
		t.Error(got)
	}
}

func TestTwoWritesAtATimeAreTwoChanges(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	done := make(chan error)
	accounts := accountsOf(t, s)
	for i := range 16 {
		go func() {
			_, err := accounts.Create(parent, &iam.CreateServiceAccountRequest{AccountId: fmt.Sprintf("account-%d", i)}).Do()
			done <- err
		}()
	}
	for range 16 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	var ids []string
	for _, a := range s.State().Accounts {
		ids = append(ids, a.UniqueID)
	}
	if len(slices.Compact(ids)) != 16 {
		t.Error(ids)
	}
}
