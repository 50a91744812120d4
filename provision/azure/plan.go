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
	groups     map[string]*groupState // by name, as spelled where it was first named; nil for one that is not there
	identities []identityState
	roles      []roleState // custom ones of the subscription

	hanging map[string]hanging // on identities of the run, by name in lower case
}

// hanging is what hangs on an identity.
type hanging struct {
	credentials []credential
	assignments []assignmentState
}

// group returns the one of a name, in whatever letter case; nil if it is not there.
func (w *world) group(name string) *groupState {
	for have, g := range w.groups {
		if sameName(have, name) {
			return g
		}
	}
	return nil
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
	w := &world{groups: map[string]*groupState{}, hanging: map[string]hanging{}}
	group, reading := errgroup.WithContext(ctx)
	names := distinct(present([]string{r.o.OIDCGroup, r.o.InstallGroup, r.o.DNSGroup, r.o.NetworkGroup}))
	found := make([]*groupState, len(names))
	for i, name := range names {
		group.Go(func() (err error) {
			found[i], err = r.client.readGroup(reading, name)
			return err
		})
	}
	if len(wanted) > 0 {
		r.readIdentities(reading, group, w, wanted)
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, name := range names {
		w.groups[name] = found[i]
	}
	there := slices.DeleteFunc(slices.Clone(wanted), func(i identity) bool { return w.identity(i.name) == nil })
	return w, r.readHanging(ctx, w, there)
}

// readIdentities begins to read what exists of identities and roles.
func (r *run) readIdentities(ctx context.Context, group *errgroup.Group, w *world, wanted []identity) {
	group.Go(func() error { return r.client.CheckRegistered(ctx) })
	group.Go(func() (err error) {
		w.identities, err = r.client.readIdentities(ctx, r.o.OIDCGroup)
		return err
	})
	group.Go(func() (err error) {
		w.roles, err = r.client.readRoles(ctx, customRoles)
		return err
	})
	var roles []string
	for _, i := range wanted {
		roles = append(roles, i.roles...)
	}
	for _, name := range distinct(roles) {
		group.Go(func() error { return r.client.findExisting(ctx, name) })
	}
}

// readHanging reads what hangs on identities that are there.
func (r *run) readHanging(ctx context.Context, w *world, there []identity) error {
	found, err := each(there, func(i identity) (hanging, error) {
		var h hanging
		var group errgroup.Group
		group.Go(func() (err error) {
			h.credentials, err = r.client.readCredentials(ctx, r.o.OIDCGroup, i.name)
			return err
		})
		group.Go(func() (err error) {
			if h.assignments, err = r.client.assignmentsOf(ctx, i.name); err != nil {
				return err
			}
			return r.client.nameRoles(ctx, h.assignments)
		})
		return h, group.Wait()
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

// home is where the run's identities are.
func (r *run) home() home {
	return home{group: r.o.OIDCGroup, location: r.o.Region, owner: r.owner, tags: r.o.Tags, adopt: r.o.Adopt, prune: r.o.Prune}
}

// planGroups plans both resource groups. With ccoctl the first is made with the issuer's storage; here nobody else makes it.
func (r *run) planGroups(w *world) (plan.Plan, error) {
	var all plan.Plan
	var stage plan.Stage
	for _, name := range present([]string{r.o.OIDCGroup, r.o.InstallGroup}) {
		h := r.home()
		h.group = name
		p, err := r.client.planGroup(h, w.group(name))
		if err != nil {
			return plan.Plan{}, err
		}
		all.Notes = append(all.Notes, p.Notes...)
		for _, s := range p.Stages {
			stage = append(stage, s...)
		}
	}
	for _, name := range present([]string{r.o.DNSGroup, r.o.NetworkGroup}) {
		if w.group(name) == nil {
			return plan.Plan{}, r.noGroup(name)
		}
	}
	return plan.Of(all.Notes, stage), nil
}

// noGroup is the error for a resource group that nobody makes here.
func (r *run) noGroup(name string) error {
	return fmt.Errorf("there is no resource group %s in subscription %s, in which roles are to be assigned", name, r.o.Subscription)
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

// planIdentities plans the identities with what hangs on them.
func (r *run) planIdentities(w *world, wanted []identity) (plan.Plan, error) {
	var made, assigned, trusted, removed plan.Stage
	var all plan.Plan
	var left []leaving
	put := 0
	for _, i := range wanted {
		identity, err := r.client.planIdentity(r.home(), i.name, w.identity(i.name))
		if err != nil {
			return plan.Plan{}, err
		}
		have, err := findRole(w.roles, i.name)
		if err != nil {
			return plan.Plan{}, err
		}
		role, err := r.client.planRole(r.home(), i, have)
		if err != nil {
			return plan.Plan{}, err
		}
		h := w.hanging[folded(i.name)]
		assign, unassign, said := r.client.planAssignments(i, h.assignments, r.taking())
		trust, distrust, about, err := r.planCredentials(i, h.credentials)
		if err != nil {
			return plan.Plan{}, err
		}
		for _, p := range []plan.Plan{identity, role} {
			all.Notes, all.Extra = append(all.Notes, p.Notes...), append(all.Extra, p.Extra...)
			for _, s := range p.Stages {
				made = append(made, s...)
			}
		}
		assigned, trusted = append(assigned, assign...), append(trusted, trust...)
		removed = slices.Concat(removed, unassign, distrust)
		if r.Mode != install.Preview { // where they would hide what differs
			all.Notes = append(append(all.Notes, said.Notes...), r.foundCredentials(i, about)...)
		}
		all.Warnings, all.Extra = append(all.Warnings, said.Warnings...), slices.Concat(all.Extra, said.Extra, r.otherAudiences(i.name, about.found), otherSubjects(i.name, about, r.IssuerURL))
		for _, issuer := range about.others {
			stays := "which stays"
			if r.owner != installation(r.Name) {
				stays = fmt.Sprintf("which stays; %s takes it away", text.Quoted("--drop-issuer-url", issuer))
			}
			all.Notes = append(all.Notes, fmt.Sprintf("identity %s takes tokens of %s too, %s", i.name, issuer, stays))
		}
		for _, subject := range about.lost {
			all.Warnings = append(all.Warnings, fmt.Sprintf("identity %s no longer takes tokens of %s", i.name, subject))
		}
		all.Notes = append(all.Notes, r.notDropped(i, h.credentials)...)
		put += len(about.put)
		left = append(left, leaving{i.name, about.leaves})
		all.Warnings = append(all.Warnings, r.losses(left[len(left)-1])...)
	}
	if err := r.refuseIssuer(left); err != nil {
		return plan.Plan{}, err
	}
	unknown, err := r.checkUnknown(w, put)
	if err != nil {
		return plan.Plan{}, err
	}
	planned := plan.Of(all.Notes, made, longestFirst(assigned, trusted), removed)
	planned.Warnings, planned.Extra = append(unknown, all.Warnings...), all.Extra
	return planned, nil
}

// longestFirst returns one stage of role assignments and of identities' federated credentials, in the order in which it ends soonest.
// Azure takes a credential of an identity every few seconds, so the identities with the most decide when it ends, and begin first.
// Assignments need no turn: they are made while credentials wait for theirs.
func longestFirst(assigned, trusted plan.Stage) plan.Stage {
	writes := func(a plan.Action) int { return len(a.Lines) }
	trusted = slices.Clone(trusted)
	slices.SortStableFunc(trusted, func(a, b plan.Action) int { return writes(b) - writes(a) })
	several := slices.IndexFunc(trusted, func(a plan.Action) bool { return writes(a) < 2 })
	if several < 0 {
		several = len(trusted)
	}
	return slices.Concat(trusted[:several], assigned, trusted[several:])
}

func (r *run) foundCredentials(i identity, about comparison) []string {
	var notes []string
	for _, f := range about.found {
		notes = append(notes, "Found existing federated identity credential "+r.client.credentialID(r.o.OIDCGroup, i.name, f.name))
	}
	return notes
}

// taking says which assignments of the run's identities may be taken away.
func (r *run) taking() taking {
	t := taking{prune: r.o.Prune}
	for _, g := range present([]string{r.o.InstallGroup, r.o.DNSGroup, r.o.NetworkGroup}) {
		t.scopes = append(t.scopes, r.o.groupID(g))
	}
	return t
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
		return r.planRemoval(ctx, gone, rolesNamed(w.roles, gone))
	}
	var p plan.Plan
	for _, s := range gone {
		if shared("", s.tags) == "" {
			p.Extra = append(p.Extra, fmt.Sprintf("managed identity %s of %s is there, and nobody asked for it; --prune deletes it", s.name, r.Name))
		}
	}
	return p, nil
}

// rolesNamed returns the custom roles under the names of identities.
func rolesNamed(roles []roleState, identities []identityState) []roleState {
	return slices.DeleteFunc(slices.Clone(roles), func(role roleState) bool {
		return !slices.ContainsFunc(identities, func(s identityState) bool { return sameName(s.name, role.name) })
	})
}

// withoutShared returns identities of ours, and custom roles, without the identities that are somebody else's too and the roles under
// their names, with a note for each that stays: whoever took it over goes on living by it.
func (r *run) withoutShared(identities []identityState, roles []roleState) (ours []identityState, _ []roleState, notes []string) {
	var others []identityState
	for _, s := range identities {
		says := shared(identityThing+" "+s.name, s.tags)
		if says == "" {
			ours = append(ours, s)
			continue
		}
		others = append(others, s)
		notes = append(notes, fmt.Sprintf("%s, and stays with its roles and federated credentials; what leaves it to the others: %s", says,
			text.Quoted("az", "tag", "update", "--operation", "Delete", "--resource-id", r.client.identityID(r.o.OIDCGroup, s.name), "--tags", r.owner.tag.String())))
	}
	kept := rolesNamed(roles, others)
	return ours, slices.DeleteFunc(slices.Clone(roles), func(role roleState) bool {
		return slices.ContainsFunc(kept, func(k roleState) bool { return k.guid == role.guid })
	}), notes
}

// planRemoval plans to delete identities and custom roles that are ours: what binds them first, then roles, then identities.
func (r *run) planRemoval(ctx context.Context, identities []identityState, roles []roleState) (plan.Plan, error) {
	identities, roles, notes := r.withoutShared(identities, roles)
	if len(identities)+len(roles) == 0 {
		return plan.Of(notes), nil
	}
	for _, s := range identities {
		if err := r.client.check(s); err != nil {
			return plan.Plan{}, err
		}
	}
	for _, role := range roles {
		if err := role.check(); err != nil && role.description == r.owner.description {
			return plan.Plan{}, err
		}
	}
	all, err := r.client.readAssignments(ctx, nil)
	if err != nil {
		return plan.Plan{}, err
	}
	if err := r.usedByOthers(roles, all, identities); err != nil {
		return plan.Plan{}, err
	}
	var unassign, unrole, remove plan.Stage
	for _, s := range identities {
		r.client.learn(s)
		own, err := r.client.boundTo(all, s.principal)
		if err == nil {
			err = r.client.nameRoles(ctx, own)
		}
		if err != nil {
			return plan.Plan{}, err
		}
		stage, stays := r.client.planDeleteAssignments(s.name, own)
		unassign, notes = append(unassign, stage...), append(notes, stays...)
		remove = append(remove, r.client.planDeleteIdentity(r.home(), s)...)
	}
	for _, role := range roles {
		if role.description == r.owner.description {
			unrole = append(unrole, r.client.planDeleteRole(r.owner, role)...)
		}
	}
	return plan.Of(notes, unassign, unrole, remove), nil
}

// usedByOthers returns an error if a role of ours is assigned to somebody else than these identities, with every such assignment:
// Azure does not delete the role then. Where the identity that has the role's name is not among these, it is mostly in another
// resource group than the one that was named, and a live cluster needs the assignment.
func (r *run) usedByOthers(roles []roleState, all []assignmentState, identities []identityState) error {
	var elsewhere, others []error
	for _, role := range roles {
		if role.description != r.owner.description {
			continue
		}
		here := slices.ContainsFunc(identities, func(s identityState) bool { return sameName(s.name, role.name) })
		for _, a := range all {
			known := slices.ContainsFunc(identities, func(s identityState) bool { return sameName(s.principal, a.principal) })
			switch {
			case last(a.role) != role.guid || known:
			case a.ours():
				elsewhere = append(elsewhere, fmt.Errorf("%s %s is assigned by keypost to principal %s at %s, which is no identity of %s in resource group %s",
					roleThing, role.name, a.principal, a.scope, r.Name, r.o.OIDCGroup))
			case !here:
				elsewhere = append(elsewhere, fmt.Errorf("%s %s is assigned to principal %s at %s, and its identity is not in resource group %s",
					roleThing, role.name, a.principal, a.scope, r.o.OIDCGroup))
			default:
				others = append(others, fmt.Errorf("%s %s is also assigned to principal %s at %s, which keypost did not do; once nobody needs it: %s",
					roleThing, role.name, a.principal, a.scope, deletesAssignment(a)))
			}
		}
	}
	if len(elsewhere) > 0 {
		return problem(OtherGroup, "%w", errors.Join(append(elsewhere, others...)...))
	}
	return errors.Join(others...)
}
