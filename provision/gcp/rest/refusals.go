package rest

import (
	"regexp"
	"strings"
)

// The organisation's constraints that Google names only in a sentence, and not in the details of a refusal.
const (
	// issuerConstraint limits the issuers of providers in an organisation
	// (https://cloud.google.com/iam/docs/manage-workload-identity-pools-providers#restrict).
	issuerConstraint   = "constraints/iam.workloadIdentityPoolProviders"
	accountConstraint  = "constraints/iam.disableServiceAccountCreation"
	memberConstraint   = "constraints/iam.allowedPolicyMemberDomains"
	unnamedConstraint  = "constraints/…, which Google does not name"
	anyOfItsConstraint = `(?i)\borg(ani[sz]ation)? policy\b|\bconstraints/`
)

// refusals are the sentences that say what a refusal means where its code does not. The first that fits counts. Any other refusal with
// INVALID_ARGUMENT or FAILED_PRECONDITION is final.
var refusals = []struct {
	text       *regexp.Regexp
	constraint string // of the organisation, which forbids the change: it is final. Empty for a change that is taken after a while
	source     string
}{
	{regexp.MustCompile(`Org Policy violated for value`), issuerConstraint,
		"https://cloud.google.com/iam/docs/manage-workload-identity-pools-providers#restrict"},
	{regexp.MustCompile(`^Service account creation is not allowed`), accountConstraint,
		"https://cloud.google.com/resource-manager/docs/organization-policy/restricting-service-accounts"},
	{regexp.MustCompile(`not belong to a permitted customer|is not in permitted organization`), memberConstraint,
		"github.com/terraform-google-modules/terraform-example-foundation/issues/1257"},
	{regexp.MustCompile(anyOfItsConstraint), unnamedConstraint, "github.com/googlemaps/js-route-optimization-app/issues/198"},

	{regexp.MustCompile(`^Service account \S+ does not exist`), "", "what ccoctl repeats: its pkg/cmd/provisioning/gcp/create_service_accounts.go"},
	{regexp.MustCompile(`^Role \(?projects/\S+ does not exist`), "", "github.com/hashicorp/terraform-provider-google/issues/1694"},
	{regexp.MustCompile(`^Identity Pool does not exist \((?:\S*/workloadIdentityPools/)?([a-z0-9-]+)\)`), "", // the run's own
		"github.com/terraform-google-modules/terraform-google-kubernetes-engine/issues/916"},
	{regexp.MustCompile(`^Inconsistent representation of deleted member`), "", "github.com/GoogleCloudPlatform/k8s-config-connector/issues/279"},
	{regexp.MustCompile(`(?:is|is not|been) (?:deleted|marked for deletion)`), "", // a deletion or an undeletion was made since the plan
		"https://cloud.google.com/iam/docs/creating-custom-roles#deleting-custom-role"},
}

// forbidden returns the constraint of the organisation by which a refusal is final; empty if it says of none.
func (e *apiError) forbidden() string {
	for _, r := range refusals {
		if r.constraint != "" && r.text.MatchString(e.Error()) {
			return r.constraint
		}
	}
	return ""
}

// passes reports whether a change that was refused is taken later: what it names was just made, or is just being deleted.
func (e *apiError) passes(k Call) bool {
	final := e.constraint != "" || strings.HasPrefix(e.message, "You can't create") // the ID of a deleted role is blocked for 37 days
	if final || e.code != "INVALID_ARGUMENT" && e.code != "FAILED_PRECONDITION" {
		return false
	}
	for _, r := range refusals {
		if m := r.text.FindStringSubmatch(e.message); m != nil && r.constraint == "" {
			return len(m) == 1 || m[1] == k.Pool
		}
	}
	return false
}
