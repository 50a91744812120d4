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
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"

	"github.com/keypost/keypost/internal/awsconf"
	"github.com/keypost/keypost/provision/cloud"
)

// Parallel is how many roles are changed concurrently: IAM's write limit is a small bucket that the whole account shares
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html).
const Parallel = 4

// ParallelCalls is how many calls of a client are under way at once, most of them reads. Where that is too fast, IAM says so,
// and the SDK slows down.
const ParallelCalls = 20

const callTime = 5 * time.Minute // one call with its retries

func limits() awsconf.Limits {
	return awsconf.Limits{Attempts: 10, MaxBackoff: 20 * time.Second, AttemptTime: 30 * time.Second, Connections: ParallelCalls}
}

// Options configure how an account is reached. The zero value takes everything from the environment and the AWS configuration.
type Options struct {
	Region      string        // which endpoints to call; empty for the configured one, else us-east-1
	Consistency time.Duration // how long IAM may take to return what was written; zero for 2 minutes

	// Config comes before what the SDK's usual chain says.
	Config []func(*config.LoadOptions) error

	// OnWait is called every 2 seconds for each call or change under way, from any goroutine.
	OnWait func(Wait)
}

// Client calls IAM and STS for one account.
type Client struct {
	iam     *iam.Client
	sts     *sts.Client
	guessed bool // no region is configured
	api     cloud.API
	slots   chan struct{} // holds an element for each call that is under way
}

// Open returns a Client with the credentials and endpoints of the AWS SDK's usual chain: AWS_PROFILE, AWS_REGION,
// AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_IAM, AWS_ENDPOINT_URL_STS … It makes no call.
func Open(ctx context.Context, o Options) (*Client, error) {
	own := append(limits().Options(),
		config.WithRegion(o.Region),
		config.WithLogger(logging.Nop{})) // the errors contain what it would log
	cfg, err := config.LoadDefaultConfig(ctx, append(own, o.Config...)...)
	if err != nil {
		return nil, fmt.Errorf("read the AWS configuration: %w", err)
	}
	guessed := cfg.Region == ""
	if guessed {
		cfg.Region = "us-east-1" // IAM is global; the SDK wants a region to sign for all the same
	}
	if o.Consistency == 0 {
		o.Consistency = 2 * time.Minute
	}
	if o.OnWait == nil {
		o.OnWait = func(Wait) {}
	}
	api := cloud.API{Name: "IAM", Consistency: o.Consistency, CallTime: callTime, OnWait: o.OnWait}
	return &Client{iam: iam.NewFromConfig(cfg), sts: sts.NewFromConfig(cfg), guessed: guessed, api: api, slots: make(chan struct{}, ParallelCalls)}, nil
}

// Account returns the account of the credentials.
func (c *Client) Account(ctx context.Context) (Account, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	wait := c.api.Await("sts:GetCallerIdentity")
	defer wait.Stop()
	out, err := c.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}, func(o *sts.Options) { o.Retryer = watch(wait, o.Retryer) })
	if err != nil && c.guessed {
		return Account{}, problem(NoRegion, "%w; no region is set, and accounts outside the commercial partition need one", explain(err))
	}
	if err != nil {
		return Account{}, explain(err)
	}
	// The partition is the caller's own. ccoctl derives it from the region, and so writes commercial ARNs in isolated partitions.
	caller, err := arn.Parse(aws.ToString(out.Arn))
	return Account{ID: aws.ToString(out.Account), Partition: caller.Partition, Caller: aws.ToString(out.Arn)}, err
}
