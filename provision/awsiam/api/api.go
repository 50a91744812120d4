// Package api calls IAM and STS for one account. It promises that every call ends, that a call which AWS throttles, or which fails on
// the way, is made again by the SDK, and that an error is one sentence that names the call. What the calls are made for is not known here.
package api

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
	"github.com/keypost/keypost/provision/cloud"
)

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
	OnWait func(cloud.Wait)
}

// Client calls IAM and STS for one account.
type Client struct {
	IAM     *iam.Client // for Ask, All and steps
	STS     *sts.Client
	Guessed bool // no region is configured
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
		o.OnWait = func(cloud.Wait) {}
	}
	api := cloud.API{Name: "IAM", Consistency: o.Consistency, CallTime: callTime, OnWait: o.OnWait}
	return &Client{IAM: iam.NewFromConfig(cfg), STS: sts.NewFromConfig(cfg), Guessed: guessed, api: api, slots: make(chan struct{}, ParallelCalls)}, nil
}

// Caller returns what sts:GetCallerIdentity says of the credentials.
func (c *Client) Caller(ctx context.Context) (*sts.GetCallerIdentityOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	wait := c.api.Await("sts:GetCallerIdentity")
	defer wait.Stop()
	out, err := c.STS.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{}, func(o *sts.Options) { o.Retryer = watch(wait, o.Retryer) })
	return out, Explain(err)
}

// watch wraps a retryer so that it records why it tries again, and gives up soon where nothing listens.
func watch(p *cloud.Pending, r aws.Retryer) aws.Retryer {
	v2, ok := r.(aws.RetryerV2)
	if !ok {
		return r
	}
	return &watched{v2, p}
}

type watched struct {
	aws.RetryerV2
	pending *cloud.Pending
}

// RetryDelay is called after an attempt that failed and may be made again.
func (r *watched) RetryDelay(attempt int, err error) (time.Duration, error) {
	r.pending.Because(brief(err))
	d, delayErr := r.RetryerV2.RetryDelay(attempt, err)
	if delayErr != nil {
		return d, delayErr
	}
	return r.pending.Delay(d, err)
}
