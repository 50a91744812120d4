package iam_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/test/fakegcp"
)

const (
	rsaKey = `{"kty":"RSA","alg":"RS256","use":"sig","kid":%q,"n":"AQAB","e":"AQAB"}`
	ecKey  = `{"kty":"EC","alg":"ES256","use":"sig","kid":%q,"crv":"P-256","x":"AQAB","y":"AQAB"}`
)

// jwks has keys with these IDs, and members that Google does not take.
func jwks(form string, kids ...string) []byte {
	var keys []string
	for _, k := range kids {
		keys = append(keys, strings.TrimSuffix(fmt.Sprintf(form, k), "}")+`,"x5t":"x"}`)
	}
	return []byte(`{"keys": [` + strings.Join(keys, ", ") + `]}`)
}

// Uploaded keys are those that are published: no more, no less, whatever the form.
func TestUpload(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{ConsistencyDelay: 30 * time.Second, OperationPolls: 1}, func(t *testing.T, w *world) {
		want := installation("demo")
		want.Accounts = nil
		want.Provider.JWKS = jwks(rsaKey, "k1", "k2")
		contains(t, preview(t, w, want), "+ uploaded key k1", "+ uploaded key k2")
		mustApply(t, w, want)
		settle(w)
		finished(t, w, want)
		c := w.client()
		want.Provider.JWKS = []byte(strings.ReplaceAll(string(want.Provider.JWKS), "AQAB", "AQAC"))
		contains(t, preview(t, w, want), "~ uploaded keys of the same IDs")
		want.Provider.JWKS = jwks(rsaKey, "k2", "k3")
		contains(t, preview(t, w, want), "- uploaded key k1", "+ uploaded key k3")
		lines := strings.Join(mustApply(t, w, want), "\n")
		contains(t, lines, "workload identity provider demo updated with new JWK set")
		for i, changed := range []bool{true, false} {
			is, err := c.UploadKeys(t.Context(), iam.Provider{Pool: "demo", ID: "demo", IssuerURL: issuerURL, Owner: iam.OwnedBy("demo"), JWKS: jwks(ecKey, "e1")})
			if err != nil || is != changed {
				t.Errorf("upload %d: %t, %v", i, is, err)
			}
		}
		have, err := c.UploadedKeys(t.Context(), "demo", "demo")
		check(t, err)
		var set struct{ Keys []map[string]string }
		check(t, json.Unmarshal(have.JWKS, &set))
		if len(set.Keys) != 1 || set.Keys[0]["kid"] != "e1" || set.Keys[0]["x5t"] != "" || have.Provider.IssuerURL != issuerURL {
			t.Errorf("uploaded %s for %s", have.JWKS, have.Provider.IssuerURL)
		}
		settle(w)
		r, err := c.Provider(t.Context(), "demo", "demo")
		if err != nil || !r.Uploaded || r.IssuerURL != issuerURL || fmt.Sprint(r.Audiences) != "[openshift]" {
			t.Errorf("registered %+v, %v", r, err)
		}

		want.Provider.JWKS, want.Provider.UsualKeys = nil, true
		if _, err := c.Plan(t.Context(), want); err == nil || !strings.Contains(err.Error(), "say --key-storage-method pool-jwk-file") {
			t.Errorf("without a word about the keys: %v", err)
		}
		want.Provider.UsualKeys = false
		contains(t, preview(t, w, want), "- uploaded key e1", "+ keys as published by https://oidc.example.com/demo")
		mustApply(t, w, want)
		settle(w)
		finished(t, w, want)
		if have, err := c.UploadedKeys(t.Context(), "demo", "demo"); err != nil || have.JWKS != nil {
			t.Errorf("keys %s, %v", have.JWKS, err)
		}
		if _, err := c.UploadKeys(t.Context(), iam.Provider{Pool: "demo", ID: "demo", IssuerURL: issuerURL, Owner: iam.OwnedBy("demo"), JWKS: jwks(rsaKey, "k1")}); err == nil || !strings.Contains(err.Error(), "has no uploaded keys") {
			t.Errorf("error %v", err)
		}
	})
}

