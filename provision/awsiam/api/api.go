// Package api calls IAM and STS for one account. It promises that every call ends, that a call which AWS throttles, or which fails on
// the way, is made again by the SDK, and that an error is one sentence that names the call. What the calls are made for is not known here.
package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"github.com/keypost/keypost/internal/awsconf"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/iampolicy"
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
	Guessed bool          // no region is configured
	API     cloud.API     // for changes
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
	return &Client{IAM: iam.NewFromConfig(cfg), STS: sts.NewFromConfig(cfg), Guessed: guessed, API: api, slots: make(chan struct{}, ParallelCalls)}, nil
}

// Caller returns what sts:GetCallerIdentity says of the credentials.
func (c *Client) Caller(ctx context.Context) (*sts.GetCallerIdentityOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	wait := c.API.Await("sts:GetCallerIdentity")
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

// Account is the account of the caller's credentials.
type Account struct {
	ID        string // 12 digits
	Partition string // "aws", "aws-us-gov", "aws-cn", "aws-iso", "aws-iso-b", "aws-eusc" …
	Caller    string // the ARN that sts:GetCallerIdentity names
}

func isAccountID(s string) bool {
	return len(s) == 12 && strings.Trim(s, "0123456789") == ""
}

// ProviderARN returns the ARN that the provider for an issuer URL has in this account, whether or not it exists.
func (a Account) ProviderARN(url string) string {
	return fmt.Sprintf("arn:%s:iam::%s:%s%s", a.Partition, a.ID, providerResource, iampolicy.HostPath(url))
}

// RoleARN returns the ARN that the role of this name has in this account, whether or not it exists.
func (a Account) RoleARN(name string) string {
	return fmt.Sprintf("arn:%s:iam::%s:role/%s", a.Partition, a.ID, name)
}

const providerResource = "oidc-provider/"

// SplitARN splits an IAM ARN.
func SplitARN(s string) (a Account, resource string, ok bool) {
	p, err := arn.Parse(s)
	ok = err == nil && p.Partition != "" && p.Service == "iam" && p.Region == ""
	return Account{ID: p.AccountID, Partition: p.Partition}, p.Resource, ok
}

// ProviderURL returns the issuer URL of the provider with an ARN.
func ProviderURL(providerARN string) (string, error) {
	a, resource, ok := SplitARN(providerARN)
	url, isProvider := strings.CutPrefix(resource, providerResource)
	if !ok || !isProvider || url == "" || !isAccountID(a.ID) {
		return "", fmt.Errorf("%q is not the ARN of an IAM OIDC identity provider (arn:aws:iam::ACCOUNT:oidc-provider/HOST)", providerARN)
	}
	return "https://" + url, nil
}

// ParseRoleARN returns the account and the name of the IAM role with an ARN.
func ParseRoleARN(roleARN string) (home Account, name string, err error) {
	home, resource, ok := SplitARN(roleARN)
	if !ok || !isAccountID(home.ID) || !strings.HasPrefix(resource, "role/") || strings.HasSuffix(resource, "/") {
		return home, "", fmt.Errorf("%q is not the ARN of an IAM role (arn:aws:iam::ACCOUNT:role/NAME)", roleARN)
	}
	return home, resource[strings.LastIndex(resource, "/")+1:], nil
}

// Explain returns an error that names the failed call and the reason.
func Explain(err error) error {
	return awsconf.Explain(err, func(op *smithy.OperationError) string {
		return strings.ToLower(op.ServiceID) + ":" + op.OperationName
	}, reason)
}

// reason returns a sentence for errors that the user can do something about, else "".
func reason(call string, err error) string {
	if errors.Is(err, context.Canceled) {
		return call + ": interrupted"
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return refusal(call, api)
	}
	if cloud.NobodyListens(err) {
		return call + ": AWS cannot be reached; see the network, the region and HTTPS_PROXY (" + innermost(err) + ")"
	}
	return ""
}

func refusal(call string, api smithy.APIError) string {
	code, message := api.ErrorCode(), api.ErrorMessage()
	switch code {
	case "AccessDenied", "AccessDeniedException":
		return fmt.Sprintf("the caller's policy does not allow %s (AWS says: %s)", call, message)
	case "ExpiredToken", "RequestExpired", "InvalidClientTokenId", "SignatureDoesNotMatch", "IncompleteSignature":
		return fmt.Sprintf("the caller's credentials are not good for %s: %s (%s)", call, message, code)
	case "OpenIdIdpCommunicationError":
		return fmt.Sprintf("%s: IAM cannot reach the issuer to learn its certificate; publish it first, or give a thumbprint (AWS says: %s)",
			call, message)
	}
	return ""
}

// brief returns the error of one attempt in few words.
func brief(err error) error {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return fmt.Errorf("%s (%s)", api.ErrorMessage(), api.ErrorCode())
	}
	return errors.New(innermost(err))
}

// innermost returns the message of the network error, without what the SDK wraps around it.
func innermost(err error) string {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return oneLine(e)
	}
	return oneLine(err)
}

// oneLine returns the message of an error on one line. The SDK's may have several.
func oneLine(err error) string { return text.Sentence(err.Error(), 0) }
