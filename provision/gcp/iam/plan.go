package iam

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/internal/allow"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/plan"
)

// snapshot is what a project has, as far as it was asked for.
type snapshot struct {
	federation federation.State
	pool       federation.Contents // for a deletion
	accounts   []accountState
	roles      map[string]*roleState // by name; nil for one that is not there
	project    allow.Policy
	policies   map[string]*allow.Policy // of accounts, by email
}

func (s *snapshot) account(email string) *accountState {
	for i, a := range s.accounts {
		if a.Email == email {
			return &s.accounts[i]
		}
	}
	return nil
}

// pools returns those whose subjects may impersonate an account; none where its policy was not read.
func (s *snapshot) pools(email string) []string {
	if own := s.policies[email]; own != nil {
		return own.Pools()
	}
	return nil
}

// foreign reports whether an account can be used only from other pools.
func (s *snapshot) foreign(email, pool string) bool {
	return len(s.pools(email)) > 0 && !s.within(email, pool)
}

// within reports whether an account can be used from a pool.
func (s *snapshot) within(email, pool string) bool { return slices.Contains(s.pools(email), pool) }

// readPolicies reads the policies of these accounts.
func (c *Client) readPolicies(ctx context.Context, p federation.Project, accounts []accountState) (map[string]*allow.Policy, error) {
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
func (c *Client) read(ctx context.Context, p federation.Project, w Wanted) (*snapshot, error) {
	s := &snapshot{}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(into(&s.federation, func() (federation.State, error) { return c.Read(ctx, p, w.Pool, w.Provider) }))
	if a := w.Accounts; a != nil {
		group.Go(into(&s.project, func() (allow.Policy, error) { return c.readProjectPolicy(ctx, p) }))
		var roles []string
		for _, w := range a.List {
			if len(w.Permissions) > 0 {
				roles = append(roles, roleName(p.ID, w))
			}
		}
		group.Go(into(&s.roles, func() (map[string]*roleState, error) { return c.readRoles(ctx, roles) }))
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
func (a Accounts) candidates(p federation.Project, accounts []accountState) []accountState {
	emails := map[string]bool{}
	for _, w := range a.List {
		emails[p.Email(a.ID(w))] = true
	}
	var out []accountState
	for _, have := range accounts {
		if emails[have.Email] || a.Owner.Owns(have.Description) || a.Owner.Installation() != "" && madeByCcoctl(a.Owner.Installation(), have) {
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
// else's has the problem [NotOwned], about a provider that trusts another issuer [OtherIssuer]. A provider that is planned
// without its pool needs one that can be used, else the error has the problem [PoolUnusable].
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
	if out.Plan, err = c.Client.Plan(p, w.Pool, w.Provider, s.federation); err != nil {
		return Planned{}, err
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

// planAccounts plans accounts and roles, side by side; then the project's policy; then what is to go.
func (c *Client) planAccounts(p federation.Project, a Accounts, identities []identity, s *snapshot) (plan.Plan, error) {
	h := allow.Holdings{Roles: map[string][]string{}, Exact: a.Prune && a.Owner.Installation() != ""}
	var all plan.Plan
	var last plan.Stage
	for _, i := range identities {
		h.Roles[i.email] = slices.Clone(i.Roles)
		one, err := c.planAccount(p, i, s)
		if err != nil {
			return plan.Plan{}, err
		}
		all = all.Beside(one)
		if i.role == nil {
			continue
		}
		h.Roles[i.email] = append(h.Roles[i.email], i.role.name)
		grow, shrink, err := c.planRole(p, *i.role, s.roles[i.role.name])
		if err != nil {
			return plan.Plan{}, err
		}
		all = all.Beside(grow)
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
	notes, extra := a.surplusRoles(h, s.project)
	all.Notes, all.Extra = append(all.Notes, notes...), append(all.Extra, extra...)
	bindings := c.planProjectPolicy(p, h, s.project)
	return all.Then(plan.Of(nil, bindings, slices.Concat(c.deleteAccounts(p, gone), last))), nil
}

// surplus returns the owner's accounts that nobody asked for. An account of ccoctl's, which does not say for which installation
// it is, counts if it can be used from the pool.
func (a Accounts) surplus(p federation.Project, s *snapshot, wanted allow.Holdings) []accountState {
	if !a.All {
		return nil
	}
	var out []accountState
	for _, have := range a.candidates(p, s.accounts) {
		ours := a.Owner.Owns(have.Description) || madeByCcoctl(a.Owner.Installation(), have) && s.within(have.Email, p.PoolName(a.Pool))
		if _, asked := wanted.Roles[have.Email]; ours && !asked && !slices.Contains(a.Named, have.Email) {
			out = append(out, have)
		}
	}
	return out
}

// surplusRoles tells of the roles that accounts keep though nobody asked for them.
func (a Accounts) surplusRoles(h allow.Holdings, have allow.Policy) (notes, extra []string) {
	for _, email := range slices.Sorted(maps.Keys(h.Roles)) {
		plain, conditional := have.Grants(allow.Member(email))
		for _, role := range conditional {
			notes = append(notes, fmt.Sprintf("service account %s has the role %s on a condition, which stays", email, role))
		}
		if h.Exact || a.Owner.Installation() == "" { // a workload's roles may be given by others
			continue
		}
		for _, role := range rest.Minus(plain, h.Roles[email]) {
			extra = append(extra, fmt.Sprintf("service account %s has the role %s, which nobody asked for; --prune takes it away", email, role))
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