// A provider has the keys of the installation that its description names, or, where ccoctl's names none, of the one whose name it bears;
// another's only if that is said.
func TestUploadGoesToItsOwnProvider(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		description string
		owner       string
		adopt       bool
		want        string
	}{
		{"Created By OpenShift ccoctl; installation demo", "demo", false, ""},
		{"Created By OpenShift ccoctl; installation other", "other", false, ""},
		{"Created By OpenShift ccoctl", "demo", false, ""},
		{"Created By OpenShift ccoctl", "other", false, "its description does not say for which installation it was made"},
		{"Created By OpenShift ccoctl", "other", true, ""},
		{"Created By OpenShift ccoctl; installation other", "demo", false, "it belongs to the installation other"},
		{"of another team", "demo", false, "somebody else's"},
		{"", "demo", false, "somebody else's"},
		{"of another team", "demo", true, ""},
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			want := installation("demo")
			want.Accounts, want.Provider.JWKS = nil, jwks(rsaKey, "k1")
			mustApply(t, w, want)
			w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask=description", map[string]any{"description": tt.description})
			before := state(w)
			_, err := w.client().UploadKeys(t.Context(), iam.Provider{Pool: "demo", ID: "demo", IssuerURL: issuerURL, Owner: iam.OwnedBy(tt.owner), Adopt: tt.adopt, JWKS: jwks(rsaKey, "k2")})
			if tt.want == "" {
				check(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || problemOf(err) != iam.NotOwned || state(w) != before {
				t.Errorf("%q: %v\n%s", tt.description, err, state(w))
			}
		})
	}
}

// A provider that was given to another issuer since it was read keeps its keys: ours would count for that issuer's tokens.
func TestUploadGoesToTheIssuerThatWasRead(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		want := installation("demo")
		want.Accounts, want.Provider.JWKS = nil, jwks(rsaKey, "k1")
		mustApply(t, w, want)
		w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask=oidc.issuerUri", map[string]any{"oidc": map[string]any{"issuerUri": "https://victim.example.com"}})
		before := state(w)
		want.Provider.JWKS = jwks(rsaKey, "k2")
		if _, err := w.client().UploadKeys(t.Context(), *want.Provider); problemOf(err) != iam.OtherIssuer || !strings.Contains(err.Error(), "trusts the issuer https://victim.example.com by now") {
			t.Errorf("error %v", err)
		}
		if after := state(w); after != before {
			t.Errorf("changed to\n%s", after)
		}
	})
}

// One that is given to another issuer between the reading and the upload has our keys for that issuer's tokens, which is said: the issuer was
// changed by somebody, and stays. Of one that had the same keys before nothing is said: it may be a live cluster's, for another URL.
func TestKeysThatWentToAnotherIssuer(t *testing.T) {
	t.Parallel()
	const victim = "https://victim.example.com"
	for _, late := range []bool{true, false} {
		for _, how := range []string{"sync", "create"} {
			inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
				want := installation("demo")
				want.Accounts, want.Provider.JWKS = nil, jwks(rsaKey, "k1")
				mustApply(t, w, want)
				if late {
					want.Provider.JWKS = jwks(rsaKey, "k1", "k2")
				}
				given := false
				c := iam.OpenWith(fakegcp.AccessToken, iam.Access{Project: "my-project", Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					if (r.Method == http.MethodPatch) == late && !given {
						given = true
						w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask=oidc.issuerUri", map[string]any{"oidc": map[string]any{"issuerUri": victim}})
					}
					return w.RoundTrip(r)
				})})
				var err error
				if how == "sync" {
					_, err = c.UploadKeys(t.Context(), *want.Provider)
				} else {
					_, err = apply(t.Context(), c, want)
				}
				const says = "and has them now, so that whoever signs with them is taken for " + victim + ": give the provider that issuer's keys at once, or delete it"
				if problemOf(err) != iam.OtherIssuer || strings.Contains(err.Error(), says) != late {
					t.Errorf("%s, late=%t: error %v", how, late, err)
				}
				if p := w.State().Providers[0]; p.OIDC.Issuer != victim || strings.Contains(p.OIDC.JWKS, "k2") != late {
					t.Errorf("%s, late=%t: it has %+v", how, late, p.OIDC)
				}
			})
		}
	}
}

