// Package cloudfront makes the edges of a CloudFront distribution forget documents. It is the only user of that SDK.
package cloudfront

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudfront"
	"github.com/aws/aws-sdk-go-v2/service/cloudfront/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"github.com/keypost/keypost/internal/awsconf"
)

// Client makes invalidations. It is safe for concurrent use.
type Client struct {
	api   *cloudfront.Client
	pause time.Duration // between two looks at an invalidation
}

func limits() awsconf.Limits {
	return awsconf.Limits{Attempts: 6, MaxBackoff: 5 * time.Second, AttemptTime: 20 * time.Second, Connections: 2}
}

// Open returns a client with the credentials that the AWS SDK finds. It makes no call.
func Open(ctx context.Context) (*Client, error) {
	cfg, err := config.LoadDefaultConfig(ctx, append(limits().Options(), config.WithLogger(logging.Nop{}))...)
	if err != nil {
		return nil, fmt.Errorf("read the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1" // CloudFront is global; the SDK wants a region all the same
	}
	return &Client{cloudfront.NewFromConfig(cfg), 3 * time.Second}, nil
}

// Invalidate has every edge of a distribution forget the documents at paths, which begin with a slash and may end with *, and
// returns when CloudFront says that it is done: the status Completed, mostly within two minutes. One reference makes one
// invalidation, however often it is called. Needed are cloudfront:CreateInvalidation and cloudfront:GetInvalidation.
//
// What an origin still serves then is fetched again.
//
// Source: CloudFront API Reference, CreateInvalidation; Developer Guide, "Invalidate files to remove content".
func (c *Client) Invalidate(ctx context.Context, distribution, reference string, paths []string) error {
	out, err := c.api.CreateInvalidation(ctx, &cloudfront.CreateInvalidationInput{
		DistributionId: &distribution,
		InvalidationBatch: &types.InvalidationBatch{
			CallerReference: &reference,
			Paths:           &types.Paths{Items: paths, Quantity: aws.Int32(int32(len(paths)))}, //nolint:gosec // a few
		},
	})
	if err != nil {
		return explain(err)
	}
	if out.Invalidation == nil || out.Invalidation.Id == nil {
		return errors.New("cloudfront:CreateInvalidation: the answer names no invalidation")
	}
	for at := out.Invalidation; aws.ToString(at.Status) != completed; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(c.pause):
		}
		got, err := c.api.GetInvalidation(ctx, &cloudfront.GetInvalidationInput{DistributionId: &distribution, Id: out.Invalidation.Id})
		if err != nil {
			return explain(err)
		}
		if got.Invalidation == nil {
			return errors.New("cloudfront:GetInvalidation: the answer has no invalidation")
		}
		at = got.Invalidation
	}
	return nil
}

// completed is the status of an invalidation that every edge has carried out.
const completed = "Completed"

func explain(err error) error {
	return awsconf.Explain(err, func(op *smithy.OperationError) string { return "cloudfront:" + op.OperationName }, reason)
}

// reason returns a sentence for errors that the user can do something about, else "".
func reason(call string, err error) string {
	api, refused := errors.AsType[smithy.APIError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return call + ": interrupted"
	case refused && api.ErrorCode() == "NoSuchDistribution":
		return call + ": this account has no such distribution; see its ID (aws cloudfront list-distributions) and AWS_PROFILE"
	case refused && api.ErrorCode() == "AccessDenied":
		return fmt.Sprintf("%s: %s (%s); the credentials need cloudfront:CreateInvalidation and cloudfront:GetInvalidation on the distribution", call, strings.TrimSuffix(api.ErrorMessage(), "."), api.ErrorCode())
	}
	return ""
}
