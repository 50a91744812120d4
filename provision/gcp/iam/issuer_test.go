package iam_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/test/fakegcp"
)

const oldIssuer = "https://old.example.com/demo"

// trustOld makes the provider trust another issuer, as that of another cluster of the name does.
func trustOld(t *testing.T, w *world) {
	t.Helper()
	w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask=oidc.issuerUri", map[string]any{"oidc": map[string]any{"issuerUri": oldIssuer}})
	settle(w)
}

// refused fails the test unless what is wanted is refused for a problem, and nothing written.
func refused(t *testing.T, w *world, want iam.Wanted, problem rest.Problem) string {
	t.Helper()
	w.ResetCalls()
	_, err := apply(t.Context(), w.client(), want)
	if problemOf(err) != problem {
		t.Fatalf("error %v, want problem %v", err, problem)
	}
	if n := w.Writes(); n > 0 {
		t.Errorf("%d writes before %v", n, err)
	}
	return err.Error()
}

// Nobody lives by a provider that is deleted, nor by those of a pool that is: a name may be used again.
func TestOtherIssuerOfWhatWasDeleted(t *testing.T) {
	t.Parallel()
	for _, gone := range []string{poolPath, poolPath + "/providers/demo"} {
		for _, revive := range []bool{true, false} {
			inWorld(t, fakegcp.Options{ReviveProviders: revive, OperationDelay: time.Second}, func(t *testing.T, w *world) {
				mustApply(t, w, installation("demo"))
				before := state(w)
				trustOld(t, w)
				w.Do(t, "DELETE", gone, nil)
				if text := preview(t, w, installation("demo")); strings.Contains(text, "loses access") || !strings.Contains(text, "- issuer "+oldIssuer) {
					t.Errorf("%s, revive=%t:\n%s", gone, revive, text)
				}
				mustApply(t, w, installation("demo"))
				settle(w)
				if after := state(w); after != before {
					t.Errorf("%s, revive=%t: there is\n%s\nwant\n%s", gone, revive, after, before)
				}
			})
		}
	}
}

// A run that is stopped between the undelete and the change after it leaves what was deleted, with the keys that were revoked since, and
// nothing there sets it apart from a provider by which a cluster lives. It was said before the first write; the next run refuses what could be
// a live one's, and ends it with Adopt.
func TestStoppedRevival(t *testing.T) {
	t.Parallel()
	for _, other := range []bool{false, true} {
		for _, gone := range []string{poolPath, poolPath + "/providers/demo"} {
			for _, revive := range []bool{false, true} {
				inWorld(t, fakegcp.Options{ReviveProviders: revive}, func(t *testing.T, w *world) {
					want := installation("demo")
					want.Accounts, want.Provider.JWKS = nil, jwks(keyOne, "revoked", "k1")
					mustApply(t, w, want)
					if other {
						trustOld(t, w)
					}
					w.Do(t, "DELETE", gone, nil)
					want.Provider.JWKS = jwks(keyOne, "k1")
					had := issuerURL
					if other {
						had = oldIssuer
					}
					contains(t, preview(t, w, want), "warning: provider demo comes back as it was, with the issuer "+had+" and the keys that were uploaded to it")
					w.Fault(of("PatchWorkloadIdentityPoolProvider", fakegcp.Fail(http.StatusForbidden, "PERMISSION_DENIED", "The caller does not have permission")))
					_, err := apply(t.Context(), w.client(), want)
					if problemOf(err) != rest.Denied {
						t.Errorf("error %v", err)
					}
					w.Fault(nil)
					settle(w)
					why := rest.OtherCopy
					if other {
						why = rest.OtherIssuer
					}
					refused(t, w, want, why)
					want.Provider.Adopt = true
					if text := preview(t, w, want); strings.Contains(text, "comes back") {
						t.Errorf("of what is there:\n%s", text)
					}
					mustApply(t, w, want)
					settle(w)
					want.Provider.Adopt = false
					finished(t, w, want)
					if text := state(w); strings.Contains(text, "revoked") || strings.Contains(text, oldIssuer) || strings.Contains(text, "DELETED") {
						t.Errorf("there is\n%s", text)
					}
				})
			}
		}
	}
}

