package azure_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/test/fakeazure"
)

// bent is Azure with answers that something between here and there has changed.
type bent struct {
	to   arm.Transport
	bend func(*http.Request, *http.Response)
}

func (b bent) Do(r *http.Request) (*http.Response, error) {
	resp, err := b.to.Do(r)
	if err == nil {
		b.bend(r, resp)
	}
	return resp, err
}

// rewrite changes the body of an answer.
func rewrite(t *testing.T, resp *http.Response, f func(string) string) {
	t.Helper()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	text := []byte(f(string(data)))
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Del("Content-Length")
}

// What is not a list is not taken for an empty one, after which others' things would be deleted or written over.
func TestAnAnswerWithoutAListIsNotAnEmptyList(t *testing.T) {
	const group = "/subscriptions/" + subscription + "/resourceGroups/prod-a-oidc"
	for _, list := range []string{"/resources", "/userAssignedIdentities", "/federatedIdentityCredentials", "/roleAssignments", "/roleDefinitions"} {
		for _, answer := range []string{"{}", "null", "", `{"value":null}`, `{"value":[null]}`} {
			t.Run(list[1:]+" "+answer, func(t *testing.T) {
				w := newWorld(t, fakeazure.Options{})
				_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
				must(t, err)
				w.arm(t, "PUT", group+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/other", "2024-11-30", `{"location":"centralus","tags":{"team":"other"}}`)
				transport := bent{w.Client(), func(r *http.Request, resp *http.Response) {
					if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, list) {
						rewrite(t, resp, func(string) string { return answer })
					}
				}}
				again, gone := w.identities(t, usual()...), azure.DeleteOptions{Options: w.options(), Group: true}
				again.Transport, gone.Transport = transport, transport
				w.writes()
				_, created := azure.CreateIdentities(t.Context(), again)
				_, deleted := azure.Delete(t.Context(), gone)
				used := map[string][]error{"/resources": {deleted}, "/federatedIdentityCredentials": {created}}[list]
				if used == nil {
					used = []error{created, deleted}
				}
				for _, err := range used {
					if err == nil || !strings.Contains(err.Error(), "is not a list of Azure's") {
						t.Errorf("it is taken for a list: %v", err)
					}
				}
				for _, c := range w.writes() {
					if strings.HasPrefix(c, "Put") || strings.HasPrefix(c, "DeleteGroup") {
						t.Errorf("it wrote %s", c)
					}
				}
			})
		}
	}
}

// Wherever an answer leads, the caller's token does not go along, and nobody asks twice.
func TestTheTokenStaysWithAzure(t *testing.T) {
	for name, link := range map[string]string{"another host": "https://evil.example.net/x?y=1", "no TLS": "http://management.azure.com/x?y=1"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fakeazure.Options{})
			_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
			must(t, err)
			answers := 0
			lists := bent{w.Client(), func(r *http.Request, resp *http.Response) {
				if strings.Contains(r.URL.Host, "evil") || r.URL.Scheme == "http" {
					t.Errorf("%s was asked, with %.20q", r.URL, r.Header.Get("Authorization"))
				}
				if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/userAssignedIdentities") {
					answers++
					rewrite(t, resp, func(string) string { return `{"value":[],"nextLink":"` + link + `"}` })
				}
			}}
			o := w.identities(t, usual()...)
			o.Transport = lists
			_, err = azure.CreateIdentities(t.Context(), o)
			if err == nil || answers != 1 || name != "no TLS" && !strings.Contains(err.Error(), "does not get the caller's token") {
				t.Errorf("after %d answers: %v", answers, err)
			}
			gone := azure.DeleteOptions{Options: w.options(), Group: true}
			gone.Transport = bent{w.Client(), func(r *http.Request, resp *http.Response) {
				if strings.Contains(r.URL.Host, "evil") || r.URL.Scheme == "http" {
					t.Errorf("%s was asked, with %.20q", r.URL, r.Header.Get("Authorization"))
				}
				if r.Method == http.MethodDelete && resp.Header.Get("Location") != "" {
					resp.Header.Set("Location", link)
				}
			}}
			if _, err = azure.Delete(t.Context(), gone); err == nil {
				t.Error("the deletion went on")
			}
		})
	}
}
