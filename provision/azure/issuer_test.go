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

// Another issuer under the same name is another cluster's: this is shown, refused before anything is written or published, and
// done only with Adopt. Letter by letter, as Entra compares.
func TestAnotherIssuerIsRefused(t *testing.T) {
	t.Parallel()
	for _, old := range []string{"https://oidc.example.com/old", issuerURL + "/", "https://OIDC.example.com/prod-a"} {
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
				_, err = azure.Create(t.Context(), o)
				if !is(arm.OtherIssuer)(err) {
					t.Fatalf("%v", err)
				}
				scene.Held(t, err.Error(), "managed identity prod-a-ns-", " trusts the issuer "+old+", and not "+issuerURL+" as asked: changed, "+
					"it would take no token of "+old+" any more, and every workload of that cluster would lose access")
				if list, err := w.Store.List(t.Context()); len(list) > 0 || err != nil {
					t.Errorf("published: %v, %v", list, err)
				}
				o.Mode, o.Adopt = install.Preview, true
				shown, err := azure.Create(t.Context(), o)
				must(t, err)
				text := preview(shown.Preview)
				scene.Held(t, text, "- registry: system:serviceaccount:ns-registry:registry of "+old+" for openshift",
					"+ registry: system:serviceaccount:ns-registry:registry of "+issuerURL+" for openshift",
					"identity prod-a-ns-registry-creds takes no tokens of the issuer "+old+" any more: every workload of that cluster loses access")
				if wrote := w.writes(); len(wrote) > 0 {
					t.Errorf("it wrote %q", wrote)
				}
				o.Mode = install.Apply
				_, err = azure.Create(t.Context(), o)
				must(t, err)
				scene.Held(t, w.Reported(), "warning identity prod-a-ns-", "loses access")
				for _, c := range w.State().Credentials {
					if c.Issuer != issuerURL {
						t.Errorf("left: %+v", c)
					}
				}
				if n := len(w.State().Credentials); n != 5 {
					t.Errorf("%d federated credentials", n)
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

// Azure takes any URL for a federated credential. One that no key set of the store has is refused before the first write, unless it
// is to be adopted.
func TestAnIssuerUnknownToTheStoreIsRefused(t *testing.T) {
	t.Parallel()
	const says = "no key set of the store has the issuer URL " + issuerURL + ", which the identities are to trust"
	release := func(t *testing.T, w *world, o azure.Options) (*plan.Preview, error) {
		made, err := azure.CreateIdentities(t.Context(), azure.IdentitiesOptions{Options: o, Identities: w.requests(t, usual()...)})
		return made.Preview, err
	}
	workload := func(t *testing.T, _ *world, o azure.Options) (*plan.Preview, error) {
		o.Name, o.OIDCGroup, o.InstallGroup, o.Dir = "loki", "observability", "", ""
		made, err := azure.CreateIdentity(t.Context(), azure.WorkloadOptions{Options: o, For: "--name", Roles: []string{"Reader"},
			ServiceAccounts: []install.ServiceAccount{{Namespace: "logging", Name: "loki"}}})
		return made.Preview, err
	}
	for name, run := range map[string]func(*testing.T, *world, azure.Options) (*plan.Preview, error){"a release": release, "a workload": workload} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, fakeazure.Options{})
				o := w.options()
				for range 2 {
					_, err := run(t, w, o)
					if wrote := w.writes(); !is(arm.UnknownIssuer)(err) || !strings.Contains(err.Error(), says) || len(wrote) > 0 {
						t.Fatalf("error %v, and it wrote %q", err, wrote)
					}
				}
				o.Adopt = true
				_, err := run(t, w, o)
				must(t, err)
				scene.Held(t, w.Reported(), says+": see that it is spelled right")
				o.Adopt = false
				w.publish(t, clusterKey())
				w.Reported()
				_, err = run(t, w, o)
				must(t, err)
				if said := w.Reported(); strings.Contains(said, "no key set of") {
					t.Errorf("a key set has it, and it says %q", said)
				}
			})
		})
	}
}

// A run for another workload locks the first one out only with --prune, also where both accounts have one name in two namespaces.
func TestWorkloadsShareAnIdentity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		run := func(prune bool, mode install.Mode, namespace, name string) *plan.Preview {
			t.Helper()
			o := azure.WorkloadOptions{Options: w.elsewhere(), For: "--name", ServiceAccounts: []install.ServiceAccount{{Namespace: namespace, Name: name}},
				Roles: []string{"Reader"}}
			o.Name, o.OIDCGroup, o.InstallGroup, o.Prune, o.Mode = "loki", "observability", "", prune, mode
			made, err := azure.CreateIdentity(t.Context(), o)
			must(t, err)
			return made.Preview
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

// loki makes an identity for a workload, which trusts an issuer and no more what it is to drop.
func (w *world) loki(t *testing.T, mode install.Mode, issuer string, drop ...string) *plan.Preview {
	t.Helper()
	o := azure.WorkloadOptions{Options: w.elsewhere(), For: "--name", ServiceAccounts: []install.ServiceAccount{{Namespace: "logging", Name: "loki"}},
		Roles: []string{"Reader"}}
	o.Name, o.OIDCGroup, o.InstallGroup, o.IssuerURL, o.Drop, o.Mode = "loki", "observability", "", issuer, drop, mode
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
		for _, issuer := range []string{goneURL, other, issuerURL} {
			w.loki(t, install.Apply, issuer)
		}
		w.credential(t, w.State().Identities[0].ID, "ruler", goneURL, "system:serviceaccount:logging:ruler", "openshift")
		w.loki(t, install.Apply, issuerURL)
		shown := w.loki(t, install.Preview, issuerURL, goneURL)
		scene.Held(t, preview(shown), "- ruler: system:serviceaccount:logging:ruler of "+goneURL+" for openshift",
			"identity loki no longer takes tokens of system:serviceaccount:logging:loki of "+goneURL)
		if got, want := w.issuers(), []string{goneURL, goneURL, other, issuerURL}; !slices.Equal(got, want) {
			t.Fatalf("it trusts %q, want %q", got, want)
		}
		w.loki(t, install.Apply, issuerURL, goneURL)
		if got, want := w.issuers(), []string{other, issuerURL}; !slices.Equal(got, want) {
			t.Errorf("it trusts %q, want %q", got, want)
		}
		w.writes()
		w.loki(t, install.Apply, issuerURL, goneURL, other+"/")
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("it wrote %q", wrote)
		}
	})
}
