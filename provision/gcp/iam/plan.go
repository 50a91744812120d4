package iam

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/internal/allow"
	"github.com/keypost/keypost/provision/gcp/internal/rest"
	"github.com/keypost/keypost/provision/plan"
)

// snapshot is what a project has, as far as it was asked for.
type snapshot struct {
	pool     *poolState
	provider *providerState
	accounts []accountState
	roles    []roleState
	project  allow.Policy
	policies map[string]*allow.Policy // of accounts, by email
}

func (s *snapshot) account(email string) *accountState {
	for i, a := range s.accounts {
		if a.Email == email {
			return &s.accounts[i]
		}
	}
	return nil
}

// policy returns an account's policy; nil if it was not read.
func (s *snapshot) policy(email string) *allow.Policy { return s.policies[email] }

// foreign reports whether an account can be used from other pools alone.
func (s *snapshot) foreign(email, pool string) bool {
	own := s.policy(email)
	if own == nil {
		return false
	}
	pools := own.Pools()
	return len(pools) > 0 && !slices.Contains(pools, pool)
}

// within reports whether an account can be used from a pool.
func (s *snapshot) within(email, pool string) bool {
	own := s.policy(email)
	return own != nil && slices.Contains(own.Pools(), pool)
}

// readPolicies reads the policies of these accounts.
func (c *Client) readPolicies(ctx context.Context, p Project, accounts []accountState) (map[string]*allow.Policy, error) {
	all, err := cloud.Each(rest.Parallel, accounts, func(a accountState) (*allow.Policy, error) { return c.readAccountPolicy(ctx, p, a.Email) })
	if err != nil {
		return nil, err
	}
	by := map[string]*allow.Policy{}
	for i, a := range accounts {
		by[a.Email] = all[i]
	}
	return by, nil
}

// pool returns the ID of the pool whose state counts: the one that is wanted, or the provider's; empty if there is none.
func (w Wanted) pool() string {
	switch {
	case w.Pool != nil:
		return w.Pool.ID
	case w.Provider != nil:
		return w.Provider.Pool
	}
	return ""
}

// into returns a function that calls read and keeps its result in place.
func into[T any](place *T, read func() (T, error)) func() error {
	return func() error {
		v, err := read()
		if err == nil {
			*place = v
		}
		return err
	}
}

// read reads what is wanted, everything once and side by side.
func (c *Client) read(ctx context.Context, p Project, w Wanted) (*snapshot, error) {
	s := &snapshot{}
	group, ctx := errgroup.WithContext(ctx)
	if id := w.pool(); id != "" {
		group.Go(func() (err error) {
			if w.Pool == nil {
				s.pool, err = c.expectedPool(ctx, p, id)
			} else {
				s.pool, err = c.readPool(ctx, p, id)
			}
			return err
		})
	}
	if v := w.Provider; v != nil {
		group.Go(into(&s.provider, func() (*providerState, error) { return c.readProvider(ctx, p, v.Pool, v.ID) }))
	}
	if a := w.Accounts; a != nil {
		group.Go(into(&s.project, func() (allow.Policy, error) { return c.readProjectPolicy(ctx, p) }))
		if slices.ContainsFunc(a.List, func(w Account) bool { return len(w.Permissions) > 0 }) {
			group.Go(into(&s.roles, func() ([]roleState, error) { return c.readRoles(ctx, p) }))
		}
		group.Go(func() (err error) {
			if s.accounts, err = c.readAccounts(ctx, p); err != nil {
				return err
			}
			s.policies, err = c.readPolicies(ctx, p, a.candidates(p, s.accounts))
			return err
		})
	}
	return s, group.Wait()
}

// candidates returns those of the project's accounts that may be the owner's.
func (a Accounts) candidates(p Project, accounts []accountState) []accountState {
	emails := map[string]bool{}
	for _, w := range a.List {
		emails[p.Email(a.ID(w))] = true
	}
	var out []accountState
	for _, have := range accounts {
		if emails[have.Email] || a.Owner.owns(have.Description) || a.Owner.name != "" && madeByCcoctl(a.Owner.name, have) {
			out = append(out, have)
		}
	}
	return out
}

// madeByCcoctl reports whether ccoctl may have made an account for an installation: NAME-X-REQUEST may be of NAME or of NAME-X.
func madeByCcoctl(installation string, have accountState) bool {
	return strings.HasPrefix(have.DisplayName, displayName(installation, "")) && have.Description == ccoctlText(have.DisplayName)
}

// Planned is a plan for what is wanted.
type Planned struct {
	plan.Plan
	Emails []string // of Wanted.Accounts.List, in its order, also of those that are still to be made
}

// Plan reads the project, everything once and side by side, and plans the way to what is wanted: pool, provider, accounts and
// roles, the project's policy. Nothing is planned for what is as it should be. An error about something that is somebody
// else's is of the problem [NotOwned], about a provider that trusts another issuer [OtherIssuer]. A provider that is planned
// without its pool needs one that can be used, else the error is of the problem [PoolUnusable].
func (c *Client) Plan(ctx context.Context, w Wanted) (Planned, error) {
	p, err := c.Project(ctx)
	if err != nil {
		return Planned{}, err
	}
	s, err := c.read(ctx, p, w)
	if err != nil {
		return Planned{}, err
	}
	var out Planned
	if v := w.Pool; v != nil {
		t := subject{thing: poolThing, name: v.ID, found: fmt.Sprintf("Workload identity pool %s already exists", v.ID), missing: s.pool == nil, deleted: s.pool.isDeleted()}
		out.Plan, err = planOne(c, t, s.pool, func(ctx context.Context) (*poolState, error) { return c.readPool(ctx, p, v.ID) },
			func(have *poolState) (decision, error) { return c.decidePool(p, *v, have) })
		if err != nil {
			return Planned{}, err
		}
	}
	if w.Provider != nil {
		next, err := c.planProvider(p, w, s)
		if err != nil {
			return Planned{}, err
		}
		out.Plan = out.Then(next)
	}
	if w.Accounts == nil {
		return out, nil
	}
	identities := w.Accounts.identify(p, s)
	for _, i := range identities {
		out.Emails = append(out.Emails, i.email)
	}
	next, err := c.planAccounts(p, *w.Accounts, identities, s)
	out.Plan = out.Then(next)
	return out, err
}

