package iam_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/test/fakegcp"
)

// busy is a way to Google that takes the first change of a provider only later.
type busy struct {
	*world
	lost      bool   // the change is made, and the answer to it lost; else it is refused with 429
	meanwhile func() // what happens until it is sent again
	patches   int
}

func (b *busy) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/providers/demo") {
		return b.world.RoundTrip(r)
	}
	if r.Method != http.MethodPatch {
		return b.world.RoundTrip(r)
	}
	if b.patches++; b.patches > 1 {
		return b.world.RoundTrip(r)
	}
	defer b.meanwhile()
	if b.lost {
		if res, err := b.world.RoundTrip(r); err != nil || res.StatusCode != http.StatusOK {
			return res, err
		}
		return nil, errors.New("the connection broke off")
	}
	return &http.Response{StatusCode: http.StatusTooManyRequests, Status: "429 Too Many Requests", Header: http.Header{}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded."}}`))}, nil
}

// What Google takes only later may be minutes old by then. A change of a provider is not sent again over what somebody else has written since:
// it is decided anew, or given up where the keys are others.
func TestAChangeIsNotRepeatedOverAnother(t *testing.T) {
	t.Parallel()
	const victim = "https://victim.example.com"
	patch := func(t *testing.T, w *world, mask string, body map[string]any) {
		t.Helper()
		w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask="+mask, body)
	}
	newer := func(t *testing.T, w *world) {
		patch(t, w, "oidc.jwksJson", map[string]any{"oidc": map[string]any{"jwksJson": `{"keys":[{"kty":"RSA","kid":"k3","n":"AQAB","e":"AQAB"}]}`}})
	}
	given := func(t *testing.T, w *world) {
		patch(t, w, "oidc.issuerUri", map[string]any{"oidc": map[string]any{"issuerUri": victim}})
	}
	for _, tt := range []struct {
		name      string
		lost      bool
		meanwhile func(t *testing.T, w *world)
		patches   int
		keys      string // that the provider has at last
		problem   rest.Problem
		says      string // empty for no error
	}{
		{"nothing", false, nil, 2, "k2", 0, ""},
		{"nothing, and it was made", true, nil, 1, "k2", 0, ""},
		{"another description", false, func(t *testing.T, w *world) {
			patch(t, w, "description", map[string]any{"description": "Created By OpenShift ccoctl, and told; installation demo"})
		}, 2, "k2", 0, ""},
		{"other keys", false, newer, 1, "k3", 0, "somebody else has changed the uploaded keys"},
		{"other keys, after it was made", true, newer, 1, "k3", 0, "somebody else has changed the uploaded keys"},
		{"another issuer", false, given, 1, "k1", rest.OtherIssuer, "trusts the issuer " + victim},
		{"another issuer, after it was made", true, given, 1, "k2", rest.OtherIssuer, "trusts the issuer " + victim},
		{"nobody may read it", false, func(_ *testing.T, w *world) {
			w.Fault(of("GetWorkloadIdentityPoolProvider", fakegcp.Fail(http.StatusForbidden, "PERMISSION_DENIED", "no")))
		}, 1, "k1", rest.Denied, "iam.workloadIdentityPoolProviders.get"},
	} {
		for _, how := range []string{"sync", "create"} {
			t.Run(tt.name+" "+how, func(t *testing.T) {
				inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
					want := installation("demo")
					want.Accounts, want.Provider.JWKS = nil, jwks(keyOne, "k1")
					mustApply(t, w, want)
					want.Provider.JWKS = jwks(keyOne, "k2")
					b := &busy{world: w, lost: tt.lost, meanwhile: func() {
						if tt.meanwhile != nil {
							tt.meanwhile(t, w)
						}
					}}
					c := iam.OpenWith(fakegcp.AccessToken, rest.Access{Project: "my-project", Transport: b})
					told := false
					var err error
					if how == "sync" {
						told, err = c.UploadKeys(t.Context(), *want.Provider)
					} else {
						var lines []string
						lines, err = apply(t.Context(), c, want)
						told = strings.Contains(strings.Join(lines, "\n"), "provider demo updated with new JWK set")
					}
					if problemOf(err) != tt.problem || (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) || err == nil && told == tt.lost {
						t.Errorf("told %t, error %v", told, err)
					}
					if p := w.State().Providers[0]; !strings.Contains(p.OIDC.JWKS, tt.keys) || b.patches != tt.patches {
						t.Errorf("%d changes, and it has %+v", b.patches, p.OIDC)
					}
				})
			})
		}
	}
}
