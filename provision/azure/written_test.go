package azure_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/test/fakeazure"
)

// swallowing is Azure behind something that answers some requests itself, with 201: Azure never has them.
type swallowing struct {
	to     arm.Transport
	answer func(*http.Request) (body string, is bool)
}

func (s swallowing) Do(r *http.Request) (*http.Response, error) {
	if body, is := s.answer(r); is {
		return &http.Response{StatusCode: http.StatusCreated, Status: "201 Created", Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
	return s.to.Do(r)
}

// A write counts as made when the answer is of what was written: 201 alone may be anybody's. What is not there is not reported, and the
// next run makes it.
func TestAWriteIsBelievedByWhatIsAnswered(t *testing.T) {
	const (
		failure = `{"error":{"code":"AuthorizationFailed","message":"no"}}`
		guids   = `"principalId":"11111111-1111-1111-1111-111111111111","clientId":"11111111-1111-1111-1111-111111111111","tenantId":"` + tenant + `"`
		parent  = "/subscriptions/" + subscription + "/resourceGroups/"
	)
	for _, tt := range []struct {
		path, line string // a part of the path, and how what reports the write begins
		others     []string
	}{
		{"/resourcegroups/", "Created resource group", []string{`{"id":"` + parent + `other","name":"other","location":"centralus"}`}},
		{"/userAssignedIdentities/", "Created user-assigned managed identity", []string{`{"name":"other","properties":{` + guids + `}}`}},
		{"/federatedIdentityCredentials/", "Created federated identity credential", []string{
			`{"name":"other","properties":{"issuer":"` + issuerURL + `","subject":"system:serviceaccount:ns-registry:registry","audiences":["openshift"]}}`,
			`{"name":"registry","properties":{"issuer":"https://other.example.com","subject":"system:serviceaccount:ns-registry:registry","audiences":["openshift"]}}`,
			`{"name":"registry","properties":{"issuer":"` + issuerURL + `","subject":"system:serviceaccount:ns-registry:other","audiences":["openshift"]}}`,
			`{"name":"registry","properties":{"issuer":"` + issuerURL + `","subject":"system:serviceaccount:ns-registry:registry","audiences":["other"]}}`,
		}},
		{"/roleAssignments/", "Created role assignment", []string{
			`{"name":"x","properties":{"scope":"` + parent + `prod-a","roleDefinitionId":"/x/other","principalId":"11111111-1111-1111-1111-111111111111"}}`}},
		{"/roleDefinitions/", "Created customRole", []string{`{"id":"/subscriptions/` + subscription + `/providers/Microsoft.Authorization/roleDefinitions/other"}`}},
	} {
		for _, answer := range append([]string{"{}", "null", "", failure}, tt.others...) {
			t.Run(strings.Trim(tt.path, "/")+" "+answer, func(t *testing.T) {
				w := newWorld(t, fakeazure.Options{})
				o := w.identities(t, usual()[0], usual()[2])
				o.Transport = swallowing{w.Client(), func(r *http.Request) (string, bool) {
					_, rest, is := strings.Cut(r.URL.Path, tt.path)
					return answer, r.Method == http.MethodPut && is && !strings.Contains(rest, "/")
				}}
				_, err := azure.CreateIdentities(t.Context(), o)
				if err == nil || !strings.Contains(err.Error(), "/write was answered without the ") || !strings.Contains(err.Error(), "so nothing says that it was made: see what is between here and Azure") {
					t.Errorf("error %v", err)
				}
				if said := w.Reported(); strings.Contains(said, tt.line) {
					t.Errorf("it reports\n%s", said)
				}
				o.Transport = w.Client()
				_, err = azure.CreateIdentities(t.Context(), o)
				must(t, err)
				if said := w.Reported(); !strings.Contains(said, tt.line) {
					t.Errorf("the next run does not make it:\n%s", said)
				}
				w.writes()
				_, err = azure.CreateIdentities(t.Context(), o)
				must(t, err)
				if wrote := slices.DeleteFunc(w.writes(), func(s string) bool { return !strings.HasPrefix(s, "Put") }); len(wrote) > 0 {
					t.Errorf("something was left to do: %q", wrote)
				}
			})
		}
	}
}
