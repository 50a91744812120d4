package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/test/silent"
)

// What each refusal that is known from reports means: the sources are in the table, and here where nothing of the table fits.
func TestRefusalsMean(t *testing.T) {
	t.Parallel()
	const (
		invalid, failed = "INVALID_ARGUMENT", "FAILED_PRECONDITION"
		pool            = "projects/123456789012/locations/global/workloadIdentityPools/prod-a"
		hint            = ". Please check that you specified a valid resource name as returned in the `name` attribute in the configuration API."
		deleted         = "'deleted:serviceAccount:a@p.iam.gserviceaccount.com?uid=1' and 'serviceAccount:a@p.iam.gserviceaccount.com'."
	)
	for _, tt := range []struct {
		code, text string
		constraint string // of the details
		means      cloud.Answer
		policy     bool // the message speaks of an organisation policy
	}{
		{invalid, "Service account a@p.iam.gserviceaccount.com does not exist.", "", cloud.NotYet, false},
		{invalid, "Role (projects/p/roles/x) does not exist in the resource's hierarchy.", "", cloud.NotYet, false},
		{invalid, "Role projects/p/roles/x does not exist in the resource's hierarchy.", "", cloud.NotYet, false},
		{invalid, "Role (roles/storage.admn) does not exist in the resource's hierarchy.", "", cloud.Refused, false},
		{invalid, "Role roles/x is not supported for this resource.", "", cloud.Refused, false}, // terraform-provider-google issue 5107
		{invalid, "Identity Pool does not exist (" + pool + ")" + hint, "", cloud.NotYet, false},
		{invalid, "Identity Pool does not exist (" + pool + "-b)" + hint, "", cloud.Refused, false}, // somebody else's
		{invalid, "Identity Pool does not exist (p.svc.id.goog)" + hint, "", cloud.Refused, false},
		{invalid, "Inconsistent representation of deleted member: " + deleted, "", cloud.NotYet, false},
		{invalid, "User a@example.com does not exist.", "", cloud.Refused, false},
		{invalid, "Policy members must be of the form \"<type>:<value>\".", "", cloud.Refused, false}, // terraform-provider-google issue 5151
		{invalid, "Request contains an invalid argument.", "", cloud.Refused, false},
		{invalid, "One or more users named in the policy do not belong to a permitted customer,  perhaps due to an organization policy.", "", cloud.Refused, false},
		{failed, "One or more users named in the policy do not belong to a permitted customer.", "constraints/iam.allowedPolicyMemberDomains", cloud.Refused, true},
		{failed, "One or more users named in the policy do not belong to a permitted customer.", "", cloud.Refused, false},
		{failed, "Service account creation is not allowed on this project.", "", cloud.Refused, false},
		{failed, "Precondition check failed.", "constraints/iam.workloadIdentityPoolProviders", cloud.Refused, true},
		{failed, "Org Policy violated for value: 'https://oidc.example.com'.", "", cloud.Refused, false},
		{failed, "Operation denied by org policy on resource 'projects/p': [\"constraints/iam.managed.allowedPolicyMembers\"].", "", cloud.Refused, false},
		{failed, "Precondition check failed.", "", cloud.Refused, false},
		{failed, "You can't create a role_id (x) which has been marked for deletion.", "", cloud.Refused, false},
		{failed, "The workload identity pool is deleted.", "", cloud.NotYet, false},
		{failed, "The workload identity pool provider is not deleted.", "", cloud.NotYet, false},
		{"ABORTED", "There were concurrent policy changes.", "", cloud.NotYet, false},
		{"NOT_FOUND", "Unknown service account", "", cloud.NotYet, false},
		{"ALREADY_EXISTS", "Requested entity already exists", "", cloud.Exists, false},
		{"PERMISSION_DENIED", "The caller does not have permission", "", cloud.Refused, false},
	} {
		var s statusError
		body := fmt.Sprintf(`{"message": %q, "status": %q, "details": [{"violations": [{"type": %q, "description": %[1]q}]}]}`, tt.text, tt.code, tt.constraint)
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			t.Fatal(err)
		}
		k := Call{Pool: "prod-a"}
		got, err := answer(k, false, (&Client{}).explain(k, s.refusal()))
		if said := err != nil && strings.Contains(err.Error(), "organisation"); got != tt.means || said != tt.policy {
			t.Errorf("%s %q %s: %d, %v; want %d, of a policy: %t", tt.code, tt.text, tt.constraint, got, err, tt.means, tt.policy)
		}
		if refused, is := errors.AsType[*apiError](err); !is || tt.constraint != "" && refused.constraint != tt.constraint {
			t.Errorf("%q: the constraint is not kept: %v", tt.text, err)
		}
		if n := strings.Count(err.Error(), tt.text[:20]); n != 1 {
			t.Errorf("Google's words are told %d times: %v", n, err)
		}
	}
	for _, r := range refusals {
		if r.source == "" {
			t.Errorf("%s has no source", r.text)
		}
	}
}

// A Google that says nothing costs who uploads to it no connection and no goroutine for long.
func TestSilentServer(t *testing.T) {
	s := silent.Listen(t, "")
	c, err := Open(t.Context(), Access{Project: "p", Tokens: oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "t"})})
	if err != nil {
		t.Fatal(err)
	}
	c.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.Address)
	}
	s.LeavesNothing(t, func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return c.Ask(ctx, Call{Service: IAM, Name: "X", Path: "x"}, nil)
	})
}
