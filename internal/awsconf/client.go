package awsconf

import (
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
)

// Limits bound what a client does for one call.
type Limits struct {
	Attempts    int           // requests of one call, at most
	MaxBackoff  time.Duration // between two of them
	AttemptTime time.Duration // of one request on the wire, its body included
	Connections int           // kept open to one host
}

// Options returns the options with which every client of ours loads the AWS configuration.
func (l Limits) Options() []func(*config.LoadOptions) error {
	return []func(*config.LoadOptions) error{
		config.WithAppID("keypost"),
		config.WithRetryer(l.retryer),
		config.WithHTTPClient(l.httpClient()),
	}
}

// retryer slows down to the rate that the service grants. The SDK's retry quota is off: an outage, or many calls behind a
// throttle, use it up, and then every call fails at its first "Rate exceeded".
func (l Limits) retryer() aws.Retryer {
	return retry.NewAdaptiveMode(func(o *retry.AdaptiveModeOptions) {
		o.StandardOptions = append(o.StandardOptions, func(s *retry.StandardOptions) {
			s.MaxAttempts = l.Attempts
			s.MaxBackoff = l.MaxBackoff
			s.RateLimiter = ratelimit.None
		})
	})
}

// httpClient returns the client for requests with these limits.
func (l Limits) httpClient() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTimeout(l.AttemptTime).WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = l.Connections
	})
}
