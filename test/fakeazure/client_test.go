package fakeazure

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakecloud/cluster"
	"github.com/keypost/keypost/test/keys"
)

const (
	subscription = "/subscriptions/11111111-2222-3333-4444-555555555555"
	group        = subscription + "/resourceGroups/prod-a-oidc"
	identities   = group + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities"
	identity     = identities + "/prod-a-ns-creds"
	credential   = identity + "/federatedIdentityCredentials/app"
	definitions  = subscription + "/providers/Microsoft.Authorization/roleDefinitions"
	assignments  = group + "/providers/Microsoft.Authorization/roleAssignments"
	reader       = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
)

// firstKey and secondKey are the keys of all tests: making one takes long.
var firstKey, secondKey = keys.NewRSA(), keys.NewRSA()

// reply is what came back.
type reply struct {
	status int
	header http.Header
	text   string
	json   map[string]any
}

// get is a member deep in an answer, "properties.clientId", as text.
func (r reply) get(path string) string {
	var v any = r.json
	for name := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = m[name]
	}
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// names are the names in a list.
func (r reply) names() []string {
	var l []string
	items, _ := r.json["value"].([]any)
	for _, i := range items {
		l = append(l, i.(map[string]any)["name"].(string))
	}
	return l
}

// version is the API's, for a path.
func version(path string) string {
	lower := strings.ToLower(path)
	switch {
	case strings.Contains(lower, "microsoft.authorization"):
		return "2022-04-01"
	case strings.HasSuffix(lower, "/microsoft.resources/tags/default"):
		return "2021-04-01"
	case strings.Contains(lower, "microsoft.managedidentity/user"):
		return "2024-11-30"
	case strings.Contains(lower, "microsoft.storage/"):
		return "2024-01-01"
	}
	return "2021-04-01"
}

// call makes one call of Resource Manager as the caller.
func (s *Server) call(t testing.TB, method, path, body string) reply {
	t.Helper()
	return s.callAs(t, AccessToken, method, path, body)
}

func (s *Server) callAs(t testing.TB, token, method, path, body string) reply {
	t.Helper()
	query := "?"
	if strings.Contains(path, "?") {
		query = "&"
	}
	return s.send1(t, method, path+query+"api-version="+version(path), body, http.Header{"Authorization": {"Bearer " + token}})
}

// send1 makes one request of the management host, or of the host that the header names.
func (s *Server) send1(t testing.TB, method, path, body string, header http.Header) reply {
	t.Helper()
	host := "management.azure.com"
	if h := header.Get("Host"); h != "" {
		host = h
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "https://"+host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	response, err := s.Client().Do(r)
	if err != nil {
		return reply{text: err.Error()}
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := reply{status: response.StatusCode, header: response.Header, text: string(b)}
	_ = json.Unmarshal(b, &got.json) // not all of it is JSON
	return got
}

// must fails the test unless a call went well.
func (s *Server) must(t testing.TB, method, path, body string) reply {
	t.Helper()
	r := s.call(t, method, path, body)
	if r.status == 0 || r.status >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, r.status, r.text)
	}
	return r
}

// refused fails the test unless a call was refused like that.
func (s *Server) refused(t testing.TB, method, path, body, want string) reply {
	t.Helper()
	r := s.call(t, method, path, body)
	if got := fmt.Sprint(r.status, " ", r.get("error.code"), " ", r.get("error.message")); !strings.HasPrefix(got, want) {
		t.Errorf("%s %s\ngot  %s\nwant %s…", method, path, got, want)
	}
	return r
}

const here = `{"location":"centralus","tags":{"openshift.io_cloud-credential-operator_prod-a":"owned"}}`

func federated(issuer, subject string, audiences ...string) string {
	b, _ := json.Marshal(map[string]any{"properties": map[string]any{"issuer": issuer, "subject": subject, "audiences": audiences}})
	return string(b)
}

func assigned(role, principal, kind string) string {
	b, _ := json.Marshal(map[string]any{"properties": map[string]any{"roleDefinitionId": definitions + "/" + role, "principalId": principal, "principalType": kind}})
	return string(b)
}

// furnished is a tenant with a group and an identity in it. The answer is the identity's.
func furnished(t testing.TB, o Options) (*Server, reply) {
	t.Helper()
	s := Start(t, o)
	s.must(t, "PUT", group, here)
	return s, s.must(t, "PUT", identity, here)
}

// stage is a tenant with an identity that the workload may use, and the workload's issuer.
type stage struct {
	*Server
	issuer *cluster.Issuer
	clock  *cluster.Clock
	key    cluster.Signer
	client string
}

func newStage(t *testing.T, o Options) *stage {
	t.Helper()
	st := &stage{issuer: cluster.Start(t), clock: cluster.NewClock(), key: cluster.Signer{KID: "k1", Alg: "RS256", Key: firstKey()}}
	st.issuer.Keys = append(st.issuer.Keys, st.key.Public())
	o.Dial, o.Roots, o.Now = st.issuer.Dial, st.issuer.CA.Pool(), st.clock.Now
	var made reply
	st.Server, made = furnished(t, o)
	st.client = made.get("properties.clientId")
	st.must(t, "PUT", credential, federated(cluster.IssuerURL, cluster.Subject, "openshift"))
	return st
}

// token asks the token endpoint with a form, changed by pairs of name and value.
func (s *Server) token(t testing.TB, changes ...string) reply {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "scope": {"https://management.azure.com/.default openid profile offline_access"},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}}
	tenant := s.options.Tenant
	for i := 0; i < len(changes); i += 2 {
		if changes[i] == "tenant" {
			tenant = changes[i+1]
			continue
		}
		form.Set(changes[i], changes[i+1])
	}
	return s.send1(t, "POST", "/"+tenant+"/oauth2/v2.0/token", form.Encode(),
		http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Host": {"login.microsoftonline.com"}})
}

// try exchanges a token of these claims, and gives the error, or the access token.
func (st *stage) try(t testing.TB, changes ...any) reply {
	t.Helper()
	return st.tryToken(t, st.key.Sign(t, cluster.Workload(st.clock.Now(), changes...)))
}

func (st *stage) tryToken(t testing.TB, token string) reply {
	t.Helper()
	return st.token(t, "client_id", st.client, "client_assertion", token)
}

// says fails the test unless an exchange was refused with a sentence that begins like that.
func says(t testing.TB, r reply, status int, text string) {
	t.Helper()
	if r.status != status || !strings.HasPrefix(r.get("error_description"), text) {
		t.Errorf("got %d %s\nwant %d %s…", r.status, r.text, status, text)
	}
}

func (st *stage) pass(d time.Duration) { st.clock.Pass(d) }
