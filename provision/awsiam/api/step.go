package api

import (
	"context"
	"encoding/json"
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

// Step is one call that writes. See [NewStep].
type Step struct {
	Diff  []string // what it changes
	Read  bool     // as in [cloud.Step]
	Needs string   // ARN of a policy that it refers to: waiting does not make a missing one appear

	call    func(ctx context.Context, c *Client) (again bool, err error) // again: more than one request was sent
	key     string                                                       // the same for calls with the same input
	line    string                                                       // reports that it was made
	deletes bool                                                         // NoSuchEntity means that it was made
}

// NewStep returns the step that calls method with in.
func NewStep[In, Out any](method func(*iam.Client, context.Context, *In, ...func(*iam.Options)) (*Out, error), in *In, line string, diff ...string) Step {
	text, _ := json.Marshal(in) // strings, lists and maps, which always marshal
	return Step{
		call: func(ctx context.Context, c *Client) (bool, error) {
			_, again, err := send(ctx, c, func(ctx context.Context, in *In, o ...func(*iam.Options)) (*Out, error) {
				return method(c.IAM, ctx, in, o...)
			}, in)
			return again, err
		},
		key: fmt.Sprintf("%T %s", in, text), Diff: diff, line: line,
	}
}

// NewDelete is NewStep for a call that deletes.
func NewDelete[In, Out any](method func(*iam.Client, context.Context, *In, ...func(*iam.Options)) (*Out, error), in *In, line string, diff ...string) Step {
	s := NewStep(method, in, line, diff...)
	s.deletes = true
	return s
}

// answer returns what the step's call has come to.
func (s Step) answer(again bool, err error) (cloud.Answer, error) {
	switch {
	case err == nil || s.deletes && IsMissing(err):
		return cloud.Accepted, nil
	case isExists(err) && again:
		return cloud.Perhaps, err
	case isExists(err):
		return cloud.Exists, err
	case inProfile(err):
		return cloud.Refused, fmt.Errorf("%w: take the role out of its instance profile first "+
			"(aws iam remove-role-from-instance-profile)", err)
	case IsMissing(err) && s.Needs != "" && strings.Contains(err.Error(), s.Needs):
		return cloud.Refused, fmt.Errorf("%w: correct the ARN %s, and run the same command again", err, s.Needs)
	case IsMissing(err), isConflict(err):
		return cloud.NotYet, err
	}
	return cloud.Refused, err
}

// Remaining reads the current state and returns the remaining steps; none if it is as wanted.
type Remaining func(ctx context.Context) ([]Step, error)

// Action returns the action that makes a change by these steps; none without steps. Doing the action calls remaining for
// the steps that are left by then.
func (c *Client) Action(change plan.Change, steps []Step, remaining Remaining) plan.Stage {
	return c.api.Stage(change, c.bind(steps), c.remaining(remaining))
}

// Deletion is Action for a thing whose owner was read for this plan. See [cloud.API.Deletion].
func (c *Client) Deletion(change plan.Change, steps []Step, remaining Remaining) plan.Stage {
	return c.api.Deletion(change, c.bind(steps), c.remaining(remaining))
}

// Converge takes steps until none is left, and returns their lines.
func (c *Client) Converge(ctx context.Context, remaining Remaining) (lines []string, err error) {
	return c.api.Converge(ctx, c.remaining(remaining))
}

func (c *Client) remaining(f Remaining) cloud.Remaining {
	return func(ctx context.Context) ([]cloud.Step, error) {
		steps, err := f(ctx)
		return c.bind(steps), err
	}
}

// bind returns the steps with their calls made by c.
func (c *Client) bind(steps []Step) []cloud.Step {
	var out []cloud.Step
	for _, s := range steps {
		out = append(out, cloud.Step{Key: s.key, Diff: s.Diff, Line: s.line, Read: s.Read, Call: func(ctx context.Context) (cloud.Answer, error) {
			return s.answer(s.call(ctx, c))
		}})
	}
	return out
}

// Ask makes one call. Its time, with all retries, is bounded.
func Ask[In, Out any](ctx context.Context, c *Client, call func(context.Context, In, ...func(*iam.Options)) (*Out, error), in In) (*Out, error) {
	out, _, err := send(ctx, c, call, in)
	return out, err
}

// send is Ask, and reports whether more than one request was sent.
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
	return out, wait.Again(), Explain(err)
}

// callName finds the call in the name of the SDK's type for its input, or for its pages.
var callName = regexp.MustCompile(`^\*iam\.(.+)(?:Input|Paginator)$`)

// pager is what the SDK's paginators have in common.
type pager[Out any] interface {
	HasMorePages() bool
	NextPage(context.Context, ...func(*iam.Options)) (*Out, error)
}

// All lists the items of all pages.
func All[Out, T any](ctx context.Context, c *Client, p pager[Out], items func(*Out) []T) ([]T, error) {
	var list []T
	for p.HasMorePages() {
		page, err := Ask(ctx, c, func(ctx context.Context, p pager[Out], o ...func(*iam.Options)) (*Out, error) {
			return p.NextPage(ctx, o...)
		}, p)
		if err != nil {
			return nil, err
		}
		list = append(list, items(page)...)
	}
	return list, nil
}

// IsMissing reports whether IAM says that a thing is not there.
func IsMissing(err error) bool { return hasCode(err, "NoSuchEntity") }

func isExists(err error) bool { return hasCode(err, "EntityAlreadyExists") }

// IsDenied reports whether the caller may not make a call.
func IsDenied(err error) bool { return hasCode(err, "AccessDenied", "AccessDeniedException") }

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
