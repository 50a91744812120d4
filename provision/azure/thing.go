package azure

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

// client calls Azure for one run, and remembers what it was shown.
type client struct {
	*arm.Client
	tenant string // the subscription's; empty where nobody said which

	mu   sync.Mutex
	seen map[string]identityState // by name in lower case: as Azure last showed it
	made map[string]bool          // by name in lower case: identities that this run has made
	role map[string]string        // by name in lower case: the IDs of roles
	name map[string]string        // by GUID: the names of roles
	bare map[string]bool          // by kind and name in lower case: identities made by this run, on which nothing hangs yet
}

func open(o Options, onWait func(cloud.Wait)) (*client, error) {
	c, err := arm.Open(arm.Account{Endpoint: o.Endpoint, Subscription: o.Subscription, Tenant: o.Tenant}, onWait)
	return &client{Client: c, seen: map[string]identityState{}, made: map[string]bool{}, role: map[string]string{}, name: map[string]string{}, bare: map[string]bool{}}, err
}

// errRate is why a call about federated credentials waits.
var errRate = errors.New("an identity's federated credentials are written one in 4 seconds, and a subscription's two a second, as Azure asks")

// turn waits until a call about the federated credentials of an identity may be made, by the name of the permission that it needs.
func (c *client) turn(ctx context.Context, p *arm.Pace, name, identity string) error {
	pending := c.API.Await(name)
	defer pending.Stop()
	pending.Because(errRate)
	return p.Take(ctx, folded(identity))
}

// stage returns the action that makes a change, as [cloud.API.Stage] does. A PUT replaces what is there without a word, so that
// whatever is new is read before it is made, too. What the answers to all steps confirm is not read again.
func (c *client) stage(change plan.Change, steps []cloud.Step, read cloud.Remaining) plan.Stage {
	return stage(c.API, change, steps, read)
}

func stage(api cloud.API, change plan.Change, steps []cloud.Step, read cloud.Remaining) plan.Stage {
	verb := change.Verb
	change.Verb = plan.Update
	s := api.Stage(change, steps, confirmed(read))
	for i := range s {
		s[i].Verb = verb
	}
	return s
}

// thing is one that a run makes or brings up to date: a group, an identity or a custom role.
type thing[S any] struct {
	kind, name string
	read       func(context.Context) (*S, error)   // nil if it is not there
	steps      func(have *S) ([]cloud.Step, error) // from what is there
}

// planThing plans to make a thing, or to change what was read of it.
func planThing[S any](api cloud.API, t thing[S], have *S) (plan.Plan, error) {
	steps, err := t.steps(have)
	if err != nil {
		return plan.Plan{}, err
	}
	change := plan.Change{Verb: plan.Update, Thing: t.kind, Name: t.name}
	if have == nil {
		change.Verb = plan.Create
	}
	return plan.Of(nil, stage(api, change, steps, then(t.read, t.steps))), nil
}

// then returns the steps from what is read.
func then[S any](read func(context.Context) (S, error), steps func(S) ([]cloud.Step, error)) cloud.Remaining {
	return func(ctx context.Context) ([]cloud.Step, error) {
		have, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return steps(have)
	}
}

// confirmed returns the steps that read returns, and then none as soon as each of these was accepted.
func confirmed(read cloud.Remaining) cloud.Remaining {
	left := -1 // of the steps that were returned last; less than 0 for none yet
	return func(ctx context.Context) ([]cloud.Step, error) {
		if left == 0 {
			return nil, nil
		}
		steps, err := read(ctx)
		if err != nil {
			return nil, err
		}
		left = len(steps)
		for i, s := range steps {
			steps[i].Call = func(ctx context.Context) (cloud.Answer, error) {
				a, err := s.Call(ctx)
				if a == cloud.Accepted {
					left--
				}
				return a, err
			}
		}
		return steps, nil
	}
}

// known returns an identity as Azure last showed it; nil if it did not.
func (c *client) known(name string) *identityState {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, is := c.seen[folded(name)]; is {
		return &s
	}
	return nil
}

func (c *client) learn(s identityState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[folded(s.name)] = s
}

// The kinds of what hangs on an identity.
const (
	hangsAssigned  = "assignments"
	hangsFederated = "credentials"
)

// learnNew records an identity that this run has just made, where a moment ago was none: what hangs on it need not be read,
// which for federated credentials Azure allows seldom.
func (c *client) learnNew(s identityState) {
	c.learn(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[folded(s.name)] = true
	for _, kind := range []string{hangsAssigned, hangsFederated} {
		c.bare[kind+" "+folded(s.name)] = true
	}
}

// isMade reports whether this run has made an identity.
func (c *client) isMade(identity string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made[folded(identity)]
}

// isBare reports whether nothing of a kind hangs on an identity, as is known without reading; once, since then there is.
func (c *client) isBare(kind, identity string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := kind + " " + folded(identity)
	bare := c.bare[key]
	delete(c.bare, key)
	return bare
}

// roleID returns the ID of a role by its name; empty if it is not known.
func (c *client) roleID(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.role[folded(name)]
}

func (c *client) learnRole(name, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.role[folded(name)] = id
}

// roleName returns the name of a role by its ID; the GUID if Azure does not show one.
func (c *client) roleName(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.name[last(id)], last(id))
}

// each calls f for every element of a list at once, as far as calls may be under way, and joins the errors.
func each[T, R any](list []T, f func(T) (R, error)) ([]R, error) {
	return cloud.Each(arm.Parallel, list, f)
}
