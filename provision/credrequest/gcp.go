package credrequest

import "regexp"

// GCPSpec is what a request asks of Google Cloud. Lists are in the manifest's order.
type GCPSpec struct {
	PredefinedRoles  []string // such as roles/storage.admin; also custom ones by their full names
	Permissions      []string // of a custom role
	SkipServiceCheck bool     // only for the operator in the cluster, which can look whether services are enabled

	// A Google service account that exists, so that only the Secret is to be made, and the resource name of the workload
	// identity provider through which it is reached (//iam.googleapis.com/projects/…). Both are given or neither is.
	ServiceAccountEmail string
	Audience            string
}

// https://cloud.google.com/iam/docs/roles-overview, …/docs/permissions-reference and …/docs/service-accounts-create have the forms
// of names.
var (
	gcpRole       = regexp.MustCompile(`^(roles|projects/[a-z0-9:.-]+/roles|organizations/[0-9]+/roles)/[A-Za-z0-9_.]+$`)
	gcpPermission = regexp.MustCompile(`^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+){2,}$`)
	gcpAccount    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*@([a-z0-9-]+\.)+gserviceaccount\.com$`)
	gcpProvider   = regexp.MustCompile(`^//iam\.googleapis\.com/projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+$`)
)

func (m *manifest) gcp(provider value) GCPSpec {
	email, audience := m.at(provider, "serviceAccountEmail"), m.at(provider, "audience")
	roles, permissions := m.at(provider, "predefinedRoles"), m.at(provider, "permissions")
	s := GCPSpec{
		PredefinedRoles: m.each(roles, gcpRole.MatchString, "the name of a role (roles/NAME)"),
		Permissions: m.each(permissions, gcpPermission.MatchString,
			"a permission (SERVICE.RESOURCE.VERB); a custom role has no wildcards"),
		SkipServiceCheck:    m.truth(m.at(provider, "skipServiceCheck")),
		ServiceAccountEmail: m.matching(email, gcpAccount.MatchString, "the address of a Google service account (NAME@PROJECT.iam.gserviceaccount.com)"),
		Audience: m.matching(audience, gcpProvider.MatchString, "the resource name of a workload identity provider "+
			"(//iam.googleapis.com/projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER)"),
	}
	switch {
	case s.ServiceAccountEmail != "" && s.Audience == "":
		m.fail("%s: it is missing; with serviceAccountEmail it names the workload identity provider", audience.path)
	case s.ServiceAccountEmail == "" && s.Audience != "":
		m.fail("%s: it is missing; with audience it names the Google service account", email.path)
	case s.ServiceAccountEmail == "" && len(s.PredefinedRoles)+len(s.Permissions) == 0:
		m.fail("%s and %s: both are empty, so that the service account would be allowed nothing", roles.path, permissions.path)
	}
	return s
}
