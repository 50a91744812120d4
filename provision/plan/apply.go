package plan

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Done is called after each action that was started, with the lines that it returned and its error. Calls are sequential.
type Done func(a Action, lines []string, err error)

// Apply makes the changes, stage after stage, at most limit actions of a stage concurrently. A failing action does not
// stop the others of its stage; the stages after it are not started, since they depend on it. Once ctx ends, no further
// action starts. The error joins those of the actions, in the order of the plan, each prefixed with its action.
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
				lines, errs[i] = a.do(ctx)
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
	if skipped > 0 {
		errs = append(errs, fmt.Errorf("%d of %d actions were not begun: %w", skipped, len(s), context.Cause(ctx)))
	}
	return errors.Join(errs...)
}

func (a Action) do(ctx context.Context) ([]string, error) {
	lines, err := a.Do(ctx)
	if err != nil {
		return lines, fmt.Errorf("%s: %w", a, err)
	}
	return lines, nil
}
