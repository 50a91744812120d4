package awsiam

import (
	"context"
	"errors"

	"github.com/keypost/keypost/provision"
)

// Provider is an IAM OIDC identity provider as it should be.
type Provider struct {
	URL         string   // the issuer URL; its ARN is Account.ProviderARN(URL)
	ClientIDs   []string // audiences that tokens may carry
	Thumbprints []string // SHA-1, 40 hex digits; none leaves IAM's own, and a public CA needs none
	Owner       Owner
	Tags        map[string]string // beside the owner's
	Adopt       bool              // takes over a provider without the owner's tag
	Tighten     bool              // takes away client IDs that are not asked for
}

// PlanProvider leads to p in account a. Its first note or its action names the ARN.
func (c *Client) PlanProvider(ctx context.Context, a Account, p Provider) (provision.Plan, error) {
	return provision.Plan{}, errors.New("not yet")
}
