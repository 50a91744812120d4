package azure_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/test/fakeazure"
)

// Of what is there, only our own tags are written: what somebody else writes between the reading and the writing stays.
func TestOthersTagsStayMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
			o.Transport = bent{w.Client(), func(r *http.Request) {
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
	})
}
