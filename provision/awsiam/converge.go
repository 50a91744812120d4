package awsiam

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"

	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

// step is one call that writes. See [newStep].
type step struct {
	call func(ctx context.Context, c *Client) (again bool, err error) // again: more than one request was sent
	key  string                                                       // the same for calls with the same input
	diff []string                                                     // what it changes
	line string                                                       // reports that it was made
	read bool                                                         // as in [cloud.Step]

	deletes bool   // NoSuchEntity means that it was made
	needs   string // ARN of a policy that it refers to: waiting does not make a missing one appear
}

// newStep returns the step that calls method with in.
func newStep[In, Out any](method func(*iam.Client, context.Context, *In, ...func(*iam.Options)) (*Out, error), in *In, line string, diff ...string) step {
	return step{
		call: func(ctx context.Context, c *Client) (bool, error) {
			_, again, err := send(ctx, c, func(ctx context.Context, in *In, o ...func(*iam.Options)) (*Out, error) {
				return method(c.iam, ctx, in, o...)
			}, in)
			return again, err
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

// answer returns what the step's call has come to.
func (s step) answer(again bool, err error) (cloud.Answer, error) {
	switch {
	case err == nil || s.deletes && isMissing(err):
		return cloud.Accepted, nil
	case isExists(err) && again:
		return cloud.Perhaps, err
	case isExists(err):
		return cloud.Exists, err
	case inProfile(err):
		return cloud.Refused, fmt.Errorf("%w: take the role out of its instance profile first "+
			"(aws iam remove-role-from-instance-profile)", err)
	case isMissing(err) && s.needs != "" && strings.Contains(err.Error(), s.needs):
		return cloud.Refused, fmt.Errorf("%w: correct the ARN %s, and run the same command again", err, s.needs)
	case isMissing(err), isConflict(err):
		return cloud.NotYet, err
	}
	return cloud.Refused, err
}

// planFunc reads the current state and returns the remaining steps; none if it is as wanted.
type planFunc func(ctx context.Context) ([]step, error)

// action returns the action that makes a change by these steps; none without steps. Doing the action calls remaining for
// the steps that are left by then.
func (c *Client) action(change plan.Change, steps []step, remaining planFunc) plan.Stage {
	return c.api.Stage(change, c.bind(steps), c.remaining(remaining))
}

// converge takes steps until none is left, and returns their lines.
func (c *Client) converge(ctx context.Context, remaining planFunc) (lines []string, err error) {
	return c.api.Converge(ctx, c.remaining(remaining))
}

func (c *Client) remaining(f planFunc) cloud.Remaining {
	return func(ctx context.Context) ([]cloud.Step, error) {
		steps, err := f(ctx)
		return c.bind(steps), err
	}
}

// bind returns the steps with their calls made by c.
func (c *Client) bind(steps []step) []cloud.Step {
	var out []cloud.Step
	for _, s := range steps {
		out = append(out, cloud.Step{Key: s.key, Diff: s.diff, Line: s.line, Read: s.read, Call: func(ctx context.Context) (cloud.Answer, error) {
			return s.answer(s.call(ctx, c))
		}})
	}
	return out
}

// ask makes one call. Its time, with all retries, is bounded.
func ask[In, Out any](ctx context.Context, c *Client, call func(context.Context, In, ...func(*iam.Options)) (*Out, error), in In) (*Out, error) {
	out, _, err := send(ctx, c, call, in)
	return out, err
}

// send is ask, and reports whether more than one request was sent.
func send[In, Out any](ctx context.Context, c *Client, call func(context.Context, In, ...func(*iam.Options)) (*Out, error), in In) (*Out, bool, error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	defer func() { <-c.slots }()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	wait := c.api.Await("iam:" + callName.FindStringSubmatch(fmt.Sprintf("%T", in))[1])
	defer wait.Stop()
	out, err := call(ctx, in, func(o *iam.Options) { o.Retryer = watch(wait, o.Retryer) })
	return out, wait.Again(), explain(err)
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

// each calls f for every element of list, ParallelCalls at once, and joins the errors.
func each[T, R any](list []T, f func(T) (R, error)) ([]R, error) {
	return cloud.Each(ParallelCalls, list, f)
}
