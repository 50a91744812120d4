package fakeaws

import (
	"math"
	"net/http"
	"time"
)

// Fault is what goes wrong with one call. The zero value is nothing.
type Fault struct {
	refusal   *failure
	loseReply bool
	delay     time.Duration
}

// Throttle refuses the call as AWS does when there are too many: nothing happens.
func Throttle() Fault { return Fail(http.StatusBadRequest, "Throttling", "Rate exceeded") }

// Unavailable refuses the call with 503: nothing happens.
func Unavailable() Fault {
	return Fail(http.StatusServiceUnavailable, "ServiceUnavailable", "Service is unavailable")
}

// LoseReply makes the call and then cuts the connection, so that the client does not learn that it was made.
func LoseReply() Fault { return Fault{loseReply: true} }

// Delay makes the call, that much later.
func Delay(d time.Duration) Fault { return Fault{delay: d} }

// Fail refuses the call with any status, code and sentence: nothing happens.
func Fail(status int, code, message string) Fault {
	return Fault{refusal: &failure{status, code, message}}
}

// Call is one request, as it was recorded.
type Call struct {
	N        int    // from 1, since the server started or ResetCalls
	Service  string // iam or sts
	Action   string
	Params   map[string]string // as sent, without the web identity token
	Write    bool              // it may change the account
	Start    time.Time         // in real time
	Took     time.Duration
	InFlight int    // calls under way when it came, itself included
	Code     string // why it was refused; empty if it was not
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

// bucket is a token bucket that holds one second's worth, and is full at first.
type bucket struct {
	rate  float64 // tokens a second; 0 never runs dry
	spent float64
	last  time.Time
}

func (b *bucket) take(now time.Time) bool {
	if b.rate == 0 {
		return true
	}
	b.spent = math.Max(0, b.spent-now.Sub(b.last).Seconds()*b.rate)
	b.last = now
	if b.spent+1 > math.Max(b.rate, 1) {
		return false
	}
	b.spent++
	return true
}
