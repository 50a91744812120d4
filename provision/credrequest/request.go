// Package credrequest reads CredentialsRequest manifests (cloudcredential.openshift.io/v1). With these, OpenShift's
// components ask for permissions in the cloud, and name the Secret from which they read their credentials. It promises
// to check every manifest of a directory before it returns one, and to report every manifest that it skips.
package credrequest

// Request is a CredentialsRequest for AWS. Its names are valid in Kubernetes, and so in the names of
// files and roles.
type Request struct {
	File            string // base name of its file
	Namespace, Name string // its own
	SecretNamespace string // namespace of the component: of its Secret and of its service accounts
	SecretName      string
	ServiceAccounts []string    // names; empty only if RoleARN is given
	Statements      []Statement // empty only if RoleARN is given
	CloudTokenPath  string      // absolute path of the token in the component's pods; empty for the usual one
	RoleARN         string      // stsIAMRoleARN: a role that exists, so that only the Secret is to be made
}

// Statement is one statement of a permissions policy. Effect is Allow or Deny. Condition is operator → key → value: a
// string, bool, number or list of these, as in the manifest.
type Statement struct {
	Effect    string
	Action    []string
	Resource  string
	Condition map[string]map[string]any `json:",omitempty"`
}
