package rest

import (
	"regexp"
	"strings"
)

// refusals are the sentences of changes that are taken after a while. Any other refusal with INVALID_ARGUMENT or FAILED_PRECONDITION is
// final.
var refusals = []struct {
	text   *regexp.Regexp
	source string
}{
	{regexp.MustCompile(`^Service account \S+ does not exist`), "what ccoctl repeats: its pkg/cmd/provisioning/gcp/create_service_accounts.go"},
	{regexp.MustCompile(`^Role \(?projects/\S+ does not exist`), "github.com/hashicorp/terraform-provider-google/issues/1694"},
	{regexp.MustCompile(`^Identity Pool does not exist \((?:\S*/workloadIdentityPools/)?([a-z0-9-]+)\)`), // the run's own
		"github.com/terraform-google-modules/terraform-google-kubernetes-engine/issues/916"},
	{regexp.MustCompile(`^Inconsistent representation of deleted member`), "github.com/GoogleCloudPlatform/k8s-config-connector/issues/279"},
	{regexp.MustCompile(`(?:is|is not|been) (?:deleted|marked for deletion)`), // a deletion or an undeletion was made since the plan
		"https://cloud.google.com/iam/docs/creating-custom-roles#deleting-custom-role"},
}

// passes reports whether a change that was refused is taken later: what it names was just made, or is just being deleted.
func (e *apiError) passes(k Call) bool {
	final := e.constraint != "" || strings.HasPrefix(e.message, "You can't create") // the ID of a deleted role is blocked for 37 days
	if final || e.code != "INVALID_ARGUMENT" && e.code != "FAILED_PRECONDITION" {
		return false
	}
	for _, r := range refusals {
		if m := r.text.FindStringSubmatch(e.message); m != nil {
			return len(m) == 1 || m[1] == k.Pool
		}
	}
	return false
}
