package awsiam

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/keypost/keypost/provision/cloud"
)

// Wait is a call of AWS, or a change there, that takes long.
type Wait = cloud.Wait

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
