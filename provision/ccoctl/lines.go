package ccoctl

import (
	"fmt"
	"io"
	"log"
)

// NewLogger returns a logger that writes lines in ccoctl's form, which is that of Go's log package.
func NewLogger(w io.Writer) *log.Logger { return log.New(w, "", log.LstdFlags) }

// Lines of the log, as ccoctl writes them. Scripts look for them: openshift/release takes the provider's ARN from one.

// ProviderCreated returns the line for a new IAM OIDC identity provider.
func ProviderCreated(arn string) string { return "Identity Provider created with ARN: " + arn }

// ProviderFound returns the line for a provider that is there already.
func ProviderFound(arn string) string { return "Existing Identity Provider found with ARN: " + arn }

// ProviderDeleted returns the line for a deleted provider.
func ProviderDeleted(arn string) string {
	return fmt.Sprintf("Identity Provider with ARN %s deleted", arn)
}

// RoleCreated returns the line for a new role.
func RoleCreated(arn string) string { return fmt.Sprintf("Role %s created", arn) }

// RoleFound returns the line for a role that is there already, by its ARN or name.
func RoleFound(role string) string { return fmt.Sprintf("Existing role %s found", role) }

// RoleDeleted returns the line for a deleted role.
func RoleDeleted(name string) string { return fmt.Sprintf("IAM Role %s deleted", name) }

// RolePolicyUpdated returns the line for an inline policy that was put into a role.
func RolePolicyUpdated(role string) string { return "Updated Role policy for Role " + role }

// RolePolicyDeleted returns the line for an inline policy that was deleted from a role.
func RolePolicyDeleted(role, policy string) string {
	return fmt.Sprintf("Policy %s associated with IAM Role %s deleted", policy, role)
}

// RolePolicyDetached returns the line for a managed policy that was detached from a role.
func RolePolicyDetached(role, arn string) string {
	return fmt.Sprintf("Policy %s detached from IAM Role %s", arn, role)
}

// Lines for the key pair.
const (
	GeneratingKeyPair = "Generating RSA keypair"
	ReadingPublicKey  = "Reading public key"
	InstallingKey     = "Copying signing key for use by installer"
)

// KeyPairFound returns the line for a key pair of an earlier run, by the path of its private half.
func KeyPairFound(path string) string { return "Using existing RSA keypair found at " + path }

// WritingPrivateKey returns the line for the private half of a new key pair.
func WritingPrivateKey(path string) string { return "Writing private key to " + path }

// WritingPublicKey returns the line for the public half of a key pair.
func WritingPublicKey(path string) string { return "Writing public key to " + path }

// IssuerURL returns the line with the issuer URL of the cluster.
func IssuerURL(url string) string { return "Issuer URL (serviceAccountIssuer) is " + url }
