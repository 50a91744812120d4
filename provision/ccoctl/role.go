package ccoctl

// roleNameLimit is IAM's, in characters.
const roleNameLimit = 64

// RoleName returns the name of the role behind a CredentialsRequest's Secret. It is cut to 64 bytes, so two requests may
// lead to the same name.
func RoleName(installation, namespace, secret string) string {
	return cut(installation + "-" + namespace + "-" + secret)
}

// RoleNamePrefix returns the beginning that the names of all roles of an installation share.
func RoleNamePrefix(installation string) string { return cut(installation + "-") }

func cut(name string) string { return name[:min(len(name), roleNameLimit)] }

// The tag that marks what was made for an installation: its key is OwnerTagPrefix and the installation's name, its value
// is Owned. ccoctl looks only at the key.
const (
	OwnerTagPrefix = "openshift.io/cloud-credential-operator/"
	Owned          = "owned"
)
