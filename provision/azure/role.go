package azure

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/plan"
)

const roleThing = "custom role"

// roleState is a role as Azure shows it.
type roleState struct {
	id, guid, name, description string
	own                         string   // its name in the ID, as the answer has it beside
	scopes                      []string // where it may be assigned
	actions, dataActions        []string
	denied                      []string // what is taken out of these, which nobody asks for
}

// stateOfRole also remembers the role's name.
func (c *client) stateOfRole(d armauthorization.RoleDefinition) roleState {
	s := roleState{id: arm.Deref(d.ID), guid: last(arm.Deref(d.ID)), own: arm.Deref(d.Name)}
	if p := d.Properties; p != nil {
		s.name, s.description, s.scopes = arm.Deref(p.RoleName), arm.Deref(p.Description), arm.Values(p.AssignableScopes)
		for _, m := range p.Permissions {
			s.actions, s.dataActions = append(s.actions, arm.Values(m.Actions)...), append(s.dataActions, arm.Values(m.DataActions)...)
			s.denied = append(append(s.denied, arm.Values(m.NotActions)...), arm.Values(m.NotDataActions)...)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name[s.guid] = s.name
	return s
}

// roleDefinitions is what is between the scope and the GUID in the ID of a role.
const roleDefinitions = "/providers/Microsoft.Authorization/roleDefinitions/"

var managementGroupForm = regexp.MustCompile(`^(?i:/providers/Microsoft\.Management/managementGroups)/[A-Za-z0-9_().-]{1,90}$`)

// check returns an error for a role with an ID that is none of a role, or is another's than the answer says: what such an ID names would
// be assigned, rewritten or deleted, whatever that is. A role is known by its GUID in the whole tenant, and Azure puts before it the
// scope that was asked, one where it may be assigned, or none.
func (s roleState) check() error {
	at := len(s.id) - len(s.guid) - len(roleDefinitions)
	if at >= 0 && sameName(s.id[at:at+len(roleDefinitions)], roleDefinitions) && arm.IsGUID(s.guid) && sameName(s.guid, s.own) {
		if scope := s.id[:at]; scope == "" || isScope(folded(scope)) || managementGroupForm.MatchString(scope) && !strings.HasSuffix(scope, "/..") && !strings.HasSuffix(scope, "/.") {
			return nil
		}
	}
	return fmt.Errorf("the role %q has the ID %q in Azure's answer, which is none of a role with its name %q: see what is between here and Azure", s.name, s.id, s.own)
}

// readRoles returns the roles of the subscription that a filter names.
func (c *client) readRoles(ctx context.Context, filter string) ([]roleState, error) {
	options := &armauthorization.RoleDefinitionsClientListOptions{Filter: &filter}
	return arm.All(ctx, arm.PagesOf(c.Client, "Microsoft.Authorization/roleDefinitions/read",
		c.Definitions.NewListPager(c.scope(), options)), func(p armauthorization.RoleDefinitionsClientListResponse) []*armauthorization.RoleDefinition {
		return p.Value
	}, c.stateOfRole)
}

// nameRoles makes the names of the roles in a list of assignments known, for what is said of them. One that is gone has none.
func (c *client) nameRoles(ctx context.Context, list []assignmentState) error {
	for _, a := range list {
		if guid := last(a.role); c.roleName(a.role) == guid && arm.IsGUID(guid) {
			d, err := arm.Send(ctx, c.Client, "Microsoft.Authorization/roleDefinitions/read", func(ctx context.Context) (armauthorization.RoleDefinitionsClientGetResponse, error) {
				return c.Definitions.Get(ctx, c.scope(), guid, nil)
			})
			if err != nil && !arm.IsMissing(err) {
				return err
			}
			c.stateOfRole(d.RoleDefinition)
		}
	}
	return nil
}

// roleAPI is Azure for custom roles: the name of one that was deleted is free again after a minute, that of another
// subscription's never.
func (c *client) roleAPI() cloud.API {
	api := c.API
	api.Consistency = time.Minute
	return api
}

func (c *client) scope() string { return "/subscriptions/" + c.Subscription }

// customRoles is the filter for roles that Azure does not bring.
const customRoles = "type eq 'CustomRole'"

// findRole returns the role of a name, which is unique in the tenant whatever its letter case; nil if it is not there.
func findRole(roles []roleState, name string) (*roleState, error) {
	for _, r := range roles {
		if sameName(r.name, name) {
			return &r, r.check()
		}
	}
	return nil, nil
}

// readRole returns nil for a role that is not there.
func (c *client) readRole(ctx context.Context, name string) (*roleState, error) {
	roles, err := c.readRoles(ctx, "roleName eq '"+strings.ReplaceAll(name, "'", "''")+"'")
	if err != nil {
		return nil, err
	}
	return findRole(roles, name)
}

// findExisting finds a role that somebody else has made, mostly Azure.
func (c *client) findExisting(ctx context.Context, name string) error {
	found, err := c.readRole(ctx, name)
	switch {
	case err != nil:
		return err
	case found == nil:
		return fmt.Errorf("subscription %s knows no role %q: its name is asked for, and neither a display name in another language nor an ID", c.Subscription, name)
	}
	c.learnRole(name, found.id)
	return nil
}

// planRole plans the custom role of an identity.
func (c *client) planRole(h home, i identity, have *roleState) (plan.Plan, error) {
	if !i.custom() {
		return plan.Plan{}, nil
	}
	p, err := planThing(c.roleAPI(), thing[roleState]{roleThing, i.name,
		func(ctx context.Context) (*roleState, error) { return c.readRole(ctx, i.name) },
		func(have *roleState) ([]cloud.Step, error) { return c.roleSteps(h, i, have) }}, have)
	if have != nil {
		p.Notes = []string{fmt.Sprintf("Found existing customRole %s %s", i.name, have.id)}
		for _, a := range slices.Concat(minus(have.actions, i.actions), minus(have.dataActions, i.dataActions)) {
			if !h.prune {
				p.Extra = append(p.Extra, fmt.Sprintf("%s %s allows %s, which nobody asked for; --prune takes it away", roleThing, i.name, a))
			}
		}
	}
	return p, err
}

// roleSteps returns the steps from have to the custom role of i. A PUT replaces the whole role, which is written only if it
// allows something else.
func (c *client) roleSteps(h home, i identity, have *roleState) ([]cloud.Step, error) {
	want := roleState{guid: guid(c.scope(), "roleDefinitions", i.name), name: i.name, description: h.owner.description,
		scopes: []string{c.scope()}, actions: i.actions, dataActions: i.dataActions}
	want.id = c.scope() + roleDefinitions + want.guid
	if have == nil {
		c.learnRole(i.name, want.id)
		return []cloud.Step{c.putRole(want, fmt.Sprintf("Created customRole %s %s", i.name, want.id), roleDiff(roleState{}, want))}, nil
	}
	c.learnRole(i.name, have.id)
	if have.description != want.description && !h.adopt {
		return nil, problem(NotOwned, "%s %s has the description %q and not %q, so something else made it", roleThing, i.name, have.description, want.description)
	}
	want.id, want.guid, want.name = have.id, have.guid, have.name
	want.scopes = append(minus(have.scopes, want.scopes), want.scopes...)
	if !h.prune {
		want.actions, want.dataActions = distinct(slices.Concat(have.actions, i.actions)), distinct(slices.Concat(have.dataActions, i.dataActions))
	}
	diff := roleDiff(*have, want)
	if len(diff) == 0 {
		return nil, nil
	}
	return []cloud.Step{c.putRole(want, fmt.Sprintf("Updated customRole %s %s", i.name, want.id), diff)}, nil
}

// roleDiff returns what differs, a line each. Azure compares actions without their case.
func roleDiff(have, want roleState) []string {
	var diff []string
	list := func(what string, have, want []string) {
		for _, a := range minus(have, want) {
			diff = append(diff, "- "+what+" "+a)
		}
		for _, a := range minus(want, have) {
			diff = append(diff, "+ "+what+" "+a)
		}
	}
	list("action", have.actions, want.actions)
	list("data action", have.dataActions, want.dataActions)
	list("exception", have.denied, nil)
	list("assignable scope", have.scopes, want.scopes)
	if have.id != "" && have.description != want.description {
		diff = append(diff, "- description "+have.description, "+ description "+want.description)
	}
	return diff
}

func (c *client) putRole(r roleState, line string, diff []string) cloud.Step {
	kind := "CustomRole"
	in := armauthorization.RoleDefinition{Properties: &armauthorization.RoleDefinitionProperties{
		RoleName: &r.name, Description: &r.description, RoleType: &kind, AssignableScopes: addresses(r.scopes),
		Permissions: []*armauthorization.Permission{{Actions: addresses(r.actions), DataActions: addresses(r.dataActions)}},
	}}
	return cloud.Step{Key: "put " + r.guid, Line: line, Diff: diff, Call: func(ctx context.Context) (cloud.Answer, error) {
		const action = "Microsoft.Authorization/roleDefinitions/write"
		_, err := arm.Send(ctx, c.Client, action, func(ctx context.Context) (armauthorization.RoleDefinitionsClientCreateOrUpdateResponse, error) {
			return c.Definitions.CreateOrUpdate(ctx, c.scope(), r.guid, in, nil)
		})
		if arm.HasCode(err, "RoleDefinitionWithSameNameExists") { // or it was deleted a moment ago (OCPBUGS-63714)
			return cloud.NotYet, problem(NameTaken, "another subscription of the tenant has a custom role %s, and such names are unique in a tenant (%w)", r.name, err)
		}
		return arm.Answer(err)
	}}
}

func addresses(list []string) []*string {
	out := []*string{}
	for _, s := range list {
		out = append(out, &s)
	}
	return out
}

// planDeleteRole plans to delete a custom role.
func (c *client) planDeleteRole(o owner, have roleState) plan.Stage {
	steps := func(have *roleState) ([]cloud.Step, error) {
		if have == nil {
			return nil, nil
		}
		if have.description != o.description {
			return nil, problem(NotOwned, "%s %s has the description %q by now and not %q", roleThing, have.name, have.description, o.description)
		}
		return []cloud.Step{{Key: "delete", Line: fmt.Sprintf("Deleted custom role %s %s", have.name, have.id), Call: func(ctx context.Context) (cloud.Answer, error) {
			_, err := arm.Send(ctx, c.Client, "Microsoft.Authorization/roleDefinitions/delete", func(ctx context.Context) (armauthorization.RoleDefinitionsClientDeleteResponse, error) {
				return c.Definitions.Delete(ctx, c.scope(), have.guid, nil)
			})
			return arm.Gone(err)
		}}}, nil
	}
	first, _ := steps(&have) // it is the owner's
	read := func(ctx context.Context) (*roleState, error) { return c.readRole(ctx, have.name) }
	return c.stage(plan.Change{Verb: plan.Delete, Thing: roleThing, Name: have.name}, first, then(read, steps))
}
