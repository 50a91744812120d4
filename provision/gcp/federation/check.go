package federation

import (
	"fmt"

	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/provision/gcp/rest"
)

// SecondProviderID returns the ID of the provider to which the cluster of an installation moves for another issuer, the same in every run.
func SecondProviderID(installation, issuerURL string) string {
	return rest.Cut(installation, 26) + "-" + rest.Hashed(issuerURL)
}

// CheckPoolID returns an error unless a pool or a provider, as what says, can have an ID. The rule is [party.IsPoolID], by which
// policies name providers too.
func CheckPoolID(what, id string) error {
	if !party.IsPoolID(id) {
		return fmt.Errorf("the name of the %s, %q, must have 4 to 32 lower-case letters, digits or hyphens, and not begin with gcp-", what, id)
	}
	return nil
}