func TestUploadRefuses(t *testing.T) {
	t.Parallel()
	c := iam.OpenWith("x", iam.Access{Project: "p", Transport: roundTripper(nil)}) // nobody is called
	for _, tt := range []struct{ jwks, want string }{
		{`secret`, "the keys to upload are no JWKS"},
		{`{}`, "0 keys to upload: Google takes 1 to 8"},
		{string(jwks(rsaKey, "1", "2", "3", "4", "5", "6", "7", "8", "9")), "9 keys to upload: Google takes 1 to 8"},
		{`{"keys":[{"kty":"RSA","kid":"k","n":"AQAB","e":"AQAB","d":"secret"}]}`, "include a private key"},
		{`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`, "no ID (kid)"},
		{`{"keys":[{"kty":"RSA","kid":"k","n":"AQAB","e":"AQAB","alg":"PS256"}]}`, "key k to upload: Google takes keys for RS256 and ES256 only"},
		{`{"keys":[{"kty":"EC","kid":"k","crv":"P-384","x":"AQAB","y":"AQAB"}]}`, "key k to upload: Google takes keys for RS256 and ES256 only"},
		{`{"keys":[{"kty":"EC","kid":"k","crv":"P-256","x":"AQAB","y":"AQAB","alg":"ES384"}]}`, "key k to upload: Google takes keys for RS256 and ES256 only"},
		{`{"keys":[{"kty":"EC","kid":"k","crv":"P-256","x":"AQAB","alg":"ES256"}]}`, "key k to upload: Google takes keys for RS256 and ES256 only"},
		{`{"keys":[{"kty":"RSA","kid":"k","n":"AQAB","e":"AQAB","alg":"ES256"}]}`, "key k to upload: Google takes keys for RS256 and ES256 only"},
		{`{"keys":[{"kty":"RSA","kid":"k","n":"AQAB"}]}`, "key k to upload: Google takes keys for RS256 and ES256 only"},
		{`{"keys":[{"kty":"OKP","kid":"k","crv":"Ed25519","x":"AQAB"}]}`, "key k to upload: Google takes keys for RS256 and ES256 only"},
	} {
		if _, err := c.UploadKeys(t.Context(), iam.Provider{Pool: "pool", ID: "prov", Owner: iam.OwnedBy("demo"), JWKS: []byte(tt.jwks)}); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", tt.jwks, err, tt.want)
		}
	}
}

// A key need not say its algorithm where its kind says it.
func TestUploadTakesKeysWithoutAlgorithm(t *testing.T) {
	t.Parallel()
	for _, form := range []string{rsaKey, ecKey} {
		for _, alg := range []string{`"alg":"RS256",`, `"alg":"ES256",`} {
			w := installation("demo")
			w.Provider.JWKS = jwks(strings.Replace(form, alg, "", 1), "k1")
			check(t, w.Check())
		}
	}
}