// subject is a thing that a plan is made for.
type subject struct {
	thing, name string
	found       string // the line that reports one that is there
	missing     bool   // it is still to be made
	deleted     bool   // it is deleted, and Google still keeps it
}

// decision holds the steps from what is there to what is wanted, and what the reader should know.
type decision struct {
	steps           []cloud.Step
	notes, warnings []string
	extra           []string // what is there beyond what is wanted, and stays
}

// planOne plans what decide returns for have. Applied, the plan reads again and decides by what is there then.
func planOne[T any](c *Client, s subject, have T, read func(ctx context.Context) (T, error), decide func(have T) (decision, error)) (plan.Plan, error) {
	d, err := decide(have)
	if err != nil {
		return plan.Plan{}, err
	}
	change := plan.Change{Verb: plan.Update, Thing: s.thing, Name: s.name}
	if s.missing {
		change.Verb = plan.Create
	} else if !s.deleted {
		d.notes = append([]string{s.found}, d.notes...)
	}
	stage := c.rest.API.Stage(change, d.steps, func(ctx context.Context) ([]cloud.Step, error) {
		have, err := read(ctx)
		if err != nil {
			return nil, err
		}
		d, err := decide(have)
		return d.steps, err
	})
	out := plan.Of(d.notes, cloud.OrFound(stage, s.found))
	out.Warnings, out.Extra = d.warnings, d.extra
	return out, nil
}

// planAccounts plans accounts and roles, side by side; then the project's policy; then what is to go.
func (c *Client) planAccounts(p Project, a Accounts, identities []identity, s *snapshot) (plan.Plan, error) {
	h := allow.Holdings{Roles: map[string][]string{}, Exact: a.Prune && a.Owner.name != ""}
	var all plan.Plan
	var first, last plan.Stage
	add := func(one plan.Plan) {
		first, one.Stages = append(first, slices.Concat(one.Stages...)...), nil
		all = all.Then(one)
	}
	for _, i := range identities {
		h.Roles[i.email] = slices.Clone(i.Roles)
		one, err := c.planAccount(p, i, s)
		if err != nil {
			return plan.Plan{}, err
		}
		add(one)
		if i.role == nil {
			continue
		}
		h.Roles[i.email] = append(h.Roles[i.email], i.role.name)
		grow, shrink, err := c.planRole(p, *i.role, findRole(s.roles, i.role.name, i.role.title))
		if err != nil {
			return plan.Plan{}, err
		}
		add(grow)
		last = append(last, shrink...)
	}
	var gone []accountState
	for _, o := range a.surplus(p, s, h) {
		if a.Prune {
			gone, h.Gone = append(gone, o), append(h.Gone, o.Email)
			continue
		}
		all.Extra = append(all.Extra, fmt.Sprintf("service account %s (%s) is there, and nobody asked for it; --prune deletes it", o.DisplayName, o.Email))
	}
	notes, extra := a.surplusRoles(p, h, s.project)
	all.Notes, all.Extra = append(all.Notes, notes...), append(all.Extra, extra...)
	bindings := c.planProjectPolicy(p, h, s.project)
	return all.Then(plan.Of(nil, first, bindings, slices.Concat(c.deleteAccounts(p, gone), last))), nil
}

// surplus returns the owner's accounts that nobody asked for. An account of ccoctl's, which does not say for which installation
// it is, counts if it can be used from the pool.
func (a Accounts) surplus(p Project, s *snapshot, wanted allow.Holdings) []accountState {
	if !a.All {
		return nil
	}
	var out []accountState
	for _, have := range a.candidates(p, s.accounts) {
		ours := a.Owner.owns(have.Description) || madeByCcoctl(a.Owner.name, have) && s.within(have.Email, p.PoolName(a.Pool))
		if _, asked := wanted.Roles[have.Email]; ours && !asked {
			out = append(out, have)
		}
	}
	return out
}

// surplusRoles tells of the roles that accounts keep though nobody asked for them.
func (a Accounts) surplusRoles(p Project, h allow.Holdings, have allow.Policy) (notes, extra []string) {
	for _, email := range slices.Sorted(maps.Keys(h.Roles)) {
		plain, conditional := have.Grants(allow.Member(email))
		for _, role := range conditional {
			notes = append(notes, fmt.Sprintf("service account %s has the role %s on a condition, which stays", email, role))
		}
		if h.Exact || a.Owner.name == "" && len(h.Roles[email]) == 0 { // a workload's roles may be given by others only
			continue
		}
		for _, role := range minus(plain, h.Roles[email]) {
			remedy := "--prune takes it away"
			if a.Owner.name == "" {
				remedy = "if nothing needs it: " +
					text.Quoted("gcloud", "projects", "remove-iam-policy-binding", p.ID, "--member", allow.Member(email), "--role", role, "--condition", "None")
			}
			extra = append(extra, fmt.Sprintf("service account %s has the role %s, which nobody asked for; %s", email, role, remedy))
		}
	}
	return notes, extra
}

func members(emails []string) []string {
	var out []string
	for _, e := range emails {
		out = append(out, allow.Member(e))
	}
	return out
}
