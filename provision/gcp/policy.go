package gcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/internal/rest"
	"github.com/keypost/keypost/provision/plan"
)

const policyThing = "IAM policy of project"

// userRole lets its members take the part of a service account (https://cloud.google.com/iam/docs/service-account-permissions).
const userRole = "roles/iam.workloadIdentityUser"

// principalLimit is how many members a policy may have, counted over all bindings (https://cloud.google.com/iam/quotas).
const principalLimit = 1500

// policyVersion is always asked for and written: with an older one Google hides conditions, and a write would drop them
// (https://cloud.google.com/iam/docs/policies#versions).
const policyVersion = 3

// policy is an allow policy. What else Google's has, a write leaves as it is: the default update mask is bindings and etag.
type policy struct {
	Version  int       `json:"version"`
	Etag     string    `json:"etag,omitempty"`
	Bindings []binding `json:"bindings"`
}

type binding struct {
	Role      string          `json:"role"`
	Members   []string        `json:"members"`
	Condition json.RawMessage `json:"condition,omitempty"`
}

// grants returns the roles of a member that depend on no condition, and those that do.
func (p policy) grants(member string) (plain, conditional []string) {
	for _, b := range p.Bindings {
		switch {
		case !slices.Contains(b.Members, member):
		case b.Condition != nil:
			conditional = append(conditional, b.Role)
		default:
			plain = append(plain, b.Role)
		}
	}
	return plain, conditional
}

// without returns p without the members of all bindings that drop picks, and a line for each.
func (p policy) without(drop func(b binding, member string) bool) (policy, []string) {
	var diff []string
	out := policy{Version: policyVersion, Etag: p.Etag, Bindings: []binding{}}
	for _, b := range p.Bindings {
		members := []string{}
		for _, m := range b.Members {
			if !drop(b, m) {
				members = append(members, m)
				continue
			}
			diff = append(diff, "- "+grant(b, m))
		}
		if b.Members = members; len(members) > 0 {
			out.Bindings = append(out.Bindings, b)
		}
	}
	return out, diff
}

func grant(b binding, member string) string {
	if b.Condition != nil {
		return fmt.Sprintf("%s for %s, on a condition", b.Role, member)
	}
	return fmt.Sprintf("%s for %s", b.Role, member)
}

// with returns p with a member in a role, on no condition, and a line if that is new.
func (p policy) with(role, member string) (policy, []string) {
	if plain, _ := p.grants(member); slices.Contains(plain, role) {
		return p, nil
	}
	p.Version, p.Bindings = policyVersion, slices.Clone(p.Bindings)
	diff := []string{fmt.Sprintf("+ %s for %s", role, member)}
	for i, b := range p.Bindings {
		if b.Role == role && b.Condition == nil {
			p.Bindings[i].Members = append(slices.Clone(b.Members), member)
			return p, diff
		}
	}
	p.Bindings = append(p.Bindings, binding{Role: role, Members: []string{member}})
	return p, diff
}

func (p policy) size() int {
	n := 0
	for _, b := range p.Bindings {
		n += len(b.Members)
	}
	return n
}

// others returns the members of a role but those that are known, conditional ones too.
func (p policy) others(role string, known []string) []string {
	var out []string
	for _, b := range p.Bindings {
		if b.Role == role {
			out = append(out, minus(b.Members, known)...)
		}
	}
	return out
}

// member is how a policy names a service account.
func member(email string) string { return "serviceAccount:" + email }

// remains reports whether a member is what Google leaves of a deleted account with one of these emails.
func remains(m string, emails []string) bool {
	name, is := strings.CutPrefix(m, "deleted:serviceAccount:")
	email, _, _ := strings.Cut(name, "?")
	return is && slices.Contains(emails, email)
}

// holdings says which roles in the project some accounts should have.
type holdings struct {
	roles map[string][]string // by email
	exact bool                // and no others, but those that depend on conditions
	gone  []string            // emails of accounts that are to have none at all
}

// apply returns p as it should be, and what differs.
func (h holdings) apply(p policy) (policy, []string) {
	emails := slices.Sorted(maps.Keys(h.roles))
	known := slices.Concat(emails, h.gone)
	p, diff := p.without(func(b binding, m string) bool {
		email := strings.TrimPrefix(m, "serviceAccount:")
		if remains(m, known) || slices.Contains(h.gone, email) && m == member(email) {
			return true
		}
		roles, ours := h.roles[email]
		return ours && m == member(email) && h.exact && b.Condition == nil && !slices.Contains(roles, b.Role)
	})
	for _, email := range emails {
		for _, role := range h.roles[email] {
			var more []string
			p, more = p.with(role, member(email))
			diff = append(diff, more...)
		}
	}
	return p, diff
}

func projectPolicyCall(p Project, verb, needs string) rest.Call {
	return rest.Call{Service: rest.ResourceManager, Name: "Project:" + verb, Needs: "resourcemanager.projects." + needs, Method: "POST", Path: "projects/" + p.ID + ":" + verb}
}

func accountPolicyCall(p Project, email, verb string) rest.Call {
	return rest.Call{Service: rest.IAM, Name: "ServiceAccount:" + verb, Needs: "iam.serviceAccounts." + verb, Method: "POST",
		Path: "projects/" + p.ID + "/serviceAccounts/" + email + ":" + verb}
}

