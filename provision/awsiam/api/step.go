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
)

// NewStep returns the step that makes a call with in.
func NewStep[In, Out any](c *Client, call func(context.Context, *In, ...func(*iam.Options)) (*Out, error), in *In, line string, diff ...string) cloud.Step {
	text, _ := json.Marshal(in) // strings, lists and maps, which always marshal
	return cloud.Step{Key: fmt.Sprintf("%T %s", in, text), Diff: diff, Line: line, Call: func(ctx context.Context) (cloud.Answer, error) {
		_, again, err := send(ctx, c, call, in)
		return answer(again, err)
	}}
}

// NewDelete is NewStep for a call that deletes: what is not there is deleted.
func NewDelete[In, Out any](c *Client, call func(context.Context, *In, ...func(*iam.Options)) (*Out, error), in *In, line string, diff ...string) cloud.Step {
	return instead(NewStep(c, call, in, line, diff...), func(a cloud.Answer, err error) (cloud.Answer, error) {
		if IsMissing(err) {
			return cloud.Accepted, nil
		}
		return a, err
	})
}

// Needing returns a step that refers to the policy with an ARN: waiting does not make a missing one appear.
func Needing(s cloud.Step, arn string) cloud.Step {
	return instead(s, func(a cloud.Answer, err error) (cloud.Answer, error) {
		if IsMissing(err) && arn != "" && strings.Contains(err.Error(), arn) {
			return cloud.Refused, fmt.Errorf("%w: correct the ARN %s, and run the same command again", err, arn)
		}
		return a, err
	})
}

// instead returns a step whose answer means something else.
func instead(s cloud.Step, means func(cloud.Answer, error) (cloud.Answer, error)) cloud.Step {
	call := s.Call
	s.Call = func(ctx context.Context) (cloud.Answer, error) { return means(call(ctx)) }
	return s
}

// answer returns what a call that writes has come to.
func answer(again bool, err error) (cloud.Answer, error) {
	switch {
	case err == nil:
		return cloud.Accepted, nil
	case isExists(err) && again:
		return cloud.Perhaps, err
	case isExists(err):
		return cloud.Exists, err
	case inProfile(err):
		return cloud.Refused, fmt.Errorf("%w: take the role out of its instance profile first "+
			"(aws iam remove-role-from-instance-profile)", err)
	case IsMissing(err), isConflict(err):
		return cloud.NotYet, err
	}
	return cloud.Refused, err
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
	wait := c.API.Await("iam:" + callName.FindStringSubmatch(fmt.Sprintf("%T", in))[1])
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
