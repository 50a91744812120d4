package iam

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/plan"
)

const roleThing = "IAM custom role"

// roleState is a custom role as IAM shows it.
type roleState struct {
	Name        string   `json:"name"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Permissions []string `json:"includedPermissions"`
	Stage       string   `json:"stage"`
	Etag        string   `json:"etag"`
	Deleted     bool     `json:"deleted"`
}

// customRole is a role of the project as it should be. All clusters of the project share it.
type customRole struct {
	name        string // projects/PROJECT/roles/ID
	title       string
	description string // of a new one
	permissions []string
	adopt       bool     // as in Accounts
	prune       bool     // permissions that nobody asked for are taken away, unless others have the role
	member      string   // the account that is to have it, as policies name it
	others      []string // members of the project's policy that have it beside the account
}

// RoleID returns the ID of the custom role of an account in a project, as ccoctl makes it.
func (w Account) RoleID(projectID string) string {
	plain := func(s string, limit int) string {
		return rest.Cut(regexp.MustCompile(`[^a-zA-Z0-9]`).ReplaceAllString(s, ""), limit)
	}
	return plain(projectID, 32) + "_" + plain(w.Name, 31)
}

func roleName(projectID string, w Account) string {
	return "projects/" + projectID + "/roles/" + w.RoleID(projectID)
}

// role returns the custom role of an account as it should be.
func (a Accounts) role(projectID string, w Account) customRole {
	return customRole{name: roleName(projectID, w), title: roleTitle(projectID, w.Name), description: ccoctlText(a.DisplayName(w)),
		permissions: slices.Sorted(slices.Values(w.Permissions)), adopt: a.Adopt, prune: a.Prune}
}

// roleTitle returns the title by which ccoctl finds that role.
func roleTitle(projectID, request string) string {
	return rest.Cut(projectID, 50) + "-" + rest.Cut(request, 49)
}

func roleCall(name, method, verb string) rest.Call {
	return rest.Call{Service: rest.IAM, Name: method, Needs: "iam.roles." + verb, Path: name}
}

// readRoles reads those of these roles that are there, by name. Deleted ones are shown as such.
func (c *Client) readRoles(ctx context.Context, names []string) (map[string]*roleState, error) {
	read, err := cloud.Each(rest.Parallel, names, func(name string) (*roleState, error) { return c.readRole(ctx, name) })
	if err != nil {
		return nil, err
	}
	all := map[string]*roleState{}
	for i, name := range names {
		all[name] = read[i]
	}
	return all, nil
}

// readRole returns nil for a role that is not there.
func (c *Client) readRole(ctx context.Context, name string) (*roleState, error) {
	return rest.Present[roleState](ctx, c.Rest, roleCall(name, "GetRole", "get"))
}

// planRole plans the way from have to r: first what the role gains, and last what it loses. The members of the role are read again before
// that: another cluster of the project may have begun to use it, while this run waited for its own accounts to show.
func (c *Client) planRole(p federation.Project, r customRole, have *roleState) (grow plan.Plan, shrink plan.Stage, err error) {
	read := func(ctx context.Context) (*roleState, error) { return c.readRole(ctx, r.name) }
	grow, err = cloud.Thing[*roleState]{
		Kind: roleThing, Name: r.name, Found: fmt.Sprintf("Existing IAM custom role %s found", r.title), Missing: have == nil, Deleted: have != nil && have.Deleted,
		Read: read, Decide: func(have *roleState) (cloud.Decision, error) { return c.growRole(r, have) },
	}.Plan(c.Rest.API, have)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	if !r.prune || len(r.others) > 0 {
		return grow, nil, nil
	}
	shrink = c.Rest.API.Stage(plan.Change{Verb: plan.Update, Thing: roleThing, Name: r.name}, c.shrinkSteps(r, have),
		func(ctx context.Context) ([]cloud.Step, error) {
			have, err := read(ctx)
			if err != nil {
				return nil, err
			}
			steps := c.shrinkSteps(r, have)
			if len(steps) == 0 {
				return nil, nil
			}
			now, err := c.readProjectPolicy(ctx, p)
			if err != nil {
				return nil, err
			}
			if others := living(holders(now, r.name, []string{r.member})); len(others) > 0 {
				return nil, fmt.Errorf("%s has it by now; make the plan again", text.List(others, 3))
			}
			return steps, nil
		})
	return grow, shrink, nil
}

// note tells of permissions that stay though nobody asked for them.
func (r customRole) note(have *roleState, d *cloud.Decision) {
	surplus := rest.Minus(have.Permissions, r.permissions)
	switch {
	case len(surplus) == 0:
	case len(r.others) > 0:
		d.Notes = append(d.Notes, fmt.Sprintf("role %s keeps %s that nobody asked for here: %s has it too", r.title,
			text.Count(len(surplus), "permission", "permissions"), text.List(r.others, 3)))
	case !r.prune:
		for _, s := range surplus {
			d.Extra = append(d.Extra, fmt.Sprintf("role %s has the permission %s, which nobody asked for; --prune takes it away", r.title, s))
		}
	}
}

// growRole returns the steps after which the role has all that is asked for.
func (c *Client) growRole(r customRole, have *roleState) (d cloud.Decision, err error) {
	if have == nil {
		parent, id, _ := strings.Cut(r.name, "/roles/")
		k := roleCall(parent+"/roles", "CreateRole", "create")
		k.Method, k.Body = "POST", r.body(id)
		d.Steps = append(d.Steps, c.Rest.Step(k, fmt.Sprintf("IAM custom role %s created", r.title), rest.Lines("", nil, "+ permission ", r.permissions)...))
		return d, nil
	}
	r.note(have, &d)
	set := rest.Patch{}
	if have.Title != r.title {
		if !r.adopt { // its ID is cut and has no punctuation: openshiftingress-gcp would get what openshift-ingress-gcp may do
			return d, rest.Problemf(rest.NotOwned, "%s %s is somebody else's: its title is %q, and this one's would be %q, which comes to the same ID", roleThing, r.name, have.Title, r.title)
		}
		set.Add("title", r.title, rest.Replaced("title ", have.Title, r.title)...)
	}
	if !strings.HasPrefix(have.Description, federation.Made) {
		if !r.adopt {
			return d, federation.Owner{}.NotOwned(roleThing, r.name, have.Description)
		}
		text := federation.Owner{}.Describe(have.Description)
		set.Add("description", text, rest.Replaced("description ", have.Description, text)...)
	}
	if have.Deleted {
		k := roleCall(r.name, "UndeleteRole", "undelete")
		k.Method, k.Path, k.Body = "POST", k.Path+":undelete", map[string]string{"etag": have.Etag}
		d.Steps = append(d.Steps, c.Rest.Step(k, fmt.Sprintf("IAM custom role %s was deleted, undeleting it", r.title), rest.Undeleted))
	}
	if have.Stage == "DISABLED" { // such a role gives nobody anything
		set.Add("stage", "GA", "- stage DISABLED", "+ stage GA")
	}
	if missing := rest.Minus(r.permissions, have.Permissions); len(missing) > 0 {
		set.Add("includedPermissions", slices.Concat(have.Permissions, missing), rest.Lines("", nil, "+ permission ", missing)...)
	}
	if len(set.Mask) > 0 {
		if !have.Deleted { // the undeletion changes it
			set.Body["etag"] = have.Etag
		}
		d.Steps = append(d.Steps, c.Rest.Step(set.Call(roleCall(r.name, "UpdateRole", "update")),
			fmt.Sprintf("Existing IAM custom role %s found, updating permissions", r.title), set.Diff...))
	}
	return d, nil
}

// shrinkSteps returns the step after which the role has nothing but what is asked for. One that is deleted is back by then, with all that
// it had.
func (c *Client) shrinkSteps(r customRole, have *roleState) []cloud.Step {
	if have == nil {
		return nil
	}
	surplus := rest.Minus(have.Permissions, r.permissions)
	if len(surplus) == 0 {
		return nil
	}
	set := rest.Patch{}
	set.Add("includedPermissions", rest.Minus(have.Permissions, surplus), rest.Lines("- permission ", surplus, "", nil)...)
	set.Body["etag"] = have.Etag
	return []cloud.Step{c.Rest.Step(set.Call(roleCall(r.name, "UpdateRole", "update")),
		fmt.Sprintf("IAM custom role %s lost what nobody asked for", r.title), set.Diff...)}
}

func (r customRole) body(id string) map[string]any {
	return map[string]any{"roleId": id, "role": map[string]any{"title": r.title, "description": r.description, "stage": "GA",
		"includedPermissions": r.permissions}}
}
