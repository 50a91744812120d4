package azure_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/test/fakeazure"
)

const home = "/subscriptions/" + subscription + "/resourceGroups/prod-a-oidc"

// notFound turns the answers to some calls into a 404 with this body.
func notFound(t *testing.T, to bent, body string, some func(*http.Request) bool) bent {
	to.bend = func(r *http.Request, resp *http.Response) {
		if some(r) {
			rewrite(t, resp, func(string) string { return body })
			resp.StatusCode, resp.Status = http.StatusNotFound, "404 Not Found"
			resp.Header.Del("X-Ms-Error-Code")
		}
	}
	return to
}

// reads returns what picks the reading of paths that end so, in lower case.
func reads(end string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.HasSuffix(strings.ToLower(r.URL.Path), end)
	}
}

// pagesOf404 are answers that are not Azure's. Those of a gateway are https://datatracker.ietf.org/doc/html/rfc9457 and alike.
var pagesOf404 = map[string]string{
	"a page":            "<html>404 no such page</html>",
	"nothing":           "",
	"a number":          `{"error":{"code":404,"message":"no Route matched with those values"}}`,
	"a gateway's words": `{"type":"about:blank","title":"Not Found","status":404}`,
	"another code":      `{"error":{"code":"InvalidResourceType","message":"The resource type could not be found."}}`,
}

// Who takes a proxy's 404 for "there is none" deletes what others have, or writes over it.
func TestA404ThatIsNotAzuresIsNoAnswer(t *testing.T) {
	t.Parallel()
	for name, page := range pagesOf404 {
		for _, path := range []string{"/resources", "/resourcegroups/prod-a-oidc", "/userassignedidentities", "/federatedidentitycredentials", "/roleassignments", "/roledefinitions"} {
			t.Run(name+" "+path[1:], func(t *testing.T) {
				w := newWorld(t, fakeazure.Options{})
				_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
				must(t, err)
				w.arm(t, "PUT", home+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/other", "2024-11-30", `{"location":"centralus","tags":{"team":"other"}}`)
				again, gone := w.identities(t, usual()...), azure.DeleteOptions{Options: w.options(), Group: true}
				transport := notFound(t, bent{to: w.Client()}, page, reads(path))
				again.Transport, gone.Transport = transport, transport
				w.writes()
				if _, err := azure.CreateIdentities(t.Context(), again); path != "/resources" && err == nil {
					t.Error("the installation was made")
				}
				if wrote := w.writes(); len(wrote) > 0 {
					t.Errorf("it wrote %q", wrote)
				}
				if _, err := azure.Delete(t.Context(), gone); err == nil {
					t.Error("the deletion was a success")
				}
				if wrote := w.writes(); len(wrote) > 0 {
					t.Errorf("the deletion wrote %q", wrote)
				}
			})
		}
	}
}

// The credentials of a live cluster are not written over without --adopt, whatever 404 takes their list's place, also Azure's own.
func TestA404HidesNoLiveCluster(t *testing.T) {
	t.Parallel()
	for _, body := range []string{pagesOf404["a page"], `{"error":{"code":"ParentResourceNotFound","message":"The parent resource could not be found."}}`} {
		w := newWorld(t, fakeazure.Options{})
		_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
		must(t, err)
		o := w.identities(t, usual()...)
		o.IssuerURL = "https://oidc.example.com/another"
		o.Transport = notFound(t, bent{to: w.Client()}, body, reads("/federatedidentitycredentials"))
		w.writes()
		_, err = azure.CreateIdentities(t.Context(), o)
		if wrote := w.writes(); err == nil || len(wrote) > 0 {
			t.Errorf("%.20s: %v, and it wrote %q", body, err, wrote)
		}
	}
}

// A group that was just read has something in it, or an empty list: not a 404.
func TestA404OfAGroupsContentsDeletesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fakeazure.Options{})
	_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
	must(t, err)
	w.arm(t, "PUT", home+"/providers/Microsoft.ManagedIdentity/userAssignedIdentities/other", "2024-11-30", `{"location":"centralus","tags":{"team":"other"}}`)
	gone := azure.DeleteOptions{Options: w.options(), Group: true}
	gone.Transport = notFound(t, bent{to: w.Client()}, `{"error":{"code":"ResourceGroupNotFound","message":"Resource group 'prod-a-oidc' could not be found."}}`, reads("/resources"))
	w.writes()
	if _, err = azure.Delete(t.Context(), gone); err == nil {
		t.Error("the deletion was a success")
	}
	if wrote := w.writes(); len(wrote) > 0 {
		t.Errorf("it wrote %q", wrote)
	}
}

// unheard answers every deletion with a 404 that is not Azure's, and does nothing.
type unheard struct {
	bent
	body string
}

func (u unheard) Do(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodDelete {
		return u.to.Do(r)
	}
	return &http.Response{StatusCode: http.StatusNotFound, Status: "404 Not Found", Header: http.Header{}, Body: io.NopCloser(strings.NewReader(u.body)), Request: r}, nil
}

// A deletion that nobody heard is no success.
func TestA404ThatIsNotAzuresDeletesNothing(t *testing.T) {
	t.Parallel()
	for name, page := range pagesOf404 {
		w := newWorld(t, fakeazure.Options{})
		_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
		must(t, err)
		gone := azure.DeleteOptions{Options: w.options()}
		gone.Transport = unheard{bent{to: w.Client()}, page}
		if _, err = azure.Delete(t.Context(), gone); err == nil {
			t.Errorf("%s: the deletion was a success, and %d identities are there", name, len(w.State().Identities))
		}
	}
}

// Azure's own 404 is what it was: a deletion that another run was faster with is done, and one more finds nothing.
func TestAzuresOwn404IsAnAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fakeazure.Options{})
	_, err := azure.CreateIdentities(t.Context(), w.identities(t, usual()...))
	must(t, err)
	gone := azure.DeleteOptions{Options: w.options(), Group: true}
	gone.Transport = unheard{bent{to: w.Client()}, `{"error":{"code":"ResourceNotFound","message":"The Resource was not found."}}`}
	_, err = azure.Delete(t.Context(), gone)
	must(t, err)
	gone.Transport = w.Client()
	for range 2 {
		_, err = azure.Delete(t.Context(), gone)
		must(t, err)
	}
	if s := w.State(); len(s.Identities)+len(s.Definitions)+len(s.Assignments) > 0 {
		t.Errorf("left: %+v", s)
	}
}
