// Package awsiam registers an issuer with AWS: the IAM OIDC identity provider, the roles that trust it, and their
// policies. A Plan method of [Client] reads the account and returns a plan, which changes nothing until it is applied.
//
// The package promises:
//   - Nothing without the owner's tag is changed, unless it is to be adopted.
//   - In a trust policy, only statements about the issuer's own provider change.
//   - Every call that writes is shown in the plan, and reported when it is made.
//   - A run may be stopped anywhere and started again.
package awsiam

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"

	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/cloud"
)

// Parallel is how many roles are changed concurrently: IAM's write limit is a small bucket that the whole account shares
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html).
const Parallel = 4

// ParallelCalls is how many calls of a client are under way at once.
const ParallelCalls = api.ParallelCalls

// Options configure how an account is reached.
type Options = api.Options

// Wait is a call of AWS, or a change there, that takes long.
type Wait = cloud.Wait

// Client plans changes in one account.
type Client struct{ *api.Client }

// Open returns a Client with the credentials and endpoints of the AWS SDK's usual chain. It makes no call.
func Open(ctx context.Context, o Options) (*Client, error) {
	c, err := api.Open(ctx, o)
	return &Client{c}, err
}

// Account is the account of the caller's credentials.
type Account = api.Account

// Account returns the account of the credentials.
func (c *Client) Account(ctx context.Context) (Account, error) {
	out, err := c.Caller(ctx)
	if err != nil && c.Guessed {
		return Account{}, problem(NoRegion, "%w; no region is set, and accounts outside the commercial partition need one", err)
	}
	if err != nil {
		return Account{}, err
	}
	// The partition is the caller's own. ccoctl derives it from the region, and so writes commercial ARNs in isolated partitions.
	caller, err := arn.Parse(aws.ToString(out.Arn))
	return Account{ID: aws.ToString(out.Account), Partition: caller.Partition, Caller: aws.ToString(out.Arn)}, err
}

// each calls f for every element of list, ParallelCalls at once, and joins the errors.
func each[T, R any](list []T, f func(T) (R, error)) ([]R, error) {
	return cloud.Each(ParallelCalls, list, f)
}
