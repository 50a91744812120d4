package awsiam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"
)

// step is one call that writes: a pointer to the SDK's input for it, what it changes, and the line that says that it was
// made.
type step struct {
	in   any
	diff []string
	line string
}

func (s step) key() string { return fmt.Sprintf("%T %s", s.in, asJSON(s.in)) }

// next reads what is there and says which steps lead to what is wanted: none if it is as it should be.
type next func(ctx context.Context) ([]step, error)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// converge takes steps until none is left, and reads back after the last: IAM shows a write seconds after it was
// accepted, and the reply to a write may be lost. No step that was accepted is taken twice. Where a write meets
// something that the reading did not show (it exists, it does not exist yet, it is being changed), it reads again.
//
// It returns the lines of the steps that took effect, also beside an error.
func (c *Client) converge(ctx context.Context, n next) (said []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.settle+callTime)
	defer cancel()
	wait := c.await("the change to show")
	defer wait.stop()
	start, pause := time.Now(), firstPause
	t := taking{outcomes: map[string]outcome{}}
	for {
		steps, err := n(ctx)
		if err == nil && len(steps) == 0 {
			return append(t.said, t.met...), nil
		}
		if err != nil {
			return t.said, err
		}
		before := len(t.outcomes)
		unsettled, err := c.take(ctx, steps, &t)
		if err != nil {
			return t.said, err
		}
		if len(t.outcomes) > before && unsettled == nil {
			continue // mostly it shows at once
		}
		if time.Since(start) > c.settle {
			return t.said, c.unsettled(unsettled)
		}
		wait.because(unsettled)
		if err := sleep(ctx, pause); err != nil {
			return t.said, err
		}
		pause = min(2*pause, lastPause)
	}
}

// taking is what became of the steps so far.
type taking struct {
	outcomes map[string]outcome
	said     []string // lines of the steps that were accepted
	met      []string // lines of those that found their work done: perhaps by their own call, whose reply was lost
}

func (c *Client) unsettled(err error) error {
	if err != nil {
		return fmt.Errorf("IAM is not ready for the change after %s: %w", c.settle, err)
	}
	return fmt.Errorf("IAM accepted the change and does not show it after %s, or somebody else changes it too: run it again", c.settle)
}

// outcome is what became of a step.
type outcome int

const (
	accepted outcome = iota + 1 // the change is made, whether or not it shows yet
	met                         // what was to be made is there already: whose it is has to be read before anything else is done
)

// take takes the steps in order. The first error that reading again may solve ends the round.
func (c *Client) take(ctx context.Context, steps []step, t *taking) (unsettled, err error) {
	for _, s := range steps {
		k := s.key()
		switch t.outcomes[k] {
		case accepted:
			continue
		case met:
			return nil, nil
		}
		err := c.send(ctx, s.in)
		switch {
		case err == nil || isDelete(s.in) && isMissing(err):
			t.outcomes[k] = accepted
			t.said = append(t.said, s.line)
		case isExists(err):
			t.outcomes[k] = met
			t.met = append(t.met, s.line)
			return nil, nil
		case inProfile(err):
			return nil, fmt.Errorf("%w: take the role out of its instance profile first "+
				"(aws iam remove-role-from-instance-profile)", err)
		case isMissing(err) && !namesMissing(s.in, err) || isConflict(err):
			return err, nil
		default:
			return nil, err
		}
	}
	return nil, nil
}

