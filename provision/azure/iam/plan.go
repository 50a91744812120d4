package iam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// world is what is there of what a run is about.
type world struct {
	oidc, install *groupState // the resource groups; nil for one that is not there
	identities    []identityState
	roles         roleList
	hanging       map[string]hanging // on identities of the run, by name in lower case
}

// hanging is what hangs on an identity.
type hanging struct {
	credentials []Credential
	assignments []assignmentState
}

// identity returns the one of a name; nil if it is not there.
func (w *world) identity(name string) *identityState {
	for _, s := range w.identities {
		if SameName(s.Name, name) {
			return &s
		}
	}
	return nil
}

// read reads all of it: first one list of each kind, then what hangs on each identity.
func (r *Run) read(ctx context.Context, wanted []Identity) (*world, error) {
	w := &world{hanging: map[string]hanging{}}
	group, reading := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		w.oidc, err = r.readGroup(reading, r.O.OIDCGroup)
		return err
	})
	if r.O.InstallGroup != "" {
		group.Go(func() (err error) {
			w.install, err = r.readGroup(reading, r.O.InstallGroup)
			return err
		})
	}
	if len(wanted) > 0 {
		group.Go(func() (err error) {
			w.identities, err = r.readIdentities(reading)
			return err
		})
		group.Go(func() (err error) {
			w.roles, err = r.readRoles(reading, "")
			return err
		})
		group.Go(func() error { return r.checkScopeGroups(reading, wanted) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return w, r.readHanging(ctx, w, wanted)
}

// readHanging reads what hangs on those of the wanted identities that are there.
func (r *Run) readHanging(ctx context.Context, w *world, wanted []Identity) error {
	there := slices.DeleteFunc(slices.Clone(wanted), func(i Identity) bool { return w.identity(i.Name) == nil })
	found, err := each(there, func(i Identity) (hanging, error) {
		credentials, err := r.readCredentials(ctx, i.Name)
		if err != nil {
			return hanging{}, err
		}
		assignments, err := r.assignmentsOf(ctx, i.Name)
		return hanging{credentials, assignments}, err
	})
	if err != nil {
		return err
	}
	for i, h := range found {
		w.hanging[Folded(there[i].Name)] = h
	}
	return nil
}

// planGroups plans both resource groups. With ccoctl the first is made with the issuer's storage; here nobody else makes it.
func (r *Run) planGroups(w *world) (plan.Plan, error) {
	var groups plan.Plan
	for _, g := range []struct {
		name string
		have *groupState
	}{{r.O.OIDCGroup, w.oidc}, {r.O.InstallGroup, w.install}} {
		if g.name == "" {
			continue
		}
		p, err := r.planGroup(g.name, g.have)
		if err != nil {
			return plan.Plan{}, err
		}
		groups = groups.Beside(p)
	}
	return groups, nil
}

// planAll plans groups, identities and roles, what hangs on them, and at last what goes.
func (r *Run) planAll(w *world, wanted []Identity) (plan.Plan, error) {
	groups, err := r.planGroups(w)
	if err != nil || len(wanted) == 0 {
		return groups, err
	}
	things, err := r.planIdentities(w, wanted)
	if err != nil {
		return plan.Plan{}, err
	}
	if r.O.InstallGroup != "" {
		groups.Notes = append(groups.Notes, fmt.Sprintf("Cluster installation resource group name is %s. This resource group MUST be configured as the "+
			"resource group used for cluster installation.", r.O.InstallGroup))
	}
	return groups.Then(things), nil
}

// stages are those of a plan of identities: what is in one is made at the same time.
type stages struct{ made, hung, removed plan.Stage }

// planIdentities plans the identities with what hangs on them.
func (r *Run) planIdentities(w *world, wanted []Identity) (plan.Plan, error) {
	var s stages
	var said plan.Plan
	for _, i := range wanted {
		of, err := r.planOne(w, i, &s)
		if err != nil {
			return plan.Plan{}, err
		}
		said = said.Then(of)
	}
	return said.Then(plan.Of(nil, s.made, s.hung, s.removed)), nil
}

// planOne plans one identity with what hangs on it. It returns what there is to say of it.
func (r *Run) planOne(w *world, i Identity, s *stages) (said plan.Plan, err error) {
	have, role := w.identity(i.Name), w.roles.find(i.Name)
	made, err := r.planIdentity(i.Name, have)
	if err != nil {
		return said, err
	}
	if i.custom() {
		own, err := r.planRole(i, role)
		if err != nil {
			return said, err
		}
		made = made.Beside(own)
		if role != nil && !r.O.Prune {
			for _, a := range slices.Concat(minus(role.actions, i.Actions), minus(role.dataActions, i.DataActions)) {
				made.Extra = append(made.Extra, fmt.Sprintf("%s %s allows %s, which nobody asked for; --prune takes it away", roleThing, i.Name, a))
			}
		}
	}
	s.made = append(s.made, slices.Concat(made.Stages...)...)
	made.Stages = nil
	b, err := r.bindings(w, i)
	if err != nil {
		return said, err
	}
	h := w.hanging[Folded(i.Name)]
	assign, unassign, ofAssignments := b.plan(h.assignments)
	trust, distrust, about, err := r.planCredentials(i, h.credentials, have == nil)
	if err != nil {
		return said, err
	}
	s.hung = slices.Concat(s.hung, trust, assign)
	s.removed = slices.Concat(s.removed, unassign, distrust)
	if r.Mode == install.Preview { // where they would hide what differs
		ofAssignments.Notes = nil
	}
	return made.Then(ofAssignments).Then(r.told(i, about)), nil
}

// bindings returns what the assignments of an identity are compared with.
func (r *Run) bindings(w *world, i Identity) (bindings, error) {
	b := bindings{Run: r, identity: i.Name, roles: w.roles}
	var ids []string
	if i.custom() {
		role := w.roles.find(i.Name)
		if role == nil {
			made := r.newRole(i)
			role, b.roles = &made, append(slices.Clone(b.roles), made)
		}
		ids = append(ids, role.id)
	}
	for _, name := range i.Roles {
		role := w.roles.find(name)
		if role == nil {
			return b, fmt.Errorf("subscription %s knows no role %q: its name is asked for, and neither a display name in another language nor an ID", r.O.Subscription, name)
		}
		ids = append(ids, role.id)
	}
	for _, id := range ids {
		for _, scope := range i.Scopes {
			b.grants = append(b.grants, grant{id, scope})
		}
	}
	for _, g := range []string{r.O.InstallGroup, r.O.DNSGroup, r.O.NetworkGroup} {
		if g != "" {
			b.scopes = append(b.scopes, r.O.GroupID(g))
		}
	}
	return b, nil
}

// planSurplus plans to delete the identities of the installation that nobody asks for any more, or lists them.
func (r *Run) planSurplus(ctx context.Context, w *world, wanted []Identity, named []string) (plan.Plan, error) {
	var gone []identityState
	for _, s := range w.identities {
		asked := slices.ContainsFunc(wanted, func(i Identity) bool { return SameName(i.Name, s.Name) }) || contains(named, s.Properties.ClientID)
		if r.Owner.owns(s.Tags) && !asked {
			gone = append(gone, s)
		}
	}
	if r.O.Prune {
		own := slices.DeleteFunc(slices.Clone(w.roles), func(role roleState) bool {
			return !slices.ContainsFunc(gone, func(s identityState) bool { return SameName(s.Name, role.name) })
		})
		return r.planRemoval(ctx, w.roles, gone, own)
	}
	var p plan.Plan
	for _, s := range gone {
		if shared("", s.Tags) == "" {
			p.Extra = append(p.Extra, fmt.Sprintf("managed identity %s of %s is there, and nobody asked for it; --prune deletes it", s.Name, r.Name))
		}
	}
	return p, nil
}

// planRemoval plans to delete identities of ours and those of the custom roles that are ours: what binds them first, then roles, then
// identities. What is somebody else's too stays: anyone who took an identity over goes on living by it, and by the role under its name.
// all are the roles of the subscription.
func (r *Run) planRemoval(ctx context.Context, all roleList, identities []identityState, roles []roleState) (plan.Plan, error) {
	var notes []string
	kept := map[string]bool{} // names of identities
	identities = slices.DeleteFunc(slices.Clone(identities), func(s identityState) bool {
		says := shared(IdentityThing+" "+s.Name, s.Tags)
		if says != "" {
			kept[Folded(s.Name)] = true
			notes = append(notes, fmt.Sprintf("%s, and stays with its roles and federated credentials; what leaves it to the others: %s", says,
				text.Quoted("az", "tag", "update", "--operation", "Delete", "--resource-id", r.IdentityID(s.Name), "--tags", r.Owner.Tag.String())))
		}
		return says != ""
	})
	roles = slices.DeleteFunc(slices.Clone(roles), func(role roleState) bool { return kept[Folded(role.name)] || role.description != r.Owner.description })
	if len(identities)+len(roles) == 0 {
		return plan.Of(notes), nil
	}
	assignments, err := r.readAssignments(ctx, "")
	if err != nil {
		return plan.Plan{}, err
	}
	if err := r.usedByOthers(roles, assignments, identities); err != nil {
		return plan.Plan{}, err
	}
	var unassign, unrole, remove plan.Stage
	for _, s := range identities {
		own := slices.DeleteFunc(slices.Clone(assignments), func(a assignmentState) bool {
			return !SameName(a.Properties.PrincipalID, s.Properties.PrincipalID)
		})
		unassign = append(unassign, bindings{Run: r, identity: s.Name, roles: all}.planDelete(own)...)
		remove = append(remove, r.planDeleteIdentity(s)...)
	}
	for _, role := range roles {
		unrole = append(unrole, r.planDeleteRole(role)...)
	}
	return plan.Of(notes, unassign, unrole, remove), nil
}

// usedByOthers returns an error if a role of ours is assigned to somebody else than these identities: Azure does not delete the role
// then, and a live cluster may need the assignment.
func (r *Run) usedByOthers(roles []roleState, all []assignmentState, identities []identityState) error {
	var errs []error
	for _, role := range roles {
		for _, a := range all {
			known := slices.ContainsFunc(identities, func(s identityState) bool {
				return SameName(s.Properties.PrincipalID, a.Properties.PrincipalID)
			})
			if last(a.Properties.RoleDefinitionID) == role.guid && !known {
				errs = append(errs, fmt.Errorf("%s %s is assigned to principal %s at %s, which is not an identity of %s in resource group %s",
					roleThing, role.name, a.Properties.PrincipalID, a.Properties.Scope, r.Name, r.O.OIDCGroup))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return arm.Refuse(arm.OtherGroup, "%w", errors.Join(errs...))
}

// Plan reads what is there, and returns what leads to what is wanted. named are the client IDs of others that are asked for, and that
// nobody makes here.
func (r *Run) Plan(ctx context.Context, wanted []Identity, named []string) (plan.Plan, error) {
	w, err := r.read(ctx, wanted)
	if err != nil {
		return plan.Plan{}, err
	}
	p, err := r.planAll(w, wanted)
	if err != nil || len(wanted) == 0 {
		return p, err
	}
	surplus, err := r.planSurplus(ctx, w, wanted, named)
	return p.Then(surplus), err
}

// PlanWorkload plans the identity, and its group only if there is none: a group that is there may be anybody's.
func (r *Run) PlanWorkload(ctx context.Context, i Identity) (plan.Plan, error) {
	w, err := r.read(ctx, []Identity{i})
	if err != nil {
		return plan.Plan{}, err
	}
	var groups plan.Plan
	if w.oidc == nil {
		if groups, err = r.planGroups(w); err != nil {
			return groups, err
		}
	}
	things, err := r.planIdentities(w, []Identity{i})
	return groups.Then(things), err
}

// checkScopeGroups returns an error if a resource group in which roles are to be assigned is not there, and nobody makes it here. An
// assignment there would be tried for minutes, since one to a group that was made a moment ago fails in the same way. Anyone who may not read a
// group may still assign roles in it.
func (r *Run) checkScopeGroups(ctx context.Context, wanted []Identity) error {
	var names []string
	for _, i := range wanted {
		for _, s := range i.Scopes {
			parts := strings.Split(s, "/") // "", subscriptions, ID, resourceGroups, NAME, …
			if len(parts) > 4 && SameName(parts[3], "resourceGroups") && !SameName(parts[4], r.O.OIDCGroup) && !SameName(parts[4], r.O.InstallGroup) {
				names = append(names, parts[4])
			}
		}
	}
	for _, name := range Distinct(names) {
		switch g, err := r.readGroup(ctx, name); {
		case arm.IsDenied(err):
		case err != nil:
			return err
		case g == nil:
			return fmt.Errorf("there is no resource group %s in subscription %s, in which roles are to be assigned", name, r.O.Subscription)
		}
	}
	return nil
}

// Own is what an installation has.
type Own struct {
	Identities int
	Issuers    []string // that they trust
}

// PlanDelete plans to delete what keypost or ccoctl made under the installation's name: the assignments of its identities, its custom
// roles and its identities, and with group the resource group that these were in. That of the installation is the installer's.
func (r *Run) PlanDelete(ctx context.Context, group bool) (plan.Plan, Own, error) {
	found, err := r.ours(ctx)
	if err != nil {
		return plan.Plan{}, Own{}, err
	}
	own := Own{Identities: len(found)}
	var identities []identityState
	for _, s := range found {
		identities = append(identities, s.identityState)
		for _, c := range s.credentials {
			own.Issuers = append(own.Issuers, c.Issuer)
		}
	}
	own.Issuers = slices.Compact(slices.Sorted(slices.Values(own.Issuers)))
	all, err := r.readRoles(ctx, "")
	if err != nil {
		return plan.Plan{}, Own{}, err
	}
	roles := slices.DeleteFunc(slices.Clone(all), func(role roleState) bool { return role.description != r.Owner.description })
	p, err := r.planRemoval(ctx, all, identities, roles)
	if err != nil {
		return plan.Plan{}, Own{}, err
	}
	if len(roles) == 0 {
		p.Notes = append(p.Notes, "Found no custom roles with description '"+r.Owner.description+"'")
	}
	if !group {
		return p, own, nil
	}
	last, err := r.planDeleteGroup(ctx)
	return p.Then(last), own, err
}

// trusting is an identity with its federated credentials.
type trusting struct {
	identityState
	credentials []Credential
}

// ours reads the identities of the installation.
func (r *Run) ours(ctx context.Context) ([]trusting, error) {
	found, err := r.readIdentities(ctx)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(s identityState) bool { return !r.Owner.owns(s.Tags) })
	return each(found, func(s identityState) (trusting, error) {
		have, err := r.readCredentials(ctx, s.Name)
		return trusting{s, have}, err
	})
}
