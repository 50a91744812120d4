package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/internal/text"
)

// Empty reports whether there is nothing to do.
func (p Plan) Empty() bool {
	return !slices.ContainsFunc(p.Stages, func(s Stage) bool { return len(s) > 0 })
}

// Then is p and, after it, q.
func (p Plan) Then(q Plan) Plan {
	return Plan{
		Stages: slices.Concat(p.Stages, q.Stages), Notes: slices.Concat(p.Notes, q.Notes), Extra: slices.Concat(p.Extra, q.Extra),
	}
}

// mark sorts lines for the eye and for grep.
func (v Verb) mark() string {
	switch v {
	case Create:
		return "+"
	case Delete:
		return "-"
	default:
		return "~"
	}
}

// Write prints what Apply would do, in its order: a line for each action, what differs indented below it, then what is
// there beyond what is wanted, then the notes. What others wrote into the account is printed so that a terminal cannot be steered with it.
func (p Plan) Write(w io.Writer) error {
	var b bytes.Buffer
	if p.Empty() && len(p.Extra) == 0 {
		b.WriteString("nothing to change\n")
	}
	for _, s := range p.Stages {
		for _, a := range s {
			fmt.Fprintf(&b, "%s %s\n", a.Verb.mark(), text.SameWidth(a.String()))
			for _, line := range a.Diff {
				fmt.Fprintf(&b, "    %s\n", text.SameWidth(line))
			}
		}
	}
	for _, extra := range p.Extra {
		fmt.Fprintf(&b, "? %s\n", text.SameWidth(extra))
	}
	for _, note := range p.Notes {
		fmt.Fprintf(&b, "note: %s\n", text.SameWidth(note))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// String is the action in words: "create IAM role NAME".
func (a Action) String() string { return fmt.Sprintf("%s %s %s", a.Verb, a.Thing, a.Name) }

// Told is called after each action that was begun: with the lines for the calls that took effect, and with its error.
type Told func(a Action, said []string, err error)

// Apply does the plan, stage after stage, at most limit actions of a stage at once. What a failing action shares its
// stage with is done all the same; the stages after it are not begun, since they need what it was to make. When ctx
// ends, no further action is begun. told hears of one action at a time. The error joins those of the actions, in the
// order of the plan, each with the action's name before it.
func (p Plan) Apply(ctx context.Context, limit int, told Told) error {
	for _, s := range p.Stages {
		if err := s.apply(ctx, max(limit, 1), told); err != nil {
			return err
		}
	}
	return nil
}

func (s Stage) apply(ctx context.Context, limit int, told Told) error {
	var (
		g        errgroup.Group
		one      sync.Mutex // for told and notBegun
		notBegun int
		errs     = make([]error, len(s)) // all of them, while errgroup keeps the first
	)
	g.SetLimit(limit)
	for i, a := range s {
		g.Go(func() error {
			begun := ctx.Err() == nil
			var said []string
			if begun {
				said, errs[i] = a.do(ctx)
			}
			one.Lock()
			defer one.Unlock()
			if begun {
				told(a, said, errs[i])
			} else {
				notBegun++
			}
			return nil
		})
	}
	_ = g.Wait()
	if notBegun > 0 {
		errs = append(errs, fmt.Errorf("%d of %d actions were not begun: %w", notBegun, len(s), context.Cause(ctx)))
	}
	return errors.Join(errs...)
}

func (a Action) do(ctx context.Context) ([]string, error) {
	if a.Do == nil {
		return nil, fmt.Errorf("%s: it is only shown, and nothing here can do it", a)
	}
	said, err := a.Do(ctx)
	if err != nil {
		return said, fmt.Errorf("%s: %w", a, err)
	}
	return said, nil
}
