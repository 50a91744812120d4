package s3store

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// AWS says who calls; a server that is not AWS is not asked, and nobody else is in its place.
func TestIdentity(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	const arn = "arn:aws:sts::123456789012:assumed-role/deploy/ci"
	asked := 0
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		fmt.Fprintf(w, `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult><Arn>%s</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`, arn)
	}))
	defer sts.Close()
	identity := func(o Options) (string, error) {
		t.Helper()
		st, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return st.Identity(t.Context())
	}
	if name, err := identity(Options{Bucket: "keysets", Region: "eu-west-1", Endpoint: "http://127.0.0.1:1"}); err != nil || name != "" {
		t.Errorf("another server: %q, %v", name, err)
	}
	t.Setenv("AWS_ENDPOINT_URL_STS", sts.URL)
	for _, o := range []Options{{Bucket: "keysets", Region: "eu-west-1"}, {Bucket: "keysets", Region: "eu-west-1", Endpoint: "http://127.0.0.1:1"}} {
		if name, err := identity(o); err != nil || name != arn {
			t.Errorf("%+v: %q, %v", o, name, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}
