package credrequest

import (
	"encoding/json"
	"regexp"
)

// GCPSpec is what a request asks of Google Cloud. Lists are in the manifest's order.
type GCPSpec struct {
	PredefinedRoles  []string `json:"predefinedRoles"`  // such as roles/storage.admin; also custom ones by their full names
	Permissions      []string `json:"permissions"`      // of a custom role
	SkipServiceCheck bool     `json:"skipServiceCheck"` // only for the operator in the cluster, which can look whether services are enabled

	// A Google service account that exists, so that only the Secret is to be made, and the resource name of the workload
	// identity provider through which it is reached (//iam.googleapis.com/projects/…). Both are given or neither is.
	ServiceAccountEmail string `json:"serviceAccountEmail"`
	Audience            string `json:"audience"`
}

// https://cloud.google.com/iam/docs/roles-overview, …/docs/permissions-reference and …/docs/service-accounts-create have the forms
// of names.
var (
	gcpRole       = regexp.MustCompile(`^(roles|projects/[a-z0-9:.-]+/roles|organizations/[0-9]+/roles)/[A-Za-z0-9_.]+$`)
	gcpPermission = regexp.MustCompile(`^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+){2,}$`)
	gcpAccount    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*@([a-z0-9-]+\.)+gserviceaccount\.com$`)
	gcpProvider   = regexp.MustCompile(`^//iam\.googleapis\.com/projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+$`)
)

func (r *reader) gcp(provider json.RawMessage) (s GCPSpec) {
	r.decode(inProvider, provider, &s)
	r.each(inProvider+".predefinedRoles", s.PredefinedRoles, gcpRole.MatchString, "the name of a role (roles/NAME)")
	r.each(inProvider+".permissions", s.Permissions, gcpPermission.MatchString, "a permission (SERVICE.RESOURCE.VERB); a custom role has no wildcards")
	r.has(inProvider+".serviceAccountEmail", s.ServiceAccountEmail, gcpAccount.MatchString,
		"the address of a Google service account (NAME@PROJECT.iam.gserviceaccount.com)")
	r.has(inProvider+".audience", s.Audience, gcpProvider.MatchString, "the resource name of a workload identity provider "+
		"(//iam.googleapis.com/projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER)")
	switch {
	case (s.ServiceAccountEmail == "") != (s.Audience == ""):
		r.fail("%s: give both serviceAccountEmail and audience, which names the workload identity provider, or neither", inProvider)
	case s.ServiceAccountEmail == "" && len(s.PredefinedRoles)+len(s.Permissions) == 0:
		r.fail("%s: predefinedRoles and permissions are empty, so that the service account would be allowed nothing", inProvider)
	}
	return s
}
