package azure

import (
	"regexp"

	"github.com/keypost/keypost/provision/azure/iam"
)

// identityNameLimit is Azure's, in characters
// (https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftmanagedidentity).
const identityNameLimit = 128

// identityName returns ccoctl's name for the identity behind a CredentialsRequest's Secret, and for its custom role. It is cut,
// so two requests may lead to the same name.
func identityName(installation, namespace, secret string) string {
	name := installation + "-" + namespace + "-" + secret
	return name[:min(len(name), identityNameLimit)]
}

// credentialForm is what Azure asks of the name of a federated credential
// (https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftmanagedidentity).
var credentialForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]+$`)

// credentialName returns the name of the federated credential of a service account: the account's, as ccoctl has it, where
// Azure takes that. Kubernetes allows dots in it, and one character.
func credentialName(account string) string {
	if credentialForm.MatchString(account) && len(account) >= 3 && len(account) <= 120 {
		return account
	}
	return iam.Suffixed(account, account)
}
