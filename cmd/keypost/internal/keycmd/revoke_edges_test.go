package keycmd

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/observation"
	"github.com/keypost/keypost/keystore/policy"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/test/fakecloudfront"
)

// revokedAt returns a key set with two issuer URLs, one of whose keys was revoked at a time.
func revokedAt(t *testing.T, at time.Time, origins ...string) keystore.KeySet {
	t.Helper()
	a, b := storetest.Key(t), storetest.Key(t)
	s, err := keystore.New(keystore.Change{At: at.Add(-time.Hour)}, keystore.Spec{
		Name: "prod-a", Issuers: storetest.URLs(t, "https://oidc.example.com/x/prod-a", "https://prod-a.oidc.example.com"),
		Keys: []keystore.VerificationKey{a, b}, Policy: keystore.Policy{Origins: origins},
	})
	if err == nil {
		s, err = s.Revoke(keystore.Change{At: at, Why: "stolen"}, a.ID(), keystore.RevokeOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDocumentPaths(t *testing.T) {
	want := []string{
		"/.well-known/openid-configuration*", "/keys.json*", "/openid/v1/jwks*",
		"/x/prod-a/.well-known/openid-configuration*", "/x/prod-a/keys.json*", "/x/prod-a/openid/v1/jwks*",
	}
	if got := documentPaths(revokedAt(t, time.Now())); !slices.Equal(got, want) {
		t.Errorf("documentPaths = %q", got)
	}
}

// An edge that forgets the documents while an origin still has the old ones fetches the key again.
func TestPurgeWaitsForOrigins(t *testing.T) {
	now := time.Now()
	long := now.Add(-policy.Convergence - time.Minute)
	for name, tc := range map[string]struct {
		set    keystore.KeySet
		behind []bool // at each look
		want   []int  // invalidations after it
		done   bool
	}{
		"every origin has the new documents":          {revokedAt(t, now, "192.0.2.1"), []bool{false, false}, []int{1, 1}, true},
		"an origin is behind for a moment":            {revokedAt(t, now, "192.0.2.1"), []bool{true, true, false}, []int{0, 0, 1}, true},
		"one is behind for longer, or cannot be seen": {revokedAt(t, long, "192.0.2.1"), []bool{true, true}, []int{1, 1}, false},
		"and then it is not":                          {revokedAt(t, long, "192.0.2.1"), []bool{true, false, false}, []int{1, 2, 2}, true},
		"no origin is named":                          {revokedAt(t, now), []bool{false, true}, []int{0, 0}, false},
		"no origin is named, and it is long ago":      {revokedAt(t, long), []bool{true, true}, []int{1, 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakecloudfront.Server{Distribution: "E1", Looks: -1} // completed at once
			server := httptest.NewServer(s)
			defer server.Close()
			for name, value := range map[string]string{
				"AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "x",
				"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true",
			} {
				t.Setenv(name, value)
			}
			e := edges{Factory: &cli.Factory{Err: &strings.Builder{}}, distribution: "E1"}
			var err error
			for i, behind := range tc.behind {
				err = e.purge(t.Context(), tc.set, behind)
				if got := len(s.Made()); got != tc.want[i] {
					t.Errorf("%d invalidations after look %d, want %d: %v", got, i+1, tc.want[i], err)
				}
			}
			if e.done != tc.done || tc.done && err != nil {
				t.Errorf("done %t, want %t: %v", e.done, tc.done, err)
			}
		})
	}
}

func TestOriginsBehind(t *testing.T) {
	named, unnamed := revokedAt(t, time.Now(), "192.0.2.9"), revokedAt(t, time.Now())
	look := observation.Look{Addresses: []string{"192.0.2.1:443", "192.0.2.9:443"}, Origins: []string{"192.0.2.9:443"}}
	with := func(gap string) observation.Look {
		l := look
		l.Gaps = []string{gap}
		return l
	}
	at := func(address string) []finding.Finding {
		return []finding.Finding{{Code: "key-still-there", At: []string{address}}}
	}
	for name, tc := range map[string]struct {
		sight verify.Sight
		want  bool
	}{
		"nothing is wrong":           {verify.Sight{Look: look}, false},
		"an edge has the key":        {verify.Sight{Look: look, Findings: at("192.0.2.1:443")}, false},
		"the origin has the key":     {verify.Sight{Look: look, Findings: at("192.0.2.9:443")}, true},
		"an edge does not answer":    {verify.Sight{Look: with("at 192.0.2.1:443: no answer")}, false},
		"the origin does not":        {verify.Sight{Look: with("at 192.0.2.9:443: no answer")}, true},
		"the origin is not found":    {verify.Sight{Look: with("the origin o.example.com cannot be looked up: no such host")}, true},
		"everybody is wrong at once": {verify.Sight{Look: look, Findings: []finding.Finding{{Code: "x"}}}, true},
	} {
		if got := originsBehind(named, tc.sight); got != tc.want {
			t.Errorf("%s: originsBehind = %t", name, got)
		}
	}
	if originsBehind(unnamed, verify.Sight{Look: look}) || !originsBehind(unnamed, verify.Sight{Look: look, Findings: at("192.0.2.1:443")}) {
		t.Error("where no origin is named, an address with the key is none, or one without it is")
	}
}
