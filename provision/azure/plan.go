package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/internal/text"
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
	credentials []credential
	assignments []assignmentState
}

// identity returns the one of a name; nil if it is not there.
func (w *world) identity(name string) *identityState {
	for _, s := range w.identities {
		if sameName(s.name, name) {
			return &s
		}
	}
	return nil
}

// read reads all of it: first one list of each kind, then what hangs on each identity.
func (r *run) read(ctx context.Context, wanted []identity) (*world, error) {
	w := &world{hanging: map[string]hanging{}}
	group, reading := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		w.oidc, err = r.readGroup(reading, r.o.OIDCGroup)
		return err
	})
	if r.o.InstallGroup != "" {
		group.Go(func() (err error) {
			w.install, err = r.readGroup(reading, r.o.InstallGroup)
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
func (r *run) readHanging(ctx context.Context, w *world, wanted []identity) error {
	there := slices.DeleteFunc(slices.Clone(wanted), func(i identity) bool { return w.identity(i.name) == nil })
	found, err := each(there, func(i identity) (hanging, error) {
		credentials, err := r.readCredentials(ctx, r.o.OIDCGroup, i.name)
		if err != nil {
			return hanging{}, err
		}
		assignments, err := r.assignmentsOf(ctx, i.name)
		return hanging{credentials, assignments}, err
	})
	if err != nil {
		return err
	}
	for i, h := range found {
		w.hanging[folded(there[i].name)] = h
	}
	return nil
}

func present(list []string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

// planGroups plans both resource groups. With ccoctl the first is made with the issuer's storage; here nobody else makes it.
func (r *run) planGroups(w *world) (plan.Plan, error) {
	var groups plan.Stage
	var notes []string
	for _, g := range []struct {
		name string
		have *groupState
	}{{r.o.OIDCGroup, w.oidc}, {r.o.InstallGroup, w.install}} {
		if g.name == "" {
			continue
		}
		s, err := r.planGroup(g.name, g.have)
		if err != nil {
			return plan.Plan{}, err
		}
		groups = append(groups, s...)
		if g.have != nil {
			notes = append(notes, "Found existing resource group "+g.have.id)
		}
	}
	return plan.Of(notes, groups), nil
}

// planAll plans groups, identities and roles, what hangs on them, and at last what goes.
func (r *run) planAll(w *world, wanted []identity) (plan.Plan, error) {
	groups, err := r.planGroups(w)
	if err != nil || len(wanted) == 0 {
		return groups, err
	}
	things, err := r.planIdentities(w, wanted)
	if err != nil {
		return plan.Plan{}, err
	}
	if r.o.InstallGroup != "" {
		groups.Notes = append(groups.Notes, fmt.Sprintf("Cluster installation resource group name is %s. This resource group MUST be configured as the "+
			"resource group used for cluster installation.", r.o.InstallGroup))
	}
	return groups.Then(things), nil
}

// stages are those of a plan of identities: what is in one is made at the same time.
type stages struct{ made, hung, removed plan.Stage }

// planIdentities plans the identities with what hangs on them.
func (r *run) planIdentities(w *world, wanted []identity) (plan.Plan, error) {
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
func (r *run) planOne(w *world, i identity, s *stages) (said plan.Plan, err error) {
	have, role := w.identity(i.name), w.roles.find(i.name)
	made, err := r.planIdentity(i.name, have)
	if err != nil {
		return said, err
	}
	s.made = append(s.made, made...)
	if have != nil {
		said.Notes = append(said.Notes, "Found existing user-assigned managed identity "+have.id)
	}
	if i.custom() {
		made, err := r.planRole(i, role)
		if err != nil {
			return said, err
		}
		s.made = append(s.made, made...)
		if role != nil {
			said.Notes = append(said.Notes, fmt.Sprintf("Found existing customRole %s %s", i.name, role.id))
			for _, a := range slices.Concat(minus(role.actions, i.actions), minus(role.dataActions, i.dataActions)) {
				if !r.o.Prune {
					said.Extra = append(said.Extra, fmt.Sprintf("%s %s allows %s, which nobody asked for; --prune takes it away", roleThing, i.name, a))
				}
			}
		}
	}
	b, err := r.bindings(w, i)
	if err != nil {
		return said, err
	}
	h := w.hanging[folded(i.name)]
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
	return said.Then(ofAssignments).Then(r.told(i, about)), nil
}

// bindings returns what the assignments of an identity are compared with.
func (r *run) bindings(w *world, i identity) (bindings, error) {
	b := bindings{run: r, identity: i.name, roles: w.roles}
	var ids []string
	if i.custom() {
		role := w.roles.find(i.name)
		if role == nil {
			made := r.newRole(i)
			role, b.roles = &made, append(slices.Clone(b.roles), made)
		}
		ids = append(ids, role.id)
	}
	for _, name := range i.roles {
		role := w.roles.find(name)
		if role == nil {
			return b, fmt.Errorf("subscription %s knows no role %q: its name is asked for, and neither a display name in another language nor an ID", r.o.Subscription, name)
		}
		ids = append(ids, role.id)
	}
	for _, id := range ids {
		for _, scope := range i.scopes {
			b.grants = append(b.grants, grant{id, scope})
		}
	}
	for _, g := range present([]string{r.o.InstallGroup, r.o.DNSGroup, r.o.NetworkGroup}) {
		b.scopes = append(b.scopes, r.o.groupID(g))
	}
	return b, nil
}

// planSurplus plans to delete the identities of the installation that nobody asks for any more, or lists them.
func (r *run) planSurplus(ctx context.Context, w *world, wanted []identity) (plan.Plan, error) {
	var gone []identityState
	for _, s := range w.identities {
		if r.owner.owns(s.tags) && !slices.ContainsFunc(wanted, func(i identity) bool { return sameName(i.name, s.name) }) {
			gone = append(gone, s)
		}
	}
	if r.o.Prune {
		own := slices.DeleteFunc(slices.Clone(w.roles), func(role roleState) bool {
			return !slices.ContainsFunc(gone, func(s identityState) bool { return sameName(s.name, role.name) })
		})
		return r.planRemoval(ctx, w.roles, gone, own)
	}
	var p plan.Plan
	for _, s := range gone {
		if shared("", s.tags) == "" {
			p.Extra = append(p.Extra, fmt.Sprintf("managed identity %s of %s is there, and nobody asked for it; --prune deletes it", s.name, r.Name))
		}
	}
	return p, nil
}

// planRemoval plans to delete identities of ours and those of the custom roles that are ours: what binds them first, then roles, then
// identities. What is somebody else's too stays: anyone who took an identity over goes on living by it, and by the role under its name.
// all are the roles of the subscription.
func (r *run) planRemoval(ctx context.Context, all roleList, identities []identityState, roles []roleState) (plan.Plan, error) {
	var notes []string
	kept := map[string]bool{} // names of identities
	identities = slices.DeleteFunc(slices.Clone(identities), func(s identityState) bool {
		says := shared(identityThing+" "+s.name, s.tags)
		if says != "" {
			kept[folded(s.name)] = true
			notes = append(notes, fmt.Sprintf("%s, and stays with its roles and federated credentials; what leaves it to the others: %s", says,
				text.Quoted("az", "tag", "update", "--operation", "Delete", "--resource-id", r.identityID(s.name), "--tags", r.owner.tag.String())))
		}
		return says != ""
	})
	roles = slices.DeleteFunc(slices.Clone(roles), func(role roleState) bool { return kept[folded(role.name)] || role.description != r.owner.description })
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
		own := slices.DeleteFunc(slices.Clone(assignments), func(a assignmentState) bool { return !sameName(a.principal, s.principal) })
		unassign = append(unassign, bindings{run: r, identity: s.name, roles: all}.planDelete(own)...)
		remove = append(remove, r.planDeleteIdentity(s)...)
	}
	for _, role := range roles {
		unrole = append(unrole, r.planDeleteRole(role)...)
	}
	return plan.Of(notes, unassign, unrole, remove), nil
}

// usedByOthers returns an error if a role of ours is assigned to somebody else than these identities: Azure does not delete the role
// then, and a live cluster may need the assignment.
func (r *run) usedByOthers(roles []roleState, all []assignmentState, identities []identityState) error {
	var errs []error
	for _, role := range roles {
		for _, a := range all {
			known := slices.ContainsFunc(identities, func(s identityState) bool { return sameName(s.principal, a.principal) })
			if last(a.role) == role.guid && !known {
				errs = append(errs, fmt.Errorf("%s %s is assigned to principal %s at %s, which is not an identity of %s in resource group %s",
					roleThing, role.name, a.principal, a.scope, r.Name, r.o.OIDCGroup))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return problem(OtherGroup, "%w", errors.Join(errs...))
}
