package ccoctl

// roleNameLimit is IAM's, in characters.
const roleNameLimit = 64

// RoleName returns the name of the role behind a CredentialsRequest's Secret. It is cut to 64 bytes, so two requests may
// lead to the same name.
func RoleName(installation, namespace, secret string) string {
	return cut(fullRoleName(installation, namespace, secret))
}

// RoleNamePrefix returns the beginning that the names of all roles of an installation share.
func RoleNamePrefix(installation string) string { return cut(installation + "-") }

// fullRoleName is the name before it is cut: files keep apart what IAM does not.
func fullRoleName(installation, namespace, secret string) string {
	return installation + "-" + namespace + "-" + secret
}

func cut(name string) string { return name[:min(len(name), roleNameLimit)] }

// OwnerTag returns the key of the tag that marks what was made for an installation. Its value is [Owned].
func OwnerTag(installation string) string { return OwnerTagPrefix + installation }

// The owner tag's parts. ccoctl looks at the key alone.
const (
	OwnerTagPrefix = "openshift.io/cloud-credential-operator/"
	Owned          = "owned"
)
