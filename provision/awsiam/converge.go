package awsiam

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"
)

// step is one call that writes. See [newStep].
type step struct {
	call func(ctx context.Context, c *Client) error
	key  string   // the same for calls with the same input
	diff []string // what it changes
	line string   // reports that it was made

	deletes bool   // NoSuchEntity means that it was made
	needs   string // ARN of a policy that it refers to: waiting does not make a missing one appear
}

// newStep returns the step that calls method with in.
func newStep[In, Out any](method func(*iam.Client, context.Context, *In, ...func(*iam.Options)) (*Out, error), in *In, line string, diff ...string) step {
	return step{
		call: func(ctx context.Context, c *Client) error {
			_, err := ask(ctx, c, func(ctx context.Context, in *In, o ...func(*iam.Options)) (*Out, error) {
				return method(c.iam, ctx, in, o...)
			}, in)
			return err
		},
		key: fmt.Sprintf("%T %s", in, asJSON(in)), diff: diff, line: line,
	}
}

// newDelete is newStep for a call that deletes.
func newDelete[In, Out any](method func(*iam.Client, context.Context, *In, ...func(*iam.Options)) (*Out, error), in *In, line string, diff ...string) step {
	s := newStep(method, in, line, diff...)
	s.deletes = true
	return s
}

// after returns s with a check that runs just before the call, however long the steps before it took. Its error stops the
// call.
func (s step) after(check func(context.Context) error) step {
	call := s.call
	s.call = func(ctx context.Context, c *Client) error {
		if err := check(ctx); err != nil {
			return err
		}
		return call(ctx, c)
	}
	return s
}

// planFunc reads the current state and returns the remaining steps; none if it is as wanted.
type planFunc func(ctx context.Context) ([]step, error)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// converge takes steps until none is left, and reads back after the last: IAM shows a write seconds after it has accepted
// it, and the reply to a write may be lost. No accepted step is taken twice. Where a write finds something that the reading
// did not show (it exists, it does not exist yet, it is being changed), converge reads again.
//
// It returns the lines of the steps that took effect, also beside an error.
func (c *Client) converge(ctx context.Context, remaining planFunc) (lines []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.consistency+callTime)
	defer cancel()
	wait := c.await("the change to show")
	defer wait.stop()
	start, pause := time.Now(), firstPause
	p := progress{outcomes: map[string]outcome{}}
	for {
		steps, err := remaining(ctx)
		if err == nil && len(steps) == 0 {
			return append(p.lines, p.existing...), nil
		}
		if err != nil {
			return p.lines, err
		}
		before := len(p.outcomes)
		pending, err := c.take(ctx, steps, &p)
		if err != nil {
			return p.lines, err
		}
		if len(p.outcomes) > before && pending == nil {
			continue // mostly it shows at once
		}
		if time.Since(start) > c.consistency {
			return p.lines, c.timeout(pending)
		}
		wait.because(pending)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return p.lines, context.Cause(ctx)
		}
		pause = min(2*pause, lastPause)
	}
}

// progress records the steps taken so far.
type progress struct {
	outcomes map[string]outcome // by key
	lines    []string           // of the steps that are done
	existing []string           // lines of those that found their thing there: perhaps made by a call whose reply was lost
}

// timeout is the error of a change that does not show in time; err is what delays it, if anything is known.
func (c *Client) timeout(err error) error {
	if err != nil {
		return fmt.Errorf("IAM is not ready for the change after %s: %w", c.consistency, err)
	}
	return fmt.Errorf("IAM accepted the change and does not show it after %s, or somebody else changes it too: run it again", c.consistency)
}

type outcome int

const (
	done   outcome = iota + 1 // IAM accepted the change, whether or not it shows yet
	exists                    // there already: before anything else is done, its owner must be read
)

// take takes the steps in order, up to the first error. It returns the error as pending if reading again may solve it.
func (c *Client) take(ctx context.Context, steps []step, p *progress) (pending, err error) {
	for _, s := range steps {
		switch p.outcomes[s.key] {
		case done:
			continue
		case exists:
			return nil, nil
		}
		err := s.call(ctx, c)
		switch {
		case err == nil || s.deletes && isMissing(err):
			p.outcomes[s.key] = done
			p.lines = append(p.lines, s.line)
		case isExists(err):
			p.outcomes[s.key] = exists
			p.existing = append(p.existing, s.line)
			return nil, nil
		case inProfile(err):
			return nil, fmt.Errorf("%w: take the role out of its instance profile first "+
				"(aws iam remove-role-from-instance-profile)", err)
		case isMissing(err) && (s.needs == "" || !strings.Contains(err.Error(), s.needs)) || isConflict(err):
			return err, nil
		default:
			return nil, err
		}
	}
	return nil, nil
}

// ask makes one call. Its time, with all retries, is bounded.
func ask[In, Out any](ctx context.Context, c *Client, call func(context.Context, In, ...func(*iam.Options)) (*Out, error), in In) (*Out, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	wait := c.await("iam:" + callName.FindStringSubmatch(fmt.Sprintf("%T", in))[1])
	defer wait.stop()
	out, err := call(ctx, in, func(o *iam.Options) { o.Retryer = wait.watch(o.Retryer) })
	return out, explain(err)
}

// callName finds the call in the name of the SDK's type for its input, or for its pages.
var callName = regexp.MustCompile(`^\*iam\.(.+)(?:Input|Paginator)$`)

// pager is what the SDK's paginators have in common.
type pager[Out any] interface {
	HasMorePages() bool
	NextPage(context.Context, ...func(*iam.Options)) (*Out, error)
}

// all lists the items of all pages.
func all[Out, T any](ctx context.Context, c *Client, p pager[Out], items func(*Out) []T) ([]T, error) {
	var list []T
	for p.HasMorePages() {
		page, err := ask(ctx, c, func(ctx context.Context, p pager[Out], o ...func(*iam.Options)) (*Out, error) {
			return p.NextPage(ctx, o...)
		}, p)
		if err != nil {
			return nil, err
		}
		list = append(list, items(page)...)
	}
	return list, nil
}

func isMissing(err error) bool { return hasCode(err, "NoSuchEntity") }

func isExists(err error) bool { return hasCode(err, "EntityAlreadyExists") }

func isDenied(err error) bool { return hasCode(err, "AccessDenied", "AccessDeniedException") }

// inProfile reports whether IAM does not delete a role because an instance profile has it. Waiting does not help.
func inProfile(err error) bool {
	return hasCode(err, "DeleteConflict") && strings.Contains(err.Error(), "instance profile")
}

// isConflict reports whether IAM is still busy with an earlier change, perhaps our own.
func isConflict(err error) bool {
	return hasCode(err, "ConcurrentModification", "DeleteConflict", "EntityTemporarilyUnmodifiable")
}

// hasCode compares codes: the SDK has types for them only at calls whose documentation mentions them.
func hasCode(err error, codes ...string) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && slices.Contains(codes, api.ErrorCode())
}

// each calls f for every element of list, Parallel at once, and joins the errors.
func each[T, R any](list []T, f func(T) (R, error)) ([]R, error) {
	results, errs := make([]R, len(list)), make([]error, len(list))
	var group errgroup.Group
	group.SetLimit(Parallel)
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
