package azure

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/google/uuid"
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
var credentialForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{2,119}$`)

// credentialName returns the name of the federated credential of a service account: the account's, as ccoctl has it, where
// Azure takes that. Kubernetes allows dots in it, and one character.
func credentialName(account string) string {
	if credentialForm.MatchString(account) {
		return account
	}
	return suffixed(account, account)
}

// suffixed returns a name that Azure takes, with a hash in its end.
func suffixed(name, hashed string) string {
	sum := sha256.Sum256([]byte(hashed))
	clean := strings.ReplaceAll(name, ".", "-")
	return clean[:min(len(clean), 111)] + "-" + hex.EncodeToString(sum[:4])
}

// guid returns a name for a role or an assignment that is the same in every run: made of what it stands for, in lower case, since
// Azure gives IDs back in varying letter case. So a creation whose answer was lost is found again.
func guid(parts ...string) string {
	space := uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://keypost.dev/azure"))
	return uuid.NewSHA1(space, []byte(folded(strings.Join(parts, "\n")))).String()
}

// last returns the last part of an ID, in lower case: for roles and assignments the GUID, which is unique in the tenant.
func last(id string) string {
	return folded(id[strings.LastIndexByte(id, '/')+1:])
}

// location returns a region's name in the form in which regions are compared: some answers have "Central US" for "centralus".
func location(s string) string { return folded(strings.ReplaceAll(s, " ", "")) }
