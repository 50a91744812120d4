package fakegcp

import (
	"math"
	"net/http"
	"net/url"
	"time"
)

// Fault is what goes wrong with one call. The zero value is nothing.
type Fault struct {
	refusal   *failure
	throttle  time.Duration
	loseReply bool
	delay     time.Duration
}

// Throttle refuses the call with 429 and asks to come back after a time: nothing happens.
func Throttle(after time.Duration) Fault { return Fault{throttle: max(after, 1)} }

// Unavailable refuses the call with 503: nothing happens.
func Unavailable() Fault {
	return Fail(http.StatusServiceUnavailable, "UNAVAILABLE", "The service is currently unavailable.")
}

// LoseReply makes the call and then cuts the connection, so that the client does not learn that it was made.
func LoseReply() Fault { return Fault{loseReply: true} }

// Delay makes the call, that much later.
func Delay(d time.Duration) Fault { return Fault{delay: d} }

// Fail refuses the call with any status of HTTP, code of google.rpc.Code and sentence: nothing happens.
func Fail(status int, code, message string) Fault {
	return Fault{refusal: &failure{status: status, code: code, message: message}}
}

// Call is one request, as it was recorded.
type Call struct {
	N          int    // from 1, since the server started or ResetCalls
	Service    string // iam, cloudresourcemanager, sts, iamcredentials, oauth2, storage; empty for what no service has
	Action     string // CreateWorkloadIdentityPool, …
	Permission string // what the caller needs for it; empty: nothing
	Method     string
	Path       string
	Query      url.Values
	Body       string // as sent; of token endpoints nothing, as it holds tokens
	Write      bool   // it may change the project
	Start      time.Time
	Took       time.Duration
	InFlight   int    // calls under way when it came, itself included
	Code       string // why it was refused, as google.rpc.Code or RFC 6749 has it; empty if it was not
}

// Fault asks f about every call from now on, before anything else is done with it. f is called side by side.
func (s *Server) Fault(f func(Call) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// OnCall calls f for every call from now on, after its effect and before its reply: a client killed by f does not learn
// of what it has done. n is the call's number.
func (s *Server) OnCall(f func(n int, c Call)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onCall = f
}

// Calls are the requests so far that have been dealt with, in the order in which they came.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []Call
	for _, c := range s.calls {
		if c.Took > 0 {
			ended = append(ended, *c)
		}
	}
	return ended
}

// ResetCalls forgets the requests so far.
func (s *Server) ResetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// bucket is a token bucket that holds one second's worth, at least one, and is full at first.
type bucket struct {
	rate  float64 // tokens a second; 0 never runs dry
	spent float64
	last  time.Time
}

// take spends a token, or says after which time there is one.
func (b *bucket) take(now time.Time) (time.Duration, bool) {
	if b.rate == 0 {
		return 0, true
	}
	b.spent = math.Max(0, b.spent-now.Sub(b.last).Seconds()*b.rate)
	b.last = now
	if over := b.spent + 1 - math.Max(b.rate, 1); over > 0 {
		return time.Duration(math.Ceil(over/b.rate*1000)) * time.Millisecond, false
	}
	b.spent++
	return 0, true
}
