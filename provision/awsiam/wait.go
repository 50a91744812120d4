package awsiam

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

const (
	quiet       = 10 * time.Second // how long a call may take before it is reported
	unreachable = 5 * time.Second  // how long an endpoint at which nothing listens is tried
)

// wait reports a call, or a change, every 10 seconds for as long as it takes, with the last error.
type wait struct {
	c     *Client
	what  string
	start time.Time
	timer *time.Timer

	mu      sync.Mutex
	ended   bool
	last    error
	refused time.Time // since when nothing listens at the endpoint
}

func (c *Client) await(what string) *wait {
	w := &wait{c: c, what: what, start: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(quiet, w.report)
	return w
}

func (w *wait) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
}

func (w *wait) report() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.timer.Reset(quiet)
	why := "no answer yet"
	if w.last != nil {
		why = oneLine(w.last)
	}
	w.c.onWait(Wait{What: w.what, Since: time.Since(w.start).Round(time.Second), Why: why})
}

// because records the last error; nil is ignored.
func (w *wait) because(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = err
}

// watch wraps a retryer so that it records why it tries again, and gives up soon where nothing listens.
func (w *wait) watch(r aws.Retryer) aws.Retryer {
	v2, ok := r.(aws.RetryerV2)
	if !ok {
		return r
	}
	return &watched{v2, w}
}

type watched struct {
	aws.RetryerV2
	w *wait
}

// RetryDelay is called after an attempt that failed and may be made again.
func (r *watched) RetryDelay(attempt int, err error) (time.Duration, error) {
	r.w.because(brief(err))
	d, delayErr := r.RetryerV2.RetryDelay(attempt, err)
	if delayErr != nil || !nobodyListens(err) {
		return d, delayErr
	}
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.w.refused.IsZero() {
		r.w.refused = time.Now()
	}
	if time.Since(r.w.refused) > unreachable {
		return 0, err
	}
	return min(d, time.Second), nil
}

// nobodyListens reports whether nothing listens at the address, or the name does not exist: more attempts seldom help.
func nobodyListens(err error) bool {
	for _, e := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, e) {
			return true
		}
	}
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// Wait is a call of AWS, or a change there, that takes long.
type Wait struct {
	What  string        // "iam:CreateRole"
	Since time.Duration // how long it has taken so far
	Why   string        // what went wrong last
}

func (w Wait) String() string {
	return fmt.Sprintf("%s takes long (%s so far): %s", w.What, w.Since, w.Why)
}
