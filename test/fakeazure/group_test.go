package fakeazure

import (
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakecloud/cluster"
)

func TestAGroupIsMadeChangedAndKeepsItsPlace(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	if r := s.call(t, "HEAD", group, ""); r.status != 404 {
		t.Error(r.status)
	}
	if r := s.must(t, "PUT", group, here); r.status != 201 || r.get("location") != "centralus" || r.get("properties.provisioningState") != "Succeeded" {
		t.Error(r)
	}
	if r := s.must(t, "PUT", strings.ToLower(group), `{"location":"Central US"}`); r.status != 200 || r.get("name") != "prod-a-oidc" || r.get("id") != group || r.get("tags") != "" {
		t.Error("a PUT replaces tags", r)
	}
	if r := s.must(t, "PATCH", group, `{"tags":{"a":"b"}}`); r.get("tags.a") != "b" {
		t.Error(r.text)
	}
	s.refused(t, "PUT", group, `{"location":"westeurope"}`, "409 InvalidResourceGroupLocation Invalid resource group location 'westeurope'. The Resource group already exists in location 'centralus'.")
	s.refused(t, "PUT", group, `{}`, "400 LocationRequired")
	s.refused(t, "PUT", group+".", here, "400 InvalidResourceGroup")
	s.refused(t, "PUT", group, `{"location":"centralus","tags":{"a/b":""}}`, "400 InvalidTagNameCharacters")
	if r := s.call(t, "HEAD", group, ""); r.status != 204 {
		t.Error(r.status)
	}
}

// Merge and Delete leave the tags alone that they do not name; letter case does not count.
func TestSomeTagsAreChanged(t *testing.T) {
	t.Parallel()
	for _, thing := range []string{group, identity} {
		s := Start(t, Options{})
		for _, path := range []string{group, identity} {
			s.must(t, "PUT", path, `{"location":"centralus","tags":{"a":"1","b":"2"}}`)
		}
		tags := thing + "/providers/Microsoft.Resources/tags/default"
		for _, c := range []struct{ body, a, b, c string }{
			{`{"operation":"Merge","properties":{"tags":{"B":"3","c":"4"}}}`, "1", "", "4"},
			{`{"operation":"Delete","properties":{"tags":{"C":"other","A":"1"}}}`, "", "", "4"},
			{`{"operation":"Delete","properties":{"tags":{"C":""}}}`, "", "", ""},
			{`{"operation":"Replace","properties":{"tags":{"a":"5"}}}`, "5", "", ""},
		} {
			if r := s.must(t, "PATCH", tags, c.body); r.get("id") != tags || r.get("properties.tags.a") != c.a {
				t.Error(c.body, r.text)
			}
			if r := s.must(t, "GET", thing, ""); r.get("tags.a") != c.a || r.get("tags.b") != c.b || r.get("tags.c") != c.c {
				t.Error(c.body, r.text)
			}
		}
		s.refused(t, "PATCH", tags, `{"properties":{"tags":{"a":"5"}}}`, "400 InvalidTagOperation")
		s.refused(t, "PATCH", tags, `{"operation":"Merge","properties":{"tags":{"a/b":""}}}`, "400 InvalidTagNameCharacters")
	}
	Start(t, Options{}).refused(t, "PATCH", group+"/providers/Microsoft.Resources/tags/default", `{"operation":"Merge","properties":{"tags":{"a":"5"}}}`, "404 ResourceGroupNotFound")
}

func TestAGroupIsDeletedLaterWithAllThatIsInIt(t *testing.T) {
	t.Parallel()
	clock := cluster.NewClock()
	s, made := furnished(t, Options{Now: clock.Now, OperationDelay: 10 * time.Second})
	s.must(t, "PUT", credential, federated(cluster.IssuerURL, cluster.Subject, "openshift"))
	s.must(t, "PUT", subscription+"/resourceGroups/other", here)
	principal := made.get("properties.principalId")
	s.must(t, "PUT", assignments+"/"+guid("a"), assigned(reader, principal, ""))
	s.must(t, "PUT", subscription+"/resourceGroups/other/providers/Microsoft.Authorization/roleAssignments/"+guid("b"), assigned(reader, principal, ""))
	s.Place("prod-a-oidc", "Microsoft.Compute/disks", "d")
	if n := s.must(t, "GET", group+"/resources", "").names(); strings.Join(n, " ") != "prod-a-ns-creds d" {
		t.Error(n)
	}
	r := s.must(t, "DELETE", group, "")
	if r.status != 202 || r.header.Get("Retry-After") != "10" {
		t.Error(r)
	}
	poll := func() reply {
		path, _, _ := strings.Cut(strings.TrimPrefix(r.header.Get("Location"), "https://management.azure.com"), "?")
		return s.must(t, "GET", path, "")
	}
	if p := poll(); p.status != 202 || s.must(t, "GET", group, "").get("properties.provisioningState") != "Deleting" {
		t.Error(p)
	}
	s.refused(t, "PUT", identity, here, "409 ResourceGroupBeingDeleted")
	clock.Pass(10 * time.Second)
	if p := poll(); p.status != 200 {
		t.Error(p)
	}
	st := s.State()
	if len(st.Groups) != 1 || len(st.Identities)+len(st.Credentials)+len(st.Others) != 0 || len(st.Assignments) != 1 {
		t.Errorf("%+v", st)
	}
	s.refused(t, "DELETE", group, "", "404 ResourceGroupNotFound")
}

func TestAnOperationMayHaveToBeAskedForOften(t *testing.T) {
	t.Parallel()
	s, _ := furnished(t, Options{OperationPolls: 2})
	r := s.must(t, "DELETE", group, "")
	path, _, _ := strings.Cut(strings.TrimPrefix(r.header.Get("Location"), "https://management.azure.com"), "?")
	if a, b := s.must(t, "GET", path, ""), s.must(t, "GET", path, ""); a.status != 202 || b.status != 200 {
		t.Error(a.status, b.status)
	}
	s.refused(t, "GET", subscription+"/operationresults/x", "", "404 NotFound")
}
