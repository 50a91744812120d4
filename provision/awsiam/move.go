package awsiam

import (
	"context"
	"errors"
	"time"

	"github.com/keypost/keypost/provision"
)

// Move is the way of a live cluster from one issuer to another. To's provider must be there or planned before.
type Move struct {
	Name     string // the cluster's: its roles, and From's provider, bear its tag
	From, To Trust  // To.Audiences are required of tokens where From's statement asked for none
	Adopt    bool   // roles that others made get To's statement too, and keypost's own tag
	Leave    bool   // roles that others made stay as they are: noted, not an error
}

// PlanMove gives every role that trusts From a second statement that trusts To likewise. No statement is changed or
// taken away. That all of them fit is known before the first call that writes.
func (c *Client) PlanMove(ctx context.Context, m Move) (provision.Plan, error) {
	return provision.Plan{}, errors.New("not yet")
}

// PlanFinish takes From's statements away, then its provider. It refuses while a role trusts From without To.
func (c *Client) PlanFinish(ctx context.Context, m Move) (provision.Plan, error) {
	return provision.Plan{}, errors.New("not yet")
}

// MovedAt is when the switch away from this provider was first seen complete, as SetMovedAt noted it; zero if never.
func (c *Client) MovedAt(ctx context.Context, providerARN string) (time.Time, error) {
	return time.Time{}, errors.New("not yet")
}

// SetMovedAt notes on the provider (tag keypost.dev/moved-at) when the switch away from it was first seen complete;
// the zero time takes the note away.
func (c *Client) SetMovedAt(ctx context.Context, providerARN string, at time.Time) error {
	return errors.New("not yet")
}
