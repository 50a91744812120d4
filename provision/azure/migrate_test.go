package azure_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/azure/iam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakeazure"
)

// An identity that takes tokens of neither issuer is told of. What a release asks for under the new issuer is there after the move, and
// the old one stays.
func TestMigrate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		o := w.moved(t, "https://prod-a.blob.core.windows.net/prod-a")
		w.arm(t, "PUT", strings.TrimSuffix(w.State().Identities[0].ID, w.State().Identities[0].Name)+"prod-a-alone", "2024-11-30",
			`{"location":"centralus","tags":{"openshift.io_cloud-credential-operator_prod-a":"owned"}}`)
		w.writes()
		o.Mode = install.Preview
		shown, err := azure.Migrate(t.Context(), o)
		must(t, err)
		if warned := shown.Preview.Warnings; len(warned) != 1 || !strings.Contains(warned[0], "prod-a-alone takes tokens of neither") {
			t.Errorf("warned %q", warned)
		}
		o.Mode = install.Apply
		for range 2 {
			_, err = azure.Migrate(t.Context(), o)
			must(t, err)
		}
		if wrote := w.writes(); len(wrote) != 5 {
			t.Errorf("it wrote %q", wrote)
		}
		_, err = azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
		must(t, err)
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("then it wrote %q", wrote)
		}
	})
}

// The record of a switch is not an exception to whose a resource group is: another installation's is not written to.
func TestTheRecordOfASwitchAsksWhoseTheGroupIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			old   = "https://prod-a.blob.core.windows.net/prod-a"
			group = "/subscriptions/" + subscription + "/resourceGroups/prod-a-oidc"
		)
		w := newWorld(t, fakeazure.Options{})
		o := w.moved(t, old)
		w.arm(t, "PATCH", group, "2021-04-01", fmt.Sprintf(`{"tags":{"openshift.io_cloud-credential-operator_prod-b":"owned",%q:"2020-01-01T00:00:00Z"}}`, iam.MovedAtTag("prod-a", old)))
		w.writes()
		_, err := azure.Migrate(t.Context(), o)
		if !is(arm.NotOwned)(err) || !strings.Contains(err.Error(), "resource group prod-a-oidc belongs to prod-b, and does not bear the tag openshift.io_cloud-credential-operator_prod-a=owned") {
			t.Errorf("error %v", err)
		}
		if wrote := w.writes(); len(wrote) > 0 {
			t.Errorf("it wrote %q", wrote)
		}
	})
}

// dead is Azure's answer to a client that was killed.
func dead() fakeazure.Fault { return fakeazure.Fail(http.StatusBadRequest, "Killed", "here") }

// A credential for the old issuer goes only where the new issuer has its like: the same subject, for the same audience. Nobody asks
// the cluster before that is so.
func TestFinishNeedsTheLikeOfEachCredential(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const old = "https://prod-a.blob.core.windows.net/prod-a"
		w := newWorld(t, fakeazure.Options{})
		o := w.moved(t, old)
		_, err := azure.Migrate(t.Context(), o)
		must(t, err)
		all := w.State().Credentials
		at := slices.IndexFunc(all, func(c fakeazure.Credential) bool {
			return c.Issuer == issuerURL && strings.HasSuffix(c.Subject, ":registry")
		})
		like := all[at]
		for _, tt := range []struct{ name, issuer, subject, audience string }{
			{"another audience", issuerURL, like.Subject, "other"},
			{"another subject", issuerURL, like.Subject + "-2", "openshift"},
			{"another issuer", issuerURL + "-2", like.Subject, "openshift"},
		} {
			w.credential(t, like.Identity, like.Name, tt.issuer, tt.subject, tt.audience)
			w.writes()
			if _, err := azure.FinishMigration(t.Context(), o); err == nil || !strings.Contains(err.Error(), "takes tokens of "+like.Subject+" as "+old+" only: move it first") {
				t.Errorf("%s: %v", tt.name, err)
			}
			if wrote := w.writes(); len(wrote) > 0 {
				t.Errorf("%s: it wrote %q", tt.name, wrote)
			}
		}
	})
}

// Another cluster's credential that came between a plan and its writes keeps its issuer.
func TestAnotherIssuerMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const other = "https://oidc.example.com/other"
		w := newWorld(t, fakeazure.Options{})
		o := w.identities(t, usual()...)
		_, err := azure.CreateIdentities(t.Context(), o)
		must(t, err)
		all := w.State().Credentials
		lost := all[slices.IndexFunc(all, func(c fakeazure.Credential) bool { return strings.HasSuffix(c.Subject, ":registry") })]
		w.arm(t, "DELETE", lost.ID, "2024-11-30", "")
		w.writes()
		once := false
		o.Transport = bent{w.Client(), func(r *http.Request) {
			if r.Method == http.MethodGet && strings.EqualFold(r.URL.Path, lost.Identity+"/federatedIdentityCredentials") && !once {
				once = true
				w.credential(t, lost.Identity, lost.Name, other, lost.Subject, "openshift")
			}
		}}
		if _, err = azure.CreateIdentities(t.Context(), o); !is(arm.OtherIssuer)(err) {
			t.Errorf("error %v", err)
		}
		for _, c := range w.State().Credentials {
			if strings.HasSuffix(c.Subject, ":registry") && c.Issuer != other {
				t.Errorf("it is %+v", c)
			}
		}
	})
}

// What a release needs is added before anything goes that nobody asks for any more.
func TestAddedBeforeAnythingGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, fakeazure.Options{})
		_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
		must(t, err)
		o := w.identities(t, request{"storage", "op", "permissions: [Microsoft.Compute/disks/read, Microsoft.Compute/disks/write]"},
			request{"new", "new", "permissions: [Microsoft.Network/dnsZones/read]"})
		o.Prune = true
		w.writes()
		_, err = azure.CreateIdentities(t.Context(), o)
		must(t, err)
		wrote := w.writes()
		first := slices.IndexFunc(wrote, func(c string) bool { return strings.HasPrefix(c, "Delete") })
		if first < 4 || slices.ContainsFunc(wrote[first:], func(c string) bool { return !strings.HasPrefix(c, "Delete") }) {
			t.Errorf("in this order: %s", strings.Join(wrote, "\n"))
		}
	})
}
