package awsiam

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"
)

// step is one call that writes: a pointer to the SDK's input for it, and what there is to say about it.
type step struct {
	in   any
	diff []string
	done []string
}

func (s step) key() string { return fmt.Sprintf("%T %s", s.in, mustJSON(s.in)) }

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
		unsettled, err := c.take(ctx, steps, taken)
		if err != nil {
			return err
		}
		if time.Since(start) > c.settle {
			return fmt.Errorf("IAM does not show the change after %s: %w", c.settle, errors.Join(unsettled, waitingFor(steps)))
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// outcome is what became of a step.
type outcome int

const (
	untaken  outcome = iota
	accepted         // the change is made, whether or not it shows yet
	met              // what was to be made is there already: whose it is has to be read before anything else is done
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
			return err, nil
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

func waitingFor(steps []step) error {
	return fmt.Errorf("still to come: %T", steps[0].in)
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

func isMissing(err error) bool {
	_, ok := errors.AsType[*types.NoSuchEntityException](err)
	return ok
}

func isExists(err error) bool {
	_, ok := errors.AsType[*types.EntityAlreadyExistsException](err)
	return ok
}

// isConflict tells errors that IAM gives while it is still busy with an earlier change, perhaps our own.
func isConflict(err error) bool {
	_, busy := errors.AsType[*types.ConcurrentModificationException](err)
	_, used := errors.AsType[*types.DeleteConflictException](err)
	_, locked := errors.AsType[*types.EntityTemporarilyUnmodifiableException](err)
	return busy || used || locked
}

func isDenied(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && strings.HasPrefix(api.ErrorCode(), "AccessDenied")
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
