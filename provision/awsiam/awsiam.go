// Package awsiam registers an issuer with AWS: the IAM OIDC identity provider, the roles that trust it, their
// policies. It promises that nothing without our tag is touched, that of a trust policy only what concerns our own
// provider changes, that every call that writes is shown in the plan and said when it is made, and that every plan may
// be stopped anywhere and made again.
package awsiam

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"

	"github.com/keypost/keypost/internal/awsconf"
)

// Parallel is how many roles are read, or changed, at once: IAM's write limit is a small bucket for the whole account
// that others draw from too (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html).
const Parallel = 4

const callTime = 5 * time.Minute // one call with its retries

func limits() awsconf.Limits {
	return awsconf.Limits{Attempts: 10, MaxBackoff: 20 * time.Second, AttemptTime: 30 * time.Second, Connections: 2 * Parallel}
}

// Options says which account to work in. The zero value takes all from the environment and the AWS configuration.
type Options struct {
	Region string        // which endpoints to call; empty for the configured one, else us-east-1
	Settle time.Duration // how long to wait for IAM to show what was written; zero for 2 minutes

	// Waiting is told of whatever takes longer than 10 seconds, again and again, from any goroutine.
	Waiting func(Wait)
}

// Client calls IAM and STS for one account.
type Client struct {
	iam     *iam.Client
	sts     *sts.Client
	guessed bool // nobody said which region
	settle  time.Duration
	waiting func(Wait)
}

// Open makes a Client with the credentials and endpoints of the AWS SDK's usual chain: AWS_PROFILE, AWS_REGION,
// AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_IAM, AWS_ENDPOINT_URL_STS … It calls nobody.
func Open(ctx context.Context, o Options) (*Client, error) {
	cfg, err := config.LoadDefaultConfig(ctx, append(limits().Options(),
		config.WithRegion(o.Region),
		config.WithLogger(logging.Nop{}))...) // the errors say the same
	if err != nil {
		return nil, fmt.Errorf("read the AWS configuration: %w", err)
	}
	guessed := cfg.Region == ""
	if guessed {
		cfg.Region = "us-east-1" // IAM is global; the SDK wants a region to sign for all the same
	}
	if o.Settle == 0 {
		o.Settle = 2 * time.Minute
	}
	if o.Waiting == nil {
		o.Waiting = func(Wait) {}
	}
	return &Client{iam: iam.NewFromConfig(cfg), sts: sts.NewFromConfig(cfg), guessed: guessed, settle: o.Settle, waiting: o.Waiting}, nil
}

// Account asks whose credentials these are.
func (c *Client) Account(ctx context.Context) (Account, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	wait := c.await("sts:GetCallerIdentity")
	defer wait.stop()
	out, err := c.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}, func(o *sts.Options) { o.Retryer = wait.watch(o.Retryer) })
	if err != nil && c.guessed {
		return Account{}, fmt.Errorf("%w; no region is set, and accounts outside the commercial partition need one (--region)", explain(err))
	}
	if err != nil {
		return Account{}, explain(err)
	}
	return parseAccount(aws.ToString(out.Account), aws.ToString(out.Arn))
}
