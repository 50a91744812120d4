package azure_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/test/fakeazure"
)

// Of what is there, our own tags alone are written: what somebody else writes between the reading and the writing stays.
func TestOthersTagsStayMeanwhile(t *testing.T) {
	t.Parallel()
	const (
		group    = "/subscriptions/" + subscription + "/resourceGroups/prod-a-oidc"
		identity = group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/prod-a-ns-registry-creds"
		own      = "openshift.io_cloud-credential-operator_prod-a"
	)
	for _, thing := range []string{group, identity} {
		w := newWorld(t, fakeazure.Options{VaryCase: true})
		o := w.identities(t, usual()...)
		_, err := azure.CreateIdentities(t.Context(), o)
		must(t, err)
		version := map[string]string{group: "2021-04-01", identity: "2024-11-30"}[thing]
		w.arm(t, "PATCH", thing, version, `{"tags":{"`+own+`":"owned","team":"x","cost-center":"41"}}`)
		reads := 0
		o.Tags = map[string]string{"Team": "ours"}
		o.Transport = bent{w.Client(), func(r *http.Request, _ *http.Response) {
			if r.Method != http.MethodGet || !strings.EqualFold(r.URL.Path, thing) {
				return
			}
			if reads++; reads == map[string]int{group: 2, identity: 1}[thing] { // the last before the write
				w.arm(t, "PATCH", thing, version, `{"tags":{"`+own+`":"owned","team":"x","cost-center":"42","other":"y"}}`)
			}
		}}
		_, err = azure.CreateIdentities(t.Context(), o)
		must(t, err)
		have := map[string]map[string]string{}
		for _, g := range w.State().Groups {
			have[strings.ToLower(g.ID)] = g.Tags
		}
		for _, i := range w.State().Identities {
			have[strings.ToLower(i.ID)] = i.Tags
		}
		if got := have[strings.ToLower(thing)]; !maps.Equal(got, map[string]string{own: "owned", "Team": "ours", "cost-center": "42", "other": "y"}) {
			t.Errorf("tags of %s: %v", thing, got)
		}
	}
}

// A tag that Unicode's letters make look like ours is another one to Azure, and its thing is not ours to delete.
func TestATagOfOtherLettersIsNotOurs(t *testing.T) {
	t.Parallel()
	for tag, ours := range map[string]bool{
		"openshift.io_cloud-credential-operator_kasse":      true,
		"OPENSHIFT.IO_CLOUD-CREDENTIAL-OPERATOR_KASSE":      true,
		"openſhift.io_cloud-credential-operator_kasse":      false,
		"openshift.io_cloud-credential-operator_kaſse":      false,
		"openshift.io_cloud-credential-operator_\u212aasse": false, // the sign of kelvins
		"openshift.io_cloud-credential-operator_kasse ":     false,
	} {
		w := newWorld(t, fakeazure.Options{})
		o := w.elsewhere()
		o.Name = "kasse"
		_, err := azure.CreateIdentities(t.Context(), azure.IdentitiesOptions{Options: o, Identities: w.requests(t, usual()...)})
		must(t, err)
		other := home + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/other"
		w.arm(t, "PUT", other, "2024-11-30", `{"location":"centralus","tags":{"`+tag+`":"owned"}}`)
		_, err = azure.Delete(t.Context(), azure.DeleteOptions{Options: o, Group: true})
		if (err == nil) != ours {
			t.Errorf("%q: the group with it: %v", tag, err)
		}
		_, err = azure.Delete(t.Context(), azure.DeleteOptions{Options: o})
		must(t, err)
		if left := w.State().Identities; (len(left) == 0) != ours || len(left) > 1 {
			t.Errorf("%q: left %+v", tag, left)
		}
	}
}

// A credential for an issuer of other letters is another issuer's, and stays beside.
func TestAnIssuerOfOtherLettersIsAnother(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"https://oidc.example.com/prod-a", "https://oidc.example.com/prod-a", true},
		{"https://oidc.example.com/Prod-A/", "https://oidc.example.com/prod-a", true},
		{"https://oidc.example.com/prod-\u212a", "https://oidc.example.com/prod-k", false},
		{"https://oidc.example.com/ſ", "https://oidc.example.com/s", false},
	} {
		if got := azure.SameIssuer(c.a, c.b); got != c.same {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
	}
}
