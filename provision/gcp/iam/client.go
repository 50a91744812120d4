package iam

import (
	"context"

	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/rest"
)

// Parallel is how many changes are made at once. IAM takes 600 writes a minute of a whole project, and an installation has about 30
// (https://cloud.google.com/iam/quotas).
const Parallel = 8

// Client calls IAM and Resource Manager for one project. Its methods may be called concurrently.
type Client struct{ *federation.Client }

// Open returns a Client, with the credentials that ccoctl would take unless some are given: see [federation.Open].
func Open(ctx context.Context, a rest.Access) (*Client, error) {
	c, err := federation.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return &Client{c}, nil
}
