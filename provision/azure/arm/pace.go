package arm

import (
	"context"
	"sync"
	"time"
)

// The rate at which Azure takes writes of federated credentials, of one identity and of a subscription, and lists of them
// (https://learn.microsoft.com/entra/workload-id/workload-identity-federation-considerations).
const (
	credentialPause   = 4200 * time.Millisecond // and a little more, since requests do not arrive as they are sent
	subscriptionPause = 525 * time.Millisecond
	listPause         = 210 * time.Millisecond
)

// Pace keeps calls about federated credentials to a rate. The writes of one identity are made one after another by its caller.
type Pace struct {
	each, all time.Duration // between two of one identity, and of the subscription

	mu   sync.Mutex
	free time.Time            // when the subscription's next may be made
	next map[string]time.Time // when an identity's may
}

func newPace(each, all time.Duration) *Pace {
	return &Pace{each: each, all: all, next: map[string]time.Time{}}
}

// Take waits until a call about an identity may be made.
func (p *Pace) Take(ctx context.Context, identity string) error {
	p.mu.Lock()
	own := p.next[identity]
	p.mu.Unlock()
	if err := until(ctx, own); err != nil {
		return err
	}
	p.mu.Lock()
	at := time.Now()
	if p.free.After(at) {
		at = p.free
	}
	p.free, p.next[identity] = at.Add(p.all), at.Add(p.each)
	p.mu.Unlock()
	return until(ctx, at)
}

func until(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(at)):
		return nil
	}
}
