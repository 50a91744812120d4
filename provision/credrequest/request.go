// Package credrequest reads CredentialsRequest manifests (cloudcredential.openshift.io/v1). With these, OpenShift's
// components ask for permissions in the cloud, and name the Secret from which they read their credentials. It promises
// to check every manifest of a directory before it returns one, and to report every manifest that it skips.
package credrequest

// Cloud is a cloud whose requests are read.
type Cloud string

// The clouds, under the names that providerSpec.kind begins with.
const (
	AWS   Cloud = "AWS"
	GCP   Cloud = "GCP"
	Azure Cloud = "Azure"
)

// kind returns the kind of the cloud's providerSpec.
func (c Cloud) kind() string { return string(c) + "ProviderSpec" }

// use returns what a service account does with an identity of the cloud, for messages.
func (c Cloud) use() string {
	switch c {
	case GCP:
		return "impersonate the Google service account"
	case Azure:
		return "use the identity"
	}
	return "assume the role"
}

// Request is a CredentialsRequest for one cloud. Its names are valid in Kubernetes, and so in the names of files, roles and
// subjects.
type Request struct {
	File            string // base name of its file
	Namespace, Name string // its own
	SecretNamespace string // namespace of the component: of its Secret and of its service accounts
	SecretName      string
	ServiceAccounts []string // names; empty only if HasIdentity
	CloudTokenPath  string   // absolute path of the token in the component's pods; empty for the usual one

	// What it asks of the cloud that was asked for. The others are zero.
	AWS   AWSSpec
	GCP   GCPSpec
	Azure AzureSpec
}

// HasIdentity reports whether the request names an identity that exists, as operators of OLM do, so that only its Secret is to
// be made.
func (r Request) HasIdentity() bool {
	return r.AWS.RoleARN != "" || r.GCP.ServiceAccountEmail != "" || r.Azure.ClientID != ""
}
