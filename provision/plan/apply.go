package plan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Done is called after each action that was started, with the lines that it returned and its error. Calls are sequential.
type Done func(a Action, lines []string, err error)

// Apply makes the changes, stage after stage, at most limit actions of a stage concurrently. A failing action does not
// stop the others of its stage; the stages after it are not started, since they depend on it. Once ctx ends, no further
// action starts. The error joins those of the actions, in the order of the plan, each prefixed with its action, or with the first
// action and the number of others that failed for the same reason.
func (p Plan) Apply(ctx context.Context, limit int, done Done) error {
	for _, s := range p.Stages {
		if err := s.apply(ctx, max(limit, 1), done); err != nil {
			return err
		}
	}
	return nil
}

func (s Stage) apply(ctx context.Context, limit int, done Done) error {
	var (
		g       errgroup.Group
		mu      sync.Mutex // guards skipped, and makes the calls of done sequential
		skipped int
		errs    = make([]error, len(s)) // all of them; errgroup keeps only the first
	)
	g.SetLimit(limit)
	for i, a := range s {
		g.Go(func() error {
			started := ctx.Err() == nil
			var lines []string
			if started {
				lines, errs[i] = a.Do(ctx)
			}
			mu.Lock()
			defer mu.Unlock()
			if started {
				done(a, lines, errs[i])
			} else {
				skipped++
			}
			return nil
		})
	}
	_ = g.Wait()
	told := s.folded(errs)
	if skipped > 0 {
		told = append(told, fmt.Errorf("%d of %d actions were not begun: %w", skipped, len(s), context.Cause(ctx)))
	}
	return errors.Join(told...)
}

// folded returns the errors of a stage's actions, in the order of the plan. Those that differ in nothing but the name of the thing
// are one error, of the first thing and so many more.
func (s Stage) folded(errs []error) []error {
	causes, times := make([]string, len(s)), map[string]int{}
	for i, a := range s {
		if errs[i] != nil {
			causes[i] = strings.ReplaceAll(fmt.Sprint(a.Verb, a.Thing, errs[i]), a.Name, "")
			times[causes[i]]++
		}
	}
	var told []error
	for i, a := range s {
		more := times[causes[i]] - 1
		switch {
		case errs[i] == nil || more < 0:
			continue
		case more == 0:
			told = append(told, fmt.Errorf("%s: %w", a, errs[i]))
		default:
			told = append(told, fmt.Errorf("%s and %d more: %w", a, more, errs[i]))
		}
		times[causes[i]] = 0
	}
	return told
}
