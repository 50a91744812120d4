package iam_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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

// A provider that trusts another issuer has not drifted: a cluster may live by it.
func TestOtherIssuer(t *testing.T) {
	t.Parallel()
	whole := func(w iam.Wanted) iam.Wanted { return w }
	alone := func(w iam.Wanted) iam.Wanted { return iam.Wanted{Provider: w.Provider} }
	for _, part := range []func(iam.Wanted) iam.Wanted{whole, alone} {
		inWorld(t, fakegcp.Options{OperationDelay: time.Second}, func(t *testing.T, w *world) {
			mustApply(t, w, installation("demo"))
			before := state(w)
			trustOld(t, w)
			want := part(installation("demo"))
			lost := "workload identity provider demo trusts the issuer " + oldIssuer + ": changed to " + issuerURL + ", it takes no token of " + oldIssuer + " any more, " +
				"and every workload of that cluster loses access"
			contains(t, refused(t, w, want, rest.OtherIssuer), lost)
			want.Provider.Adopt = true
			contains(t, preview(t, w, want), "- issuer "+oldIssuer, "+ issuer "+issuerURL, "warning: "+lost)
			mustApply(t, w, want)
			settle(w)
			if after := state(w); after != before {
				t.Errorf("afterwards there is\n%s\nwant\n%s", after, before)
			}
			finished(t, w, installation("demo"))
		})
	}
}

// What goes with a pool is what somebody lives by: the issuers of the providers that are not deleted.
func TestWhatGoesWithAPool(t *testing.T) {
	t.Parallel()
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		goes := func(want string) {
			t.Helper()
			_, got, err := w.client().PlanDelete(t.Context(), iam.Deletion{Name: "demo"})
			check(t, err)
			if fmt.Sprint(got.Issuers) != want || got.Stays {
				t.Errorf("%+v, want %s", got, want)
			}
		}
		goes("[]")
		mustApply(t, w, installation("demo"))
		goes("[" + issuerURL + "]")
		second := installation("demo").Provider
		second.ID, second.IssuerURL, second.JWKS = "second", oldIssuer, jwks(keyOne, "k1")
		mustApply(t, w, iam.Wanted{Provider: second})
		goes("[" + issuerURL + " " + oldIssuer + "]")
		w.Do(t, "DELETE", poolPath+"/providers/second", nil)
		goes("[" + issuerURL + "]")
	})
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
// nothing there tells that from a provider by which a cluster lives. It was said before the first write; the next run refuses what could be
// a live one's, and ends it with Adopt.
func TestStoppedRevival(t *testing.T) {
	t.Parallel()
	for _, unrecorded := range []bool{false, true} {
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
						want.Provider.JWKS, want.Provider.Unrecorded = jwks(keyOne, "k1"), unrecorded
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
						switch {
						case other:
							refused(t, w, want, rest.OtherIssuer)
						case unrecorded:
							refused(t, w, want, rest.UnknownCopy)
						}
						want.Provider.Adopt = other || unrecorded
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
}

// A provider without accounts needs its pool, and is not made in one that lets nobody in.
func TestProviderNeedsItsPool(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, method, path string
		body               map[string]any
		want               string
	}{
		{"missing", "", "", nil, "there is no workload identity pool demo: make it first"},
		{"deleted", "DELETE", poolPath, nil, "workload identity pool demo is deleted: make it again, which brings it back"},
		{"disabled", "PATCH", poolPath + "?updateMask=disabled", map[string]any{"disabled": true}, "workload identity pool demo is disabled: make it again, which enables it"},
	} {
		for _, made := range []bool{false, true} { // the provider, before
			inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
				all := installation("demo")
				pool, alone := iam.Wanted{Pool: all.Pool}, iam.Wanted{Provider: all.Provider}
				if tt.method != "" {
					mustApply(t, w, pool)
					if made {
						mustApply(t, w, alone)
					}
					w.Do(t, tt.method, tt.path, tt.body)
					settle(w)
				}
				if got := refused(t, w, alone, rest.PoolUnusable); got != tt.want {
					t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
				}
				mustApply(t, w, pool) // as the hint says
				settle(w)
				mustApply(t, w, alone)
				finished(t, w, iam.Wanted{Pool: all.Pool, Provider: all.Provider})
				if i := slices.IndexFunc(w.State().Providers, func(p fakegcp.Provider) bool { return p.State == "ACTIVE" }); i != 0 {
					t.Errorf("%s: there is\n%s", tt.name, state(w))
				}
			})
		}
	}
}
