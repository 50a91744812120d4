package awsiam

import (
	"context"
	"errors"

	"github.com/keypost/keypost/provision"
)

// Deletion says what to take away of what keypost or ccoctl made under a name.
type Deletion struct {
	Name      string
	IssuerURL string // only this issuer's provider and its statements (and the roles left without any); empty for all
}

// PlanPrune deletes the roles of a cluster that are not in keep.
func (c *Client) PlanPrune(ctx context.Context, name string, keep []string) (provision.Plan, error) {
	return provision.Plan{}, errors.New("not yet")
}

// PlanDelete deletes what d names: roles first, then providers.
func (c *Client) PlanDelete(ctx context.Context, a Account, d Deletion) (provision.Plan, error) {
	return provision.Plan{}, errors.New("not yet")
}
