package fakegcp

import (
	"context"
	"io"
	"net/http"
	"strings"
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