func (c *Client) readProjectPolicy(ctx context.Context, p Project) (policy, error) {
	var out policy
	k := projectPolicyCall(p, "getIamPolicy", "getIamPolicy")
	k.Body = map[string]any{"options": map[string]int{"requestedPolicyVersion": policyVersion}}
	if err := c.rest.Ask(ctx, k, &out); err != nil {
		return policy{}, err
	}
	return out, out.whole("project " + p.ID)
}

// whole returns an error for what is no policy of Google's, which always has an etag, also where it binds nobody. To write what was made
// from it would replace all that is there, whoever wrote it: without an etag Google compares nothing
// (https://cloud.google.com/iam/docs/reference/rest/v1/Policy).
func (p policy) whole(of string) error {
	if p.Etag == "" {
		return fmt.Errorf("the answer for the IAM policy of %s has no etag, so it is not Google's, and nothing is written: see what is between here and Google", of)
	}
	return nil
}

// readAccountPolicy returns nil for that of an account that is not there.
func (c *Client) readAccountPolicy(ctx context.Context, p Project, email string) (*policy, error) {
	k := accountPolicyCall(p, email, "getIamPolicy")
	k.Query = rest.Query("options.requestedPolicyVersion", fmt.Sprint(policyVersion))
	have, err := present[policy](ctx, c, k)
	if err == nil && have != nil {
		err = have.whole("service account " + email)
	}
	return have, err
}

// set returns the call that writes a policy.
func (p policy) set(k rest.Call) rest.Call {
	p.Version = policyVersion
	k.Body = map[string]policy{"policy": p}
	return k
}

// planProjectPolicy plans the one write of the project's policy.
func (c *Client) planProjectPolicy(p Project, h holdings, have policy) (plan.Stage, error) {
	steps, err := c.projectPolicySteps(p, h, have)
	if err != nil {
		return nil, err
	}
	return c.rest.API.Stage(plan.Change{Verb: plan.Update, Thing: policyThing, Name: p.ID}, steps, func(ctx context.Context) ([]cloud.Step, error) {
		have, err := c.readProjectPolicy(ctx, p)
		if err != nil {
			return nil, err
		}
		return c.projectPolicySteps(p, h, have)
	}), nil
}

func (c *Client) projectPolicySteps(p Project, h holdings, have policy) ([]cloud.Step, error) {
	want, diff := h.apply(have)
	if len(diff) == 0 {
		return nil, nil
	}
	if n := want.size(); n > principalLimit && n > have.size() {
		return nil, fmt.Errorf("the policy of project %s would have %d members: Google allows %d", p.ID, n, principalLimit)
	}
	k := want.set(projectPolicyCall(p, "setIamPolicy", "setIamPolicy"))
	return []cloud.Step{c.rest.Step(k, "Updated the IAM policy of project "+p.ID+": "+text.Count(len(diff), "binding", "bindings"), diff...)}, nil
}

// impersonators returns the policy of an account with exactly these subjects of a pool in it. Members of other pools stay, and
// those of other kinds.
func impersonators(p Project, pool string, subjects []string, have policy) (want policy, diff, lost []string) {
	var wanted []string
	for _, s := range subjects {
		wanted = append(wanted, p.Principal(pool, s))
	}
	want, diff = have.without(func(b binding, m string) bool {
		subject, ours := strings.CutPrefix(m, p.subjects(pool))
		if !ours { // a set of subjects, such as all of the pool
			subject, ours = strings.CutPrefix(m, "principalSet://iam.googleapis.com/"+p.PoolName(pool)+"/")
		}
		if ours = ours && b.Role == userRole && b.Condition == nil && !slices.Contains(wanted, m); ours {
			lost = append(lost, subject)
		}
		return ours
	})
	for _, m := range wanted {
		var more []string
		want, more = want.with(userRole, m)
		diff = append(diff, more...)
	}
	return want, diff, lost
}

// tokenRole lets its members make tokens of a service account, without a pool (https://cloud.google.com/iam/docs/service-account-permissions).
const tokenRole = "roles/iam.serviceAccountTokenCreator" //nolint:gosec // a role's name, no credential

// strangers returns who else may take an account's part by its policy than these subjects of a pool and those of other pools, a
// grant each. The project's policy may let in more.
func strangers(p Project, pool string, subjects []string, have policy) (grants []string) {
	for _, b := range have.Bindings {
		for _, m := range b.Members {
			subject, ours := strings.CutPrefix(m, p.subjects(pool))
			_, of, federated := strings.Cut(m, "://iam.googleapis.com/")
			elsewhere := federated && !strings.HasPrefix(of, p.PoolName(pool)+"/")
			known := ours && b.Role == userRole && slices.Contains(subjects, subject)
			if (b.Role == userRole || b.Role == tokenRole) && !known && !elsewhere && !strings.HasPrefix(m, "deleted:") {
				grants = append(grants, grant(b, m))
			}
		}
	}
	return grants
}

// pools returns the names of the pools whose subjects may impersonate an account by its policy.
func (p policy) pools() []string {
	var out []string
	for _, b := range p.Bindings {
		for _, m := range b.Members {
			if _, rest, found := strings.Cut(m, "://iam.googleapis.com/"); found {
				const parts = 6 // projects/NUMBER/locations/global/workloadIdentityPools/POOL; a subject, a group, an attribute or * follows
				name := strings.Split(rest, "/")
				out = append(out, strings.Join(name[:min(len(name), parts)], "/"))
			}
		}
	}
	return out
}
