package iam

import (
	"cmp"
	"context"
	"fmt"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/internal/allow"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/plan"
)

const policyThing = "IAM policy of project"

func projectPolicyCall(p federation.Project, verb, needs string) rest.Call {
	return rest.Call{Service: rest.ResourceManager, Name: "Project:" + verb, Needs: "resourcemanager.projects." + needs, Method: "POST",
		Path: "projects/" + p.ID + ":" + verb}
}

func accountPolicyCall(p federation.Project, email, verb string) rest.Call {
	return rest.Call{Service: rest.IAM, Name: "ServiceAccount:" + verb, Needs: "iam.serviceAccounts." + verb, Method: "POST",
		Path: "projects/" + p.ID + "/serviceAccounts/" + email + ":" + verb}
}

func (c *Client) readProjectPolicy(ctx context.Context, p federation.Project) (allow.Policy, error) {
	var out allow.Policy
	k := projectPolicyCall(p, "getIamPolicy", "getIamPolicy")
	k.Body = map[string]any{"options": map[string]int{"requestedPolicyVersion": allow.Version}}
	err := c.Rest.Ask(ctx, k, &out)
	return out, cmp.Or(err, mayReplace(out, "project "+p.ID))
}

// mayReplace returns an error for a policy without an etag: Google would compare nothing, and the write would take every grant of others away.
func mayReplace(p allow.Policy, of string) error {
	if p.Etag == "" {
		return fmt.Errorf("the IAM policy of %s came without an etag, so it is not changed", of)
	}
	return nil
}

// readAccountPolicy returns nil for that of an account that is not there.
func (c *Client) readAccountPolicy(ctx context.Context, p federation.Project, email string) (*allow.Policy, error) {
	k := accountPolicyCall(p, email, "getIamPolicy")
	k.Query = rest.Query("options.requestedPolicyVersion", fmt.Sprint(allow.Version))
	have, err := rest.Present[allow.Policy](ctx, c.Rest, k)
	if err == nil && have != nil {
		err = mayReplace(*have, "service account "+email)
	}
	return have, err
}

// setPolicy returns the call that writes a policy.
func setPolicy(k rest.Call, p allow.Policy) rest.Call {
	p.Version = allow.Version
	k.Body = map[string]allow.Policy{"policy": p}
	return k
}

// planProjectPolicy plans the one write of the project's policy.
func (c *Client) planProjectPolicy(p federation.Project, h allow.Holdings, have allow.Policy) plan.Stage {
	steps := func(have allow.Policy) []cloud.Step {
		want, diff := h.Apply(have)
		if len(diff) == 0 {
			return nil
		}
		k := setPolicy(projectPolicyCall(p, "setIamPolicy", "setIamPolicy"), want)
		return []cloud.Step{c.Rest.Step(k, "Updated the IAM policy of project "+p.ID+": "+text.Count(len(diff), "binding", "bindings"), diff...)}
	}
	return c.Rest.API.Stage(plan.Change{Verb: plan.Update, Thing: policyThing, Name: p.ID}, steps(have), cloud.After(
		func(ctx context.Context) (allow.Policy, error) { return c.readProjectPolicy(ctx, p) },
		func(have allow.Policy) ([]cloud.Step, error) { return steps(have), nil }))
}

// holders returns the members that a policy gives a role to but those that are known, conditional ones too.
func holders(p allow.Policy, role string, known []string) []string {
	var out []string
	for _, b := range p.Bindings {
		if b.Role == role {
			out = append(out, rest.Minus(b.Members, known)...)
		}
	}
	return out
}