// namesMissing reports whether the thing that is missing is another than the one to be changed: a policy that was asked
// for by its ARN will not appear by waiting.
func namesMissing(in any, err error) bool {
	var arn *string
	switch in := in.(type) {
	case *iam.CreateRoleInput:
		arn = in.PermissionsBoundary
	case *iam.PutRolePermissionsBoundaryInput:
		arn = in.PermissionsBoundary
	case *iam.AttachRolePolicyInput:
		arn = in.PolicyArn
	}
	return arn != nil && strings.Contains(err.Error(), *arn)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send makes the call that an input is for.
func (c *Client) send(ctx context.Context, in any) error {
	switch in := in.(type) {
	case *iam.CreateOpenIDConnectProviderInput:
		return invoke(ctx, c, c.iam.CreateOpenIDConnectProvider, in)
	case *iam.AddClientIDToOpenIDConnectProviderInput:
		return invoke(ctx, c, c.iam.AddClientIDToOpenIDConnectProvider, in)
	case *iam.RemoveClientIDFromOpenIDConnectProviderInput:
		return invoke(ctx, c, c.iam.RemoveClientIDFromOpenIDConnectProvider, in)
	case *iam.UpdateOpenIDConnectProviderThumbprintInput:
		return invoke(ctx, c, c.iam.UpdateOpenIDConnectProviderThumbprint, in)
	case *iam.TagOpenIDConnectProviderInput:
		return invoke(ctx, c, c.iam.TagOpenIDConnectProvider, in)
	case *iam.UntagOpenIDConnectProviderInput:
		return invoke(ctx, c, c.iam.UntagOpenIDConnectProvider, in)
	case *iam.DeleteOpenIDConnectProviderInput:
		return invoke(ctx, c, c.iam.DeleteOpenIDConnectProvider, in)
	case *iam.CreateRoleInput:
		return invoke(ctx, c, c.iam.CreateRole, in)
	}
	return c.sendToRole(ctx, in)
}

func (c *Client) sendToRole(ctx context.Context, in any) error {
	switch in := in.(type) {
	case *iam.TagRoleInput:
		return invoke(ctx, c, c.iam.TagRole, in)
	case *iam.UpdateRoleInput:
		return invoke(ctx, c, c.iam.UpdateRole, in)
	case *iam.UpdateAssumeRolePolicyInput:
		return invoke(ctx, c, c.iam.UpdateAssumeRolePolicy, in)
	case *iam.PutRolePermissionsBoundaryInput:
		return invoke(ctx, c, c.iam.PutRolePermissionsBoundary, in)
	case *iam.PutRolePolicyInput:
		return invoke(ctx, c, c.iam.PutRolePolicy, in)
	case *iam.DeleteRolePolicyInput:
		return invoke(ctx, c, c.iam.DeleteRolePolicy, in)
	case *iam.AttachRolePolicyInput:
		return invoke(ctx, c, c.iam.AttachRolePolicy, in)
	case *iam.DetachRolePolicyInput:
		return invoke(ctx, c, c.iam.DetachRolePolicy, in)
	case *iam.DeleteRoleInput:
		return invoke(ctx, c, c.iam.DeleteRole, in)
	}
	return fmt.Errorf("no call takes a %T", in)
}

func isDelete(in any) bool {
	switch in.(type) {
	case *iam.DeleteOpenIDConnectProviderInput, *iam.DeleteRoleInput, *iam.DeleteRolePolicyInput, *iam.DetachRolePolicyInput:
		return true
	}
	return false
}

func invoke[In, Out any](ctx context.Context, c *Client, call func(context.Context, *In, ...func(*iam.Options)) (*Out, error), in *In) error {
	_, err := ask(ctx, c, call, in)
	return err
}

// ask makes one call, bounded in time with all its retries.
func ask[In, Out any](ctx context.Context, c *Client, call func(context.Context, *In, ...func(*iam.Options)) (*Out, error), in *In) (*Out, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	wait := c.await("iam:" + strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", in), "*iam."), "Input"))
	defer wait.stop()
	out, err := call(ctx, in, func(o *iam.Options) { o.Retryer = wait.watch(o.Retryer) })
	return out, explain(err)
}

func isMissing(err error) bool { return hasCode(err, "NoSuchEntity") }

func isExists(err error) bool { return hasCode(err, "EntityAlreadyExists") }

func isDenied(err error) bool { return hasCode(err, "AccessDenied", "AccessDeniedException") }

// inProfile reports whether IAM does not delete a role because an instance profile has it. Waiting does not help.
func inProfile(err error) bool {
	return hasCode(err, "DeleteConflict") && strings.Contains(err.Error(), "instance profile")
}

// isConflict recognises the errors that IAM gives while it is still busy with an earlier change, perhaps our own.
func isConflict(err error) bool {
	return hasCode(err, "ConcurrentModification", "DeleteConflict", "EntityTemporarilyUnmodifiable")
}

// hasCode goes by the code: the SDK has a type for it only at those calls whose documentation mentions it.
func hasCode(err error, codes ...string) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && slices.Contains(codes, api.ErrorCode())
}

// each calls f for every one of list, Parallel at once, and joins the errors.
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