// Of a copy of which nothing was recorded no key is taken away, of one that no gate can read none that may be there; and none is added to
// it, which may have been revoked.
func TestAnUnknownCopyIsLeft(t *testing.T) {
	t.Parallel()
	const key = `{"kty":"EC","alg":"ES256","use":"sig","kid":%q,"crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}`
	jwks := func(form, kid string) string { return `{"keys":[` + fmt.Sprintf(form, kid) + `]}` }
	one := jwks(key, "k1")
	two := strings.TrimSuffix(one, "]}") + "," + fmt.Sprintf(key, "k2") + "]}"
	for _, tt := range []struct{ want, held, lost string }{
		{one, one, ""},
		{jwks(key, "k2"), one, "(k1)"},
		{two, one, "without keys that the store publishes (k2)"},
		{one, two, "(k2)"},
		{one, jwks(rsaKey, "k1"), "(k1)"}, // weak, so that no gate takes it
		{jwks(rsaKey, "k1"), one, "(k1)"}, // whose material is not known to be the same
		{one, one[:len(one)-1] + `,"keys":[` + fmt.Sprintf(key, "k2") + `]}`, "(k2)"}, // of two lists one counts, nobody knows which
		{one, one[:len(one)-1] + `,"keys":[]}`, "(in a form that nobody can read)"},
		{one, `{"keys":[{"kid":5}]}`, "(in a form that nobody can read)"},
		{one, `secret`, "(in a form that nobody can read)"},
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			want := installation("demo")
			want.Accounts, want.Provider.JWKS = nil, []byte(one)
			mustApply(t, w, want)
			w.ResetCalls()
			c := bent{w, func(r *http.Request) string {
				if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/providers/demo") {
					return ""
				}
				answer, err := json.Marshal(map[string]any{"state": "ACTIVE", "description": ccoctlText + "; installation demo",
					"oidc": map[string]any{"issuerUri": issuerURL, "allowedAudiences": []string{"openshift"}, "jwksJson": tt.held}})
				check(t, err)
				return string(answer)
			}}.client()
			want.Provider.JWKS, want.Provider.Replace = []byte(tt.want), iam.ReplaceUnrecorded
			_, err := c.Plan(t.Context(), want)
			if (problemOf(err) == iam.UnknownCopy) != (tt.lost != "") || err != nil && (!strings.Contains(err.Error(), tt.lost) || strings.Contains(err.Error(), "secret")) {
				t.Errorf("%s instead of %s: %v, want %q", tt.want, tt.held, err, tt.lost)
			}
		})
	}
}

// A provider that cannot be used is told by what is wrong with it.
func TestUnusableProvider(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		c, want := w.client(), installation("demo")
		want.Accounts = nil
		says := func(text string) {
			t.Helper()
			if _, err := c.Provider(t.Context(), "demo", "demo"); err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("error %v, want %q", err, text)
			}
		}
		says("there is no workload identity pool demo")
		pool := want
		pool.Provider = nil
		mustApply(t, w, pool)
		says("there is no workload identity provider demo")
		mustApply(t, w, want)
		w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask=disabled", map[string]any{"disabled": true})
		says("workload identity provider demo is disabled")
		if have, err := c.UploadedKeys(t.Context(), "demo", "demo"); err != nil || !have.Disabled {
			t.Errorf("keys of a disabled provider: %+v, %v", have, err)
		}
		w.Do(t, "DELETE", poolPath, nil)
		says("workload identity pool demo is deleted")
		if _, err := c.UploadedKeys(t.Context(), "demo", "demo"); err == nil {
			t.Error("keys of what is deleted")
		}
	})
}

func TestProviderID(t *testing.T) {
	t.Parallel()
	const name = "projects/123456789012/locations/global/workloadIdentityPools/pool/providers/prov"
	id, err := iam.ParseProvider(name)
	if err != nil || id != (iam.ProviderID{Project: "123456789012", Pool: "pool", Provider: "prov"}) || id.String() != name {
		t.Errorf("%+v, %v", id, err)
	}
	for _, bad := range []string{"", "//iam.googleapis.com/" + name, name + "/x", strings.Replace(name, "global", "eu", 1), strings.Replace(name, "pool/", "p/", 1)} {
		if _, err := iam.ParseProvider(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}
