package cloud

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/keypost/keypost/internal/text"
)

const (
	every       = 2 * time.Second  // how often a call is reported
	long        = 10 * time.Second // how long a call may take before that is much
	unreachable = 5 * time.Second  // how long an endpoint at which nothing listens is tried
)

// Wait is a call of a cloud, or a change there, that is under way.
type Wait struct {
	What  string        // "iam:CreateRole"
	Since time.Duration // how long it has taken so far
	Why   string        // what went wrong last, on one line
}

func (w Wait) String() string {
	if w.Since < long {
		return fmt.Sprintf("%s (%s so far): %s", w.What, w.Since, w.Why)
	}
	return fmt.Sprintf("%s takes long (%s so far): %s", w.What, w.Since, w.Why)
}

// Pending is a call, or a change, that has not ended. It is reported every 2 seconds, with the last error. Its methods may
// be called concurrently.
type Pending struct {
	report func(Wait)
	what   string
	start  time.Time
	timer  *time.Timer

	mu      sync.Mutex
	ended   bool
	last    error
	again   bool      // another attempt was made
	refused time.Time // since when nothing listens at the endpoint
}

// Await returns what the caller waits for from now on, until [Pending.Stop].
func (a API) Await(what string) *Pending {
	p := &Pending{report: a.OnWait, what: what, start: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(every, p.tell)
	return p
}

// Stop ends the reports.
func (p *Pending) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.timer.Stop()
}

func (p *Pending) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.timer.Reset(every)
	why := "no answer yet"
	if p.last != nil {
		why = text.Sentence(p.last.Error(), 0)
	}
	p.report(Wait{What: p.what, Since: time.Since(p.start).Round(time.Second), Why: why})
}

// Because records the last error; nil is ignored.
func (p *Pending) Because(err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = err
}

// Delay returns how long to wait before a call is made again that failed with err, where the service's own hint, or a
// backoff, comes to d. Where nothing listens that is at most a second, and after 5 seconds the error is err: give up.
func (p *Pending) Delay(d time.Duration, err error) (time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.again = true
	if !NobodyListens(err) {
		return d, nil
	}
	if p.refused.IsZero() {
		p.refused = time.Now()
	}
	if time.Since(p.refused) > unreachable {
		return 0, err
	}
	return min(d, time.Second), nil
}

// Again reports whether the call was made again: what its last answer says may be the doing of an earlier attempt.
func (p *Pending) Again() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.again
}

// NobodyListens reports whether nothing listens at the address of a call, or the name does not exist: more attempts seldom
// help.
func NobodyListens(err error) bool {
	for _, e := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, e) {
			return true
		}
	}
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}
