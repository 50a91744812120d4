package iam_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/test/fakegcp"
)

const ingressRole = "my-project/roles/myproject_openshiftingressgcp"

// A role that was deleted is brought back and changed by its etags, which the first of these calls changes: none is refused.
func TestARoleIsBroughtBack(t *testing.T) {
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		mustApply(t, w, installation("demo"))
		before := state(w)
		w.Do(t, "PATCH", ingressRole+"?updateMask=includedPermissions", map[string]any{"includedPermissions": []string{"dns.changes.get"}})
		w.Do(t, "DELETE", ingressRole, nil)
		w.ResetCalls()
		mustApply(t, w, installation("demo"))
		for _, c := range w.Calls() {
			if c.Write && c.Code != "" {
				t.Errorf("%s is refused with %s", c.Action, c.Code)
			}
			if c.Action == "UndeleteRole" && !strings.Contains(c.Body, `"etag":"`) {
				t.Errorf("brought back whatever it is by now: %s", c.Body)
			}
		}
		if after := strings.Replace(state(w), "[dns.changes.get dns.changes.create]", "[dns.changes.create dns.changes.get]", 1); after != before {
			t.Errorf("there is\n%s\nwant\n%s", after, before)
		}
		finished(t, w, installation("demo"))
	})
}

// Of two roles that may be meant, one that is deleted is not brought back.
func TestARoleThatIsThereComesFirst(t *testing.T) {
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		mustApply(t, w, installation("demo"))
		w.Do(t, "DELETE", ingressRole, nil)
		w.Do(t, "POST", "my-project/roles", map[string]any{"roleId": "ccoctls", "role": map[string]any{"title": "my-project-openshift-ingress-gcp",
			"description": ccoctlText, "includedPermissions": []string{"dns.changes.create", "dns.changes.get"}}})
		if text := preview(t, w, installation("demo")); strings.Contains(text, "brought back") || !strings.Contains(text, "+ projects/my-project/roles/ccoctls for serviceAccount:") {
			t.Errorf("plan\n%s", text)
		}
	})
}

// That Google blocks the ID of a role is said where it is so, and of no other refusal.
func TestOtherRefusalsAreNoBlockedRole(t *testing.T) {
	aborted := fakegcp.Fail(http.StatusConflict, "ABORTED", "There were concurrent changes.")
	failed := fakegcp.Fail(http.StatusBadRequest, "FAILED_PRECONDITION", "You can't create a role with this ID.")
	denied := fakegcp.Fail(http.StatusForbidden, "PERMISSION_DENIED", "You don't have it.")
	for _, tt := range []struct {
		name        string
		create, get fakegcp.Fault
		problem     iam.Problem
	}{{"somebody else writes", aborted, fakegcp.Fault{}, 0}, {"whether it is there is not known", failed, denied, iam.Denied}} {
		inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
			start := time.Now()
			w.Fault(func(c fakegcp.Call) fakegcp.Fault {
				switch {
				case c.Action == "CreateRole" && time.Since(start) < time.Second:
					return tt.create
				case c.Action == "GetRole":
					return tt.get
				}
				return fakegcp.Fault{}
			})
			_, err := apply(t.Context(), w.client(), installation("demo"))
			if problemOf(err) != tt.problem || (err == nil) != (tt.problem == 0) || err != nil && strings.Contains(err.Error(), "Google blocks it") {
				t.Errorf("%s: %v", tt.name, err)
			}
		})
	}
}

// A mapping keeps the attributes beside the subject: what others bound to them would be lost.
func TestOtherAttributesStay(t *testing.T) {
	inWorld(t, fakegcp.Options{}, func(t *testing.T, w *world) {
		mustApply(t, w, installation("demo"))
		w.Do(t, "PATCH", poolPath+"/providers/demo?updateMask=attributeMapping", map[string]any{"attributeMapping": map[string]string{
			"google.subject": "assertion.aud", "attribute.namespace": "assertion.namespace"}})
		lines := mustApply(t, w, installation("demo"))
		contains(t, state(w), "map[attribute.namespace:assertion.namespace google.subject:assertion.sub]")
		if !slices.Equal(lines, []string{"workload identity provider demo updated"}) {
			t.Errorf("lines %q", lines)
		}
	})
}