// A provider without accounts needs its pool, and is not made in one that lets nobody in.
func TestProviderNeedsItsPool(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		method, path string
		body         map[string]any
		want         string
	}{
		{"DELETE", poolPath, nil, "workload identity pool demo is deleted: make it again, which brings it back"},
		{"PATCH", poolPath + "?updateMask=disabled", map[string]any{"disabled": true}, "workload identity pool demo is disabled: make it again, which enables it"},
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			all := installation("demo")
			pool, alone := iam.Wanted{Pool: all.Pool}, iam.Wanted{Provider: all.Provider}
			mustApply(t, w, pool)
			w.Do(t, tt.method, tt.path, tt.body)
			settle(w)
			if got := refused(t, w, alone, rest.PoolUnusable); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			mustApply(t, w, pool) // as the hint says
			settle(w)
			mustApply(t, w, alone)
			finished(t, w, iam.Wanted{Pool: all.Pool, Provider: all.Provider})
		})
	}
}

const (
	keyOne = `{"kty":"EC","alg":"ES256","use":"sig","kid":%q,"crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}`
	keyTwo = `{"kty":"EC","alg":"ES256","use":"sig","kid":%q,"crv":"P-256","x":"n5eur1UOhEbGtgxfteLmXo3qHW1rjDyRy_2IZtLNQYw","y":"LE8Dgly7sdiAr8uSl7FGipMiCS8_YDiqICTXNM3BBwM"}`
)

// jwks has keys with these IDs.
func jwks(form string, kids ...string) []byte {
	var keys []string
	for _, k := range kids {
		keys = append(keys, fmt.Sprintf(form, k))
	}
	return []byte(`{"keys":[` + strings.Join(keys, ",") + `]}`)
}

// Uploaded keys are those that are published: no more, no less, whatever the form.
func TestUpload(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{ConsistencyDelay: 30 * time.Second, OperationPolls: 1}, func(t *testing.T, w *world) {
		want := installation("demo")
		want.Accounts = nil
		want.Provider.JWKS = jwks(keyOne, "k1", "k2")
		mustApply(t, w, want)
		settle(w)
		finished(t, w, want)
		c := w.client()
		want.Provider.JWKS, want.Provider.Adopt = jwks(keyTwo, "k1", "k2"), true
		contains(t, preview(t, w, want), "~ uploaded keys of the same IDs")
		want.Provider.JWKS = jwks(keyOne, "k2", "k3")
		contains(t, preview(t, w, want), "- uploaded key k1", "+ uploaded key k3")
		mustApply(t, w, want)
		want.Provider.Adopt = false
		for i, changed := range []bool{true, false} {
			is, err := c.UploadKeys(t.Context(), federation.Provider{Pool: "demo", ID: "demo", IssuerURL: issuerURL, Owner: federation.OwnedBy("demo"), JWKS: jwks(keyTwo, "e1")})
			if err != nil || is != changed {
				t.Errorf("upload %d: %t, %v", i, is, err)
			}
		}
		have, err := c.UploadedKeys(t.Context(), "demo", "demo")
		check(t, err)
		if have.JWKS != string(jwks(keyTwo, "e1")) || have.IssuerURL != issuerURL {
			t.Errorf("uploaded %s for %s", have.JWKS, have.IssuerURL)
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
		if have, err := c.UploadedKeys(t.Context(), "demo", "demo"); err != nil || have.JWKS != "" {
			t.Errorf("keys %s, %v", have.JWKS, err)
		}
		if _, err := c.UploadKeys(t.Context(), federation.Provider{Pool: "demo", ID: "demo", IssuerURL: issuerURL, Owner: federation.OwnedBy("demo"), JWKS: jwks(keyOne, "k1")}); err == nil || !strings.Contains(err.Error(), "has no uploaded keys") {
			t.Errorf("error %v", err)
		}
	})
}

// A provider that was given to another issuer since it was read keeps its keys: ours would count for that issuer's tokens.
func TestUploadGoesToTheIssuerThatWasRead(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		want := installation("demo")
		want.Accounts, want.Provider.JWKS = nil, jwks(keyOne, "k1")
		mustApply(t, w, want)
		w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask=oidc.issuerUri", map[string]any{"oidc": map[string]any{"issuerUri": "https://victim.example.com"}})
		before := state(w)
		want.Provider.JWKS = jwks(keyOne, "k2")
		if _, err := w.client().UploadKeys(t.Context(), *want.Provider); problemOf(err) != rest.OtherIssuer || !strings.Contains(err.Error(), "trusts the issuer https://victim.example.com by now") {
			t.Errorf("error %v", err)
		}
		if after := state(w); after != before {
			t.Errorf("changed to\n%s", after)
		}
	})
}

