// Package cloud holds what changing things in a cloud has in common, whichever cloud it is: calls that write, made until the
// cloud shows what they were to bring ([API.Converge]); waits that are reported with their reason ([API.Await]); many things
// read at once, but not too many ([Each]); and the tag that shows whose a thing is ([OwnerTag]). It knows no cloud and no SDK.
//
// A cloud's own package is the only user of its SDK. It has an [API] for each service that it writes to, and does this:
//
//   - It makes every call between [API.Await] and [Pending.Stop]. Retries are its SDK's, or its own, by what the service says
//     in its answers; before each it asks [Pending.Delay].
//   - It reads what is there with [Each], and compares it with what is wanted in functions that make no call and return the
//     [Step] values from the one to the other: without any, nothing is to be done.
//   - It makes a [plan.Stage] of them with [API.Stage], which reads and compares again before it writes; what depends on
//     another thing is in a later stage.
//   - A step's call says what its answer means: only the package knows the cloud's codes.
//   - Steps of one action are made one after another; where a cloud allows one write at a time to a thing, all its steps belong
//     to one action.
package cloud

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// API is a service of a cloud that is written to. Its methods may be called concurrently.
type API struct {
	Name        string        // for messages: "IAM"
	Consistency time.Duration // how long it may take to show what was written
	CallTime    time.Duration // how long a call may take, with its retries
	FirstPause  time.Duration // before it is looked at again; each later one is twice as long. Zero for 100 ms

	// Replaces says that a write replaces what is there without a word, and shows late: what is new is read before it is made, and
	// nothing is read after the last step.
	Replaces bool

	// OnWait is called every 2 seconds for each call or change under way, from any goroutine, so that nothing is silent for long
	// that makes one call after another. Anyone who is told leaves out what comes soon after other news. It must not be nil.
	OnWait func(Wait)
}

// Each calls f for every element of list, at most limit calls at once, and returns the results in the order of the list. The
// error joins those of the calls; without one, all results are there.
func Each[T, R any](limit int, list []T, f func(T) (R, error)) ([]R, error) {
	results, errs := make([]R, len(list)), make([]error, len(list))
	var group errgroup.Group
	group.SetLimit(limit)
	for i, v := range list {
		group.Go(func() error {
			results[i], errs[i] = f(v)
			return errs[i]
		})
	}
	if group.Wait() != nil {
		return nil, errors.Join(errs...)
	}
	return results, nil
}

// Error is an error about which the caller can do something. Each cloud has problems of its own.
type Error[P comparable] struct {
	Problem P
	Err     error
}

func (e *Error[P]) Error() string { return e.Err.Error() }
func (e *Error[P]) Unwrap() error { return e.Err }

// OwnerTag is the tag that shows whose a thing is. Every thing that a run makes bears one, and nothing without it is changed
// unless it is to be adopted. The zero OwnerTag is on nothing.
type OwnerTag struct{ Key, Value string }

// On reports whether these tags have it. A tag with the key and another value does not count: ccoctl compares only the
// key, and cloud providers write "shared" for what belongs to others too.
func (o OwnerTag) On(tags map[string]string) bool { return o.Key != "" && tags[o.Key] == o.Value }

// String returns the tag, KEY=VALUE.
func (o OwnerTag) String() string { return o.Key + "=" + o.Value }

// Absent says why a thing without the tag is somebody else's. others are the names of the owners that its tags show, if any.
func (o OwnerTag) Absent(thing string, tags map[string]string, others string) string {
	value, tagged := tags[o.Key]
	switch {
	case tagged && value != o.Value:
		return fmt.Sprintf("%s bears the tag %s=%s and not %s, so it belongs to something else too", thing, o.Key, value, o)
	case others != "":
		return fmt.Sprintf("%s belongs to %s, and does not bear the tag %s", thing, others, o)
	}
	return fmt.Sprintf("%s does not bear the tag %s, so something else made it", thing, o)
}
