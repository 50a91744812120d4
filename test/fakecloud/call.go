// Package fakecloud is what test/fakeaws, test/fakegcp and test/fakeazure have in common, whatever cloud they stand for:
// a server on a free port that every host name may lead to, a record of calls and of what is to go wrong with them,
// throttling, a state that is seen late, and the flags of the programs that serve them. Package issuerkeys below reads what
// issuers publish. Nothing here knows a cloud.
package fakecloud

import (
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Call is one request, as it was recorded.
type Call struct {
	N          int    // from 1, since the server started or ResetCalls
	Service    string // which of the cloud's services it asked; empty for what no service has
	Action     string // what it asked for, by the cloud's own name
	Permission string // what the caller needs for it, where that is a name; empty: nothing
	Method     string
	Path       string
	Query      url.Values
	Body       string            // as sent; of calls with tokens in them nothing
	Params     map[string]string // the body, where it is a form: as sent, without tokens
	Write      bool              // it may change something
	Start      time.Time         // in real time
	Took       time.Duration
	InFlight   int    // calls under way when it came, itself included
	Code       string // why it was refused, by the cloud's own name; empty if it was not
}

// Fault is what goes wrong with one call. The zero value is nothing.
type Fault struct {
	Refusal  error         // the answer, instead of the call
	Throttle time.Duration // refuse the call in the cloud's words, and ask to come back after this time; 0: not
	Lost     bool          // make the call, and cut the connection
	Late     time.Duration // make the call this much later
}

// LoseReply makes the call and then cuts the connection, so that the client does not learn that it was made.
func LoseReply() Fault { return Fault{Lost: true} }

// Login is the service of calls by which a client learns who it is. They change nothing, and a client may make them at any time.
const Login = "login"

// KilledAt is what a client sees that dies with call n: what that writes is done, and whatever comes after it is answered as to one that
// is dead. Logins are not.
func KilledAt(n int, dead Fault) func(Call) Fault {
	return func(c Call) Fault {
		switch {
		case c.Service == Login || c.N < n:
			return Fault{}
		case c.N == n && c.Write:
			return LoseReply()
		}
		return dead
	}
}

// OnceFrom has one call go wrong: the first from call n on that is not a login.
func OnceFrom(n int, fault Fault) func(Call) Fault {
	var done atomic.Bool
	return func(c Call) Fault {
		if c.Service != Login && c.N >= n && done.CompareAndSwap(false, true) {
			return fault
		}
		return Fault{}
	}
}

// Record keeps the calls of a server and asks what is to go wrong with them. Its methods may be called side by side.
type Record struct {
	mu       sync.Mutex
	calls    []*Call
	inFlight int
	fault    func(Call) Fault
	onCall   func(n int, c Call)
}

// Begin records a call that came just now, and asks what is to go wrong with it.
func (r *Record) Begin(c Call) (*Call, Fault) {
	r.mu.Lock()
	r.inFlight++
	c.N, c.Start, c.InFlight = len(r.calls)+1, time.Now(), r.inFlight
	kept, said := &c, c
	r.calls = append(r.calls, kept)
	ask := r.fault
	r.mu.Unlock()
	if ask == nil {
		return kept, Fault{}
	}
	return kept, ask(said)
}

// End records how a call went: code says why it was refused.
func (r *Record) End(c *Call, code string) {
	r.mu.Lock()
	r.inFlight--
	c.Took, c.Code = max(time.Since(c.Start), 1), code
	tell, said := r.onCall, *c
	r.mu.Unlock()
	if tell != nil {
		tell(said.N, said)
	}
}

// Fault asks f about every call from now on, before anything else is done with it. f is called side by side.
func (r *Record) Fault(f func(Call) Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
}

// OnCall calls f for every call from now on, after its effect and before its reply: a client killed by f does not learn
// of what it has done. n is the call's number.
func (r *Record) OnCall(f func(n int, c Call)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onCall = f
}

// Calls are the requests so far that have been dealt with, in the order in which they came.
func (r *Record) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ended []Call
	for _, c := range r.calls {
		if c.Took > 0 {
			ended = append(ended, *c)
		}
	}
	return ended
}

// ResetCalls forgets the requests so far.
func (r *Record) ResetCalls() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}
