package cloud

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/plan"
)

// Step is one call that writes.
type Step struct {
	// Call makes the call, and returns what its answer means. The error says why with Refused and NotYet; else it is ignored.
	Call func(ctx context.Context) (Answer, error)
	Key  string   // the same for calls with the same input
	Diff []string // what it changes, a line each, as in [plan.Change]
	Line string   // reports that it was made
	Also string   // a line after it, which says what was changed; empty for none
	Read bool     // other things are planned from what it makes, so that the change is made only once that shows
}

// said returns the lines that report the step.
func (s Step) said() []string {
	if s.Also == "" {
		return []string{s.Line}
	}
	return []string{s.Line, s.Also}
}

// mostChanges are named in a line.
const mostChanges = 8

// Changed returns a step whose report names the lines of its diff, after a line that has words of its own.
func (s Step) Changed(thing string) Step {
	var changes []string
	for _, change := range s.Diff[:min(len(s.Diff), mostChanges)] {
		changes = append(changes, text.OneLine(change, 300))
	}
	if more := len(s.Diff) - len(changes); more > 0 {
		changes = append(changes, fmt.Sprintf("and %d more", more))
	}
	s.Also = fmt.Sprintf("Changed of %s: %s", thing, strings.Join(changes, "; "))
	return s
}

// Answer is what a cloud's answer to a call that writes means.
type Answer int

// The answers.
const (
	Refused  Answer = iota // the error ends the change
	Accepted               // the change is made, whether or not it shows yet; also of a call that deletes what is gone
	Exists                 // the thing is there already, and not by this call: before anything else is done, its owner must be read
	Perhaps                // as Exists, but an earlier request of this call may have made it, whose reply was lost
	NotYet                 // the error says why: once the thing is read again, the same or another call may be accepted
)

// Remaining reads what is there and returns the steps that are left; none if it is as wanted.
type Remaining func(ctx context.Context) ([]Step, error)

// Stage returns the one action that makes a change by these steps; none without steps. Doing the action calls remaining for
// the steps that are left by then, but begins with the steps as they are if it creates a thing: a cloud refuses to create what
// is there by then. (Where it does not, the change must be an update.)
func (a API) Stage(change plan.Change, steps []Step, remaining Remaining) plan.Stage {
	if change.Verb == plan.Create && !a.Replaces {
		return a.stage(change, steps, steps, remaining)
	}
	return a.stage(change, steps, nil, remaining)
}

// Deletion is Stage for a thing whose owner was read for this plan: doing the action begins with the steps as they are.
func (a API) Deletion(change plan.Change, steps []Step, remaining Remaining) plan.Stage {
	return a.stage(change, steps, steps, remaining)
}

// Delete returns the one action that deletes what was read for this plan; none without steps. Nothing is read again: a cloud agrees to the
// steps also if the thing is gone by then.
func (a API) Delete(change plan.Change, steps ...Step) plan.Stage {
	change.Verb = plan.Delete
	left := slices.Clone(steps)
	for i, s := range left {
		left[i].Call = func(ctx context.Context) (Answer, error) {
			answer, err := s.Call(ctx)
			if answer == Accepted {
				left = slices.DeleteFunc(left, func(l Step) bool { return l.Key == s.Key })
			}
			return answer, err
		}
	}
	return a.stage(change, left, slices.Clone(left), func(context.Context) ([]Step, error) { return slices.Clone(left), nil })
}

func (a API) stage(change plan.Change, steps, first []Step, remaining Remaining) plan.Stage {
	if len(steps) == 0 {
		return nil
	}
	do := plan.Action{Change: change}
	for _, s := range steps {
		do.Diff = append(do.Diff, s.Diff...)
		do.Lines = append(do.Lines, s.Line)
	}
	do.Do = func(ctx context.Context) ([]string, error) { return a.converge(ctx, first, remaining) }
	return plan.Stage{do}
}

// Decision holds the steps from what is there to what is wanted, and what the reader should know: a plan without stages.
type Decision struct {
	Steps []Step
	plan.Plan
}

// Thing is a thing that is compared with what is wanted.
type Thing[S any] struct {
	Kind, Name string
	Missing    bool   // it is still to be made
	Deleted    bool   // it is deleted, and comes back
	Found      string // the line that reports one that is there

	Read   func(ctx context.Context) (S, error)
	Decide func(have S) (Decision, error)
}

