package azure_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/fakecloud/cluster"
	"github.com/keypost/keypost/test/scene"
)

// A run without Prune and Adopt only adds: anyone who got a token of an identity before gets it afterwards, and no role allows less. What
// nobody asks for any more is named. With Prune it goes, and what is asked for stays.
func TestARunOnlyAddsUnlessItPrunes(t *testing.T) {
	t.Parallel()
	scene.Histories(t, 6, func(t *testing.T, h *scene.History) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e := newExchange(t)
			o := e.random(t, h)
			_, err := azure.CreateIdentities(t.Context(), o)
			must(t, err)
			before := e.exchanges(t)
			if len(before) == 0 {
				t.Fatal("nobody gets a token of an identity")
			}
			allowed := e.allowed()
			for range 3 {
				o = e.random(t, h)
				o.Mode = install.Preview
				shown, err := azure.CreateIdentities(t.Context(), o)
				must(t, err)
				o.Mode = install.Apply
				_, err = azure.CreateIdentities(t.Context(), o)
				must(t, err)
				after, now := e.exchanges(t), e.allowed()
				for _, was := range before {
					if !slices.Contains(after, was) {
						t.Errorf("a run without --prune took this exchange away: %s", was)
					}
				}
				for _, was := range allowed {
					if !slices.Contains(now, was) {
						t.Errorf("a run without --prune took this permission away: %s", was)
					}
				}
				extra := strings.Join(shown.Preview.Extra, "\n")
				for _, was := range before {
					if words := strings.Fields(was); !e.wants(words) && !strings.Contains(extra, words[1]) && !strings.Contains(extra, words[0]) {
						t.Errorf("nobody asks for %s, and it is not named:\n%s", was, extra)
					}
				}
				before, allowed = after, now
			}
			o.Prune, o.Usual = true, false
			_, err = azure.CreateIdentities(t.Context(), o)
			must(t, err)
			for _, is := range e.exchanges(t) {
				if words := strings.Fields(is); !e.wants(words) {
					t.Errorf("after --prune there is still %s", is)
				}
			}
			o.Mode = install.Preview
			if left, err := azure.CreateIdentities(t.Context(), o); err != nil || !left.Preview.Empty() {
				t.Errorf("%v, left: %+v", err, left.Preview)
			}
		})
	})
}

// exchange is a world with a cluster whose tokens Entra exchanges.
type exchange struct {
	*world
	signer cluster.Signer
	asked  []string // NAME-of-the-request SUBJECT of the latest options
}

func newExchange(t *testing.T) *exchange {
	t.Helper()
	e := &exchange{world: newWorld(t, fakeazure.Options{})}
	key := clusterKey()
	public, err := keystore.NewPublic(key.Public())
	must(t, err)
	e.signer = cluster.Signer{KID: string(public.ID()), Alg: jose.RS256, Key: key}
	e.publish(t, key)
	return e
}

// random returns a release of a few requests with a few service accounts and permissions each, for one audience of two.
func (e *exchange) random(t *testing.T, h *scene.History) azure.IdentitiesOptions {
	t.Helper()
	some := func(all []string) []string {
		h.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all[:1+h.IntN(len(all))]
	}
	var list []request
	e.asked = nil
	for _, name := range some([]string{"storage", "registry", "network"}) {
		accounts := some([]string{"op", "operator-v2", "csi.sa"})
		for _, a := range accounts {
			e.asked = append(e.asked, fmt.Sprintf("prod-a-ns-%s-creds system:serviceaccount:ns-%s:%s", name, name, a))
		}
		list = append(list, request{name, strings.Join(accounts, ", "),
			"permissions: [" + strings.Join(some([]string{"Microsoft.Compute/disks/read", "Microsoft.Compute/disks/write", "Microsoft.Network/dnsZones/read"}), ", ") + "]"})
	}
	o := e.identities(t, list...)
	o.Audience = []string{"openshift", "api://AzureADTokenExchange"}[h.IntN(2)]
	o.Usual = h.IntN(2) == 0
	return o
}

// wants reports whether the latest options ask for an exchange: that an identity takes tokens of a subject.
func (e *exchange) wants(words []string) bool { return slices.Contains(e.asked, words[0]+" "+words[1]) }

// exchanges returns a line IDENTITY SUBJECT AUDIENCE for each exchange that succeeds, of all that may.
func (e *exchange) exchanges(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, id := range e.State().Identities {
		namespace := strings.TrimSuffix(strings.TrimPrefix(id.Name, "prod-a-"), "-creds")
		for _, account := range []string{"op", "operator-v2", "csi.sa"} {
			for _, audience := range []string{"openshift", "api://AzureADTokenExchange"} {
				subject := install.Subject(namespace, account)
				token := e.signer.Sign(t, cluster.Workload(time.Now(), "iss", issuerURL, "sub", subject, "aud", []string{audience}))
				if e.exchanged(t, id.ClientID, token) {
					all = append(all, id.Name+" "+subject+" "+audience)
				}
			}
		}
	}
	return all
}

// exchanged has Entra exchange a token, as a workload does.
func (e *exchange) exchanged(t *testing.T, client, token string) bool {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {client}, "scope": {"https://management.azure.com/.default"},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "client_assertion": {token}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://login.microsoftonline.com/"+tenant+"/oauth2/v2.0/token", strings.NewReader(form.Encode()))
	must(t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := e.Client().Do(req)
	must(t, err)
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	if resp.StatusCode != http.StatusOK && !strings.Contains(string(text), "AADSTS70021") {
		t.Fatalf("Entra says neither yes nor that nothing matches: %s", text)
	}
	return resp.StatusCode == http.StatusOK
}

// allowed returns a line for each action of each custom role.
func (e *exchange) allowed() []string {
	var all []string
	for _, d := range e.State().Definitions {
		for _, p := range d.Permissions {
			for _, a := range p.Actions {
				all = append(all, d.RoleName+" "+a)
			}
		}
	}
	return all
}
