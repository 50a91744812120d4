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
	"encoding/json"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

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

// Error is an error about which the caller can do something.
type Error = cloud.Error[Problem]

// Problem is the kind of an [Error].
type Problem int

// The problems.
const (
	NoRegion     Problem = iota + 1 // none is configured, and the account may need one
	NotOwned                        // a provider or a role has no owner's tag, and may be adopted
	OthersThing                     // a provider or a role has another owner's tag
	ForeignRoles                    // roles trust the old issuer and not the new one, and some have no owner's tag and may be adopted
	OthersRoles                     // the same, and all have another owner's tag
	Stranded                        // roles would trust nobody without the issuer that is to be deleted
	NeedsPrune                      // a policy cannot be extended without removing permissions
	TrustTooLong                    // a trust policy has more characters than the account's quota allows
)

func problem(p Problem, format string, args ...any) error {
	return &Error{Problem: p, Err: fmt.Errorf(format, args...)}
}

// CreateJSON returns the AWS CLI's --cli-input-json for create-open-id-connect-provider, in the layout of ccoctl's 04 file.
// Without a thumbprint IAM obtains its own, so there is no placeholder to fill in.
func (p Provider) CreateJSON() []byte {
	in := struct {
		Url            string
		ClientIDList   []string
		ThumbprintList []string `json:",omitempty"`
		Tags           []types.Tag
	}{p.URL, unique(p.ClientIDs), unique(p.Thumbprints), p.Owner.tags(p.Tags)}
	out, _ := json.MarshalIndent(in, "", "\t") // strings and lists of strings always marshal
	return append(out, '\n')
}

// CreateJSON returns the AWS CLI's --cli-input-json for create-role, in the layout of ccoctl's 05 files. Managed policies are
// attached by another call.
func (r Role) CreateJSON(t Trust) []byte {
	return asJSON(struct {
		AssumeRolePolicyDocument string
		Description              string `json:",omitempty"`
		PermissionsBoundary      string `json:",omitempty"`
		RoleName                 string
		Tags                     []types.Tag
	}{t.policy().Document(r.Subjects).String(), r.Description, r.Boundary, r.Name, r.Owner.tags(r.Tags)})
}

// PolicyJSON returns the AWS CLI's --cli-input-json for put-role-policy, in the layout of ccoctl's 06 files; nil without a
// policy.
func (r Role) PolicyJSON() []byte {
	if r.Policy == nil {
		return nil
	}
	return asJSON(struct{ PolicyDocument, PolicyName, RoleName string }{string(r.Policy), r.Name, r.Name})
}