// Plan plans what is decided for have. Applied, the plan reads again and decides by what is there then.
func (t Thing[S]) Plan(a API, have S) (plan.Plan, error) {
	d, err := t.Decide(have)
	if err != nil {
		return plan.Plan{}, err
	}
	change := plan.Change{Verb: plan.Update, Thing: t.Kind, Name: t.Name}
	if t.Missing {
		change.Verb = plan.Create
	} else if !t.Deleted {
		d.Notes = append([]string{t.Found}, d.Notes...)
	}
	stage := a.Stage(change, d.Steps, After(t.Read, func(have S) ([]Step, error) {
		d, err := t.Decide(have)
		return d.Steps, err
	}))
	return d.Then(plan.Of(nil, stage)), nil
}

// After returns the steps from what is read.
func After[S any](read func(context.Context) (S, error), steps func(S) ([]Step, error)) Remaining {
	return func(ctx context.Context) ([]Step, error) {
		have, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return steps(have)
	}
}

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Converge takes steps until none is left, and reads back after the last: a cloud shows a write seconds after it has accepted
// it, and the reply to a write may be lost. No accepted step is taken twice. Where a write finds something that the reading
// did not show (it exists, it does not exist yet, it is being changed), Converge reads again.
//
// It returns the lines of the steps that took effect, also beside an error.
func (a API) Converge(ctx context.Context, remaining Remaining) (lines []string, err error) {
	return a.converge(ctx, nil, remaining)
}

// converge is Converge, which takes the steps of first before it reads. If every one was accepted, what they make needs no
// second look, unless others are going to read it.
func (a API) converge(ctx context.Context, first []Step, remaining Remaining) (lines []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.Consistency+a.CallTime)
	defer cancel()
	var showing *Pending // what the calls take is their own
	defer func() {
		if showing != nil {
			showing.Stop()
		}
	}()
	start, pause := time.Now(), cmp.Or(a.FirstPause, firstPause)
	p := progress{answers: map[string]Answer{}}
	pending, err := p.take(ctx, first)
	if err != nil || len(first) > 0 && p.done(first) {
		return p.lines, err
	}
	for because := pending; ; {
		steps, err := remaining(ctx)
		if err == nil && len(steps) == 0 {
			return append(p.lines, p.existing...), nil
		}
		if err != nil {
			return p.lines, err
		}
		before := len(p.answers)
		pending, err := p.take(ctx, steps)
		if err != nil || a.Replaces && p.done(steps) {
			return p.lines, err
		}
		if len(p.answers) > before && pending == nil {
			continue // mostly it shows at once
		}
		if time.Since(start) > a.Consistency {
			return p.lines, a.timeout(pending)
		}
		if pending != nil {
			because = pending
		}
		if showing == nil {
			showing = a.Await("the change to show")
		}
		showing.Because(because)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return p.lines, context.Cause(ctx)
		}
		pause = min(2*pause, lastPause)
	}
}

// timeout is the error of a change that does not show in time; err is what delays it, if anything is known.
func (a API) timeout(err error) error {
	if err != nil {
		return fmt.Errorf("%s is not ready for the change after %s: %w", a.Name, a.Consistency, err)
	}
	return fmt.Errorf("%s accepted the change and does not show it after %s, or somebody else changes it too: run it again", a.Name, a.Consistency)
}

// progress records the steps taken so far.
type progress struct {
	answers  map[string]Answer // by key; Accepted, Exists or Perhaps
	lines    []string          // of the steps that were accepted
	existing []string          // lines of those that perhaps were, by a request whose reply was lost
}

// done reports whether all of these steps were accepted, and nobody is going to read what they make.
func (p *progress) done(steps []Step) bool {
	return !slices.ContainsFunc(steps, func(s Step) bool { return s.Read || p.answers[s.Key] != Accepted })
}

// take takes the steps in order, up to the first that is not accepted. It returns an error as pending if reading again may
// solve it.
func (p *progress) take(ctx context.Context, steps []Step) (pending, err error) {
	for _, s := range steps {
		switch p.answers[s.Key] {
		case Accepted:
			continue
		case Exists, Perhaps:
			return nil, nil
		}
		answer, err := s.Call(ctx)
		switch answer {
		case Accepted:
			p.answers[s.Key] = Accepted
			p.lines = append(p.lines, s.said()...)
		case Exists, Perhaps:
			p.answers[s.Key] = answer
			if answer == Perhaps {
				p.existing = append(p.existing, s.said()...)
			}
			return nil, nil
		case NotYet:
			return err, nil
		default:
			return nil, err
		}
	}
	return nil, nil
}