func TestUploadRefuses(t *testing.T) {
	t.Parallel()
	c := iam.OpenWith("x", rest.Access{Project: "p", Transport: roundTripper(nil)}) // nobody is called
	for _, tt := range []struct{ jwks, want string }{
		{`secret`, "the JWKS to upload"},
		{`{"keys":[]}`, "JSON without a key"},
		{string(jwks(keyOne, "1", "2", "3", "4", "5", "6", "7", "8", "9")), "9 keys to upload: Google takes 8"},
		{strings.Replace(string(jwks(keyOne, "k")), `"kid"`, `"d":"secret","kid"`, 1), "private"},
		{`{"keys":[{"kty":"EC","kid":"k","crv":"P-384","x":"8UDjyzPTS_GOIzX65T8LSlVvU68GKkfXnwdcbWe0OrNHnXLiO6DKlLIhLPqE3FBA","y":"IQ9uZvT-A3OJEnqY2uYz2iXMUNxXuxDL2FWJdYR8gmBsjNDzjq1XWNPvsgiO1wBG"}]}`, ""},
	} {
		_, err := c.UploadKeys(t.Context(), federation.Provider{Pool: "pool", ID: "prov", Owner: federation.OwnedBy("demo"), JWKS: []byte(tt.jwks)})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", tt.jwks, err, tt.want)
		}
	}
}

// A copy is not replaced by other keys, whether it has more or less: a key may have been revoked since.
func TestAnotherCopyIsLeft(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want, held string
		refused    bool
	}{
		{string(jwks(keyOne, "k1")), string(jwks(keyOne, "k1")), false},
		{string(jwks(keyOne, "k2")), string(jwks(keyOne, "k1")), true},
		{string(jwks(keyOne, "k1", "k2")), string(jwks(keyOne, "k1")), true},
		{string(jwks(keyOne, "k1")), string(jwks(keyOne, "k1", "k2")), true},
		{string(jwks(keyOne, "k1")), `{"keys":[{"kty":"RSA","kid":"weak","n":"AQAB","e":"AQAB"}]}`, true},
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			want := installation("demo")
			want.Accounts, want.Provider.JWKS = nil, jwks(keyOne, "k0")
			mustApply(t, w, want)
			w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask=oidc.jwksJson", map[string]any{"oidc": map[string]any{"jwksJson": tt.held}})
			want.Provider.JWKS = []byte(tt.want)
			_, err := w.client().Plan(t.Context(), want)
			if (problemOf(err) == rest.OtherCopy) != tt.refused || (err != nil) != tt.refused {
				t.Errorf("%s instead of %s: %v", tt.want, tt.held, err)
			}
		})
	}
}

// Anyone who may not read pools is told nothing of the pool with what its provider holds.
func TestUploadedKeysOfAPoolThatNobodyMayRead(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		want := installation("demo")
		want.Accounts, want.Provider.JWKS = nil, jwks(keyOne, "k1")
		mustApply(t, w, want)
		w.Fault(of("GetWorkloadIdentityPool", fakegcp.Fail(http.StatusForbidden, "PERMISSION_DENIED", "Permission 'iam.workloadIdentityPools.get' denied on resource '//iam.googleapis.com/x' (or it may not exist).")))
		have, err := w.client().UploadedKeys(t.Context(), "demo", "demo")
		if err != nil || have.Refused != nil || have.JWKS == "" {
			t.Errorf("%+v, %v", have, err)
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
		{"Created By OpenShift ccoctl", "other", false, "somebody else's: its description is \"Created By OpenShift ccoctl\""},
		{"Created By OpenShift ccoctl", "other", true, ""},
		{"Created By OpenShift ccoctl; installation other", "demo", false, "somebody else's: its description is \"Created By OpenShift ccoctl; installation other\""},
		{"of another team", "demo", false, "somebody else's"},
		{"", "demo", false, "somebody else's"},
		{"of another team", "demo", true, ""},
	} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			want := installation("demo")
			want.Accounts, want.Provider.JWKS = nil, jwks(keyOne, "k1")
			mustApply(t, w, want)
			w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask=description", map[string]any{"description": tt.description})
			before := state(w)
			_, err := w.client().UploadKeys(t.Context(), federation.Provider{Pool: "demo", ID: "demo", IssuerURL: issuerURL, Owner: federation.OwnedBy(tt.owner), Adopt: tt.adopt, JWKS: jwks(keyOne, "k2")})
			if tt.want == "" {
				check(t, err)
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || problemOf(err) != rest.NotOwned || state(w) != before {
				t.Errorf("%q: %v\n%s", tt.description, err, state(w))
			}
		})
	}
}
