// Package credrequest reads CredentialsRequest manifests (cloudcredential.openshift.io/v1), in which OpenShift's
// components say which permissions they need in the cloud and which Secret they read their access from. It promises
// that every manifest of a directory is read and checked before any of it is handed out, and that nothing it leaves
// out goes unsaid.
package credrequest

// Request is a CredentialsRequest for AWS. Its names fit into file names and role names: they are checked as
// Kubernetes checks them.
type Request struct {
	File            string // base name of the file that it stands in
	Namespace, Name string // its own
	SecretNamespace string // where the component runs: its service accounts are here too
	SecretName      string
	ServiceAccounts []string    // names; empty only if RoleARN is given
	Statements      []Statement // empty only if RoleARN is given
	CloudTokenPath  string      // absolute path of the token in the component's pods; empty: the usual one
	RoleARN         string      // stsIAMRoleARN: the role exists already, only the Secret is wanted
}

// Statement is one statement of a permissions policy. Effect is Allow or Deny. Condition is operator → key → value: a
// string, bool, number or list of these, as the manifest has it.
type Statement struct {
	Effect    string
	Action    []string
	Resource  string
	Condition map[string]map[string]any `json:",omitempty"`
}
