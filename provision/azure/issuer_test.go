package azure_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/scene"
)

// An issuer that differs only by a letter's case or a slash is another one, as Entra compares: it is refused before anything is written
// or published, and replaced only with Adopt.
func TestAnotherIssuerIsRefused(t *testing.T) {
	t.Parallel()
	for _, old := range []string{issuerURL + "/", "https://OIDC.example.com/prod-a"} {
		t.Run(old, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fakeazure.Options{VaryCase: true})
				w.WriteKeys(t)
				before := w.identities(t, usual()...)
				before.IssuerURL = old
				_, err := azure.CreateIdentities(t.Context(), before)
				must(t, err)
				w.writes()
				o := w.create(t, usual()...)
				if _, err = azure.Create(t.Context(), o); !is(arm.OtherIssuer)(err) || !strings.Contains(err.Error(), " trusts the issuer "+old+", and not "+issuerURL) {
					t.Errorf("error %v", err)
				}
				if list, err := w.Store.List(t.Context()); len(list) > 0 || err != nil {
					t.Errorf("published: %v, %v", list, err)
				}
				if wrote := w.writes(); len(wrote) > 0 {
					t.Errorf("it wrote %q", wrote)
				}
				o.Adopt = true
				_, err = azure.Create(t.Context(), o)
				must(t, err)
				scene.Held(t, w.Reported(), "warning identity prod-a-ns-", "loses access")
				if got, want := w.issuers(), slices.Repeat([]string{issuerURL}, 5); !slices.Equal(got, want) {
					t.Errorf("it trusts %q", got)
				}
			})
		})
	}
}

// The credentials of an identity that is there are not written over where their list cannot be found.
func TestA404HidesNoLiveCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{})
		_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
		must(t, err)
		o := w.identities(t, usual()...)
		o.IssuerURL = "https://oidc.example.com/another"
		w.Fault(func(c fakeazure.Call) fakeazure.Fault {
			if c.Action == "ListCredentials" {
				return fakeazure.Fail(404, "ParentResourceNotFound", "The parent resource could not be found.")
			}
			return fakeazure.Fault{}
		})
		w.writes()
		_, err = azure.CreateIdentities(t.Context(), o)
		if wrote := w.writes(); err == nil || len(wrote) > 0 {
			t.Errorf("%v, and it wrote %q", err, wrote)
		}
	})
}

// An identity that takes tokens of both issuers is in the midst of a move: a run for either of them changes nothing there. One that
// takes those of another cluster's service account, which this one has not, keeps them.
func TestBothIssuersStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const old = "https://oidc.example.com/old"
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		o := w.identities(t, usual()...)
		_, err := azure.CreateIdentities(t.Context(), o)
		must(t, err)
		for _, c := range w.State().Credentials {
			w.credential(t, c.Identity, c.Name+"-old", old, c.Subject, "openshift")
		}
		w.credential(t, w.State().Identities[0].ID, "another", "https://oidc.example.com/other", "system:serviceaccount:other:app", "openshift")
		w.writes()
		for _, asked := range []string{issuerURL, old} {
			o.IssuerURL = asked
			for _, adopt := range []bool{false, true} {
				o.Adopt = adopt
				_, err := azure.CreateIdentities(t.Context(), o)
				must(t, err)
			}
		}
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("it wrote %q", wrote)
		}
	})
}

// A run for another workload locks the first one out only with --prune, also where both accounts have one name in two namespaces.
func TestWorkloadsShareAnIdentity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		run := func(prune bool, mode install.Mode, namespace, name string) *plan.Preview {
			return w.workload(t, func(o *azure.WorkloadOptions) {
				o.Prune, o.Mode, o.ServiceAccounts = prune, mode, []install.ServiceAccount{{Namespace: namespace, Name: name}}
			})
		}
		subjects := func() []string {
			var all []string
			for _, c := range w.State().Credentials {
				all = append(all, c.Subject)
			}
			slices.Sort(all)
			return all
		}
		const first, same, other = "system:serviceaccount:logging:loki", "system:serviceaccount:staging:loki", "system:serviceaccount:logging:ruler"
		run(false, install.Apply, "logging", "loki")
		run(false, install.Apply, "staging", "loki")
		run(false, install.Apply, "logging", "ruler")
		if got, want := subjects(), []string{first, other, same}; !slices.Equal(got, want) {
			t.Errorf("it takes tokens of %q, want %q", got, want)
		}
		const line = "identity loki takes tokens of " + first + " too, which nobody asked for; --prune takes it away"
		if !strings.Contains(w.Reported(), line) {
			t.Errorf("nobody says %q:\n%s", line, w.Reported())
		}
		if shown := run(false, install.Preview, "logging", "ruler"); len(shown.Changes) > 0 || !slices.Contains(shown.Extra, line) {
			t.Errorf("shown %+v", shown)
		}
		run(true, install.Apply, "staging", "loki")
		if got := subjects(); !slices.Equal(got, []string{same}) {
			t.Errorf("after --prune it takes tokens of %q", got)
		}
	})
}

const goneURL = "https://oidc.example.com/gone"

// workload makes the identity loki for a workload, with some options changed.
func (w *world) workload(t *testing.T, change func(o *azure.WorkloadOptions)) *plan.Preview {
	t.Helper()
	o := azure.WorkloadOptions{Options: w.elsewhere(), For: "--name", ServiceAccounts: []install.ServiceAccount{{Namespace: "logging", Name: "loki"}},
		Roles: []string{"Reader"}}
	o.Name, o.OIDCGroup, o.InstallGroup = "loki", "observability", ""
	change(&o)
	made, err := azure.CreateIdentity(t.Context(), o)
	must(t, err)
	return made.Preview
}

// issuers are those that the identities trust.
func (w *world) issuers() []string {
	var all []string
	for _, c := range w.State().Credentials {
		all = append(all, c.Issuer)
	}
	slices.Sort(all)
	return all
}

// An identity for workloads takes no tokens of an issuer that it is to drop, of whatever account. Others stay, and without being asked
// none goes.
func TestAWorkloadDropsAnOldIssuer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const other = "https://oidc.example.com/other"
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		run := func(mode install.Mode, issuer string, drop ...string) *plan.Preview {
			return w.workload(t, func(o *azure.WorkloadOptions) { o.Mode, o.IssuerURL, o.Drop = mode, issuer, drop })
		}
		for _, issuer := range []string{goneURL, other, issuerURL} {
			run(install.Apply, issuer)
		}
		w.credential(t, w.State().Identities[0].ID, "ruler", goneURL, "system:serviceaccount:logging:ruler", "openshift")
		run(install.Apply, issuerURL)
		shown := run(install.Preview, issuerURL, goneURL)
		scene.Held(t, preview(shown), "- ruler: system:serviceaccount:logging:ruler of "+goneURL+" for openshift",
			"identity loki no longer takes tokens of system:serviceaccount:logging:loki of "+goneURL)
		if got, want := w.issuers(), []string{goneURL, goneURL, other, issuerURL}; !slices.Equal(got, want) {
			t.Fatalf("it trusts %q, want %q", got, want)
		}
		run(install.Apply, issuerURL, goneURL)
		if got, want := w.issuers(), []string{other, issuerURL}; !slices.Equal(got, want) {
			t.Errorf("it trusts %q, want %q", got, want)
		}
		w.writes()
		run(install.Apply, issuerURL, goneURL, other+"/")
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("it wrote %q", wrote)
		}
	})
}
