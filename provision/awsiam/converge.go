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

// step is one call that writes: a pointer to the SDK's input for it, and what there is to say about it.
type step struct {
	in   any
	diff []string
	done []string
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
func (c *Client) converge(ctx context.Context, n next) error {
	ctx, cancel := context.WithTimeout(ctx, c.settle+callTime)
	defer cancel()
	start, pause := time.Now(), firstPause
	taken := map[string]outcome{}
	for {
		steps, err := n(ctx)
		if err != nil || len(steps) == 0 {
			return err
		}
		before := len(taken)
		unsettled, err := c.take(ctx, steps, taken)
		if err != nil {
			return err
		}
		if len(taken) > before && unsettled == nil {
			continue // mostly it shows at once
		}
		if time.Since(start) > c.settle {
			return c.unsettled(unsettled)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, lastPause)
	}
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
func (c *Client) take(ctx context.Context, steps []step, taken map[string]outcome) (unsettled, err error) {
	for _, s := range steps {
		k := s.key()
		switch taken[k] {
		case accepted:
			continue
		case met:
			return nil, nil
		}
		err := c.send(ctx, s.in)
		switch {
		case err == nil || isDelete(s.in) && isMissing(err):
			taken[k] = accepted
		case isExists(err):
			taken[k] = met
			return nil, nil
		case isMissing(err) && !namesMissing(s.in, err) || isConflict(err):
			return err, nil
		default:
			return nil, err
		}
	}
	return nil, nil
}

// namesMissing tells whether the thing that is missing is another than the one to be changed: a policy that was asked
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
		return invoke(ctx, c.iam.CreateOpenIDConnectProvider, in)
	case *iam.AddClientIDToOpenIDConnectProviderInput:
		return invoke(ctx, c.iam.AddClientIDToOpenIDConnectProvider, in)
	case *iam.RemoveClientIDFromOpenIDConnectProviderInput:
		return invoke(ctx, c.iam.RemoveClientIDFromOpenIDConnectProvider, in)
	case *iam.UpdateOpenIDConnectProviderThumbprintInput:
		return invoke(ctx, c.iam.UpdateOpenIDConnectProviderThumbprint, in)
	case *iam.TagOpenIDConnectProviderInput:
		return invoke(ctx, c.iam.TagOpenIDConnectProvider, in)
	case *iam.UntagOpenIDConnectProviderInput:
		return invoke(ctx, c.iam.UntagOpenIDConnectProvider, in)
	case *iam.DeleteOpenIDConnectProviderInput:
		return invoke(ctx, c.iam.DeleteOpenIDConnectProvider, in)
	case *iam.CreateRoleInput:
		return invoke(ctx, c.iam.CreateRole, in)
	}
	return c.sendToRole(ctx, in)
}

func (c *Client) sendToRole(ctx context.Context, in any) error {
	switch in := in.(type) {
	case *iam.TagRoleInput:
		return invoke(ctx, c.iam.TagRole, in)
	case *iam.UpdateRoleInput:
		return invoke(ctx, c.iam.UpdateRole, in)
	case *iam.UpdateAssumeRolePolicyInput:
		return invoke(ctx, c.iam.UpdateAssumeRolePolicy, in)
	case *iam.PutRolePermissionsBoundaryInput:
		return invoke(ctx, c.iam.PutRolePermissionsBoundary, in)
	case *iam.PutRolePolicyInput:
		return invoke(ctx, c.iam.PutRolePolicy, in)
	case *iam.DeleteRolePolicyInput:
		return invoke(ctx, c.iam.DeleteRolePolicy, in)
	case *iam.AttachRolePolicyInput:
		return invoke(ctx, c.iam.AttachRolePolicy, in)
	case *iam.DetachRolePolicyInput:
		return invoke(ctx, c.iam.DetachRolePolicy, in)
	case *iam.DeleteRoleInput:
		return invoke(ctx, c.iam.DeleteRole, in)
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

func invoke[In, Out any](ctx context.Context, call func(context.Context, *In, ...func(*iam.Options)) (*Out, error), in *In) error {
	_, err := ask(ctx, call, in)
	return err
}

// ask makes one call, bounded in time with all its retries.
func ask[In, Out any](ctx context.Context, call func(context.Context, *In, ...func(*iam.Options)) (*Out, error), in *In) (*Out, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	out, err := call(ctx, in)
	return out, explain(err)
}

func isMissing(err error) bool { return hasCode(err, "NoSuchEntity") }

func isExists(err error) bool { return hasCode(err, "EntityAlreadyExists") }

func isDenied(err error) bool { return hasCode(err, "AccessDenied", "AccessDeniedException") }

// isConflict tells errors that IAM gives while it is still busy with an earlier change, perhaps our own.
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
