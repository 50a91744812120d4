package iam

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/internal/allow"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/plan"
)

// PlanDelete plans to delete what d describes: custom roles, bindings, accounts, pool. What is somebody else's stays; the notes
// say so. Without anything of that name the plan is empty. A pool that other installations use is an error. With the plan come the issuers that
// the pool's providers trust.
func (c *Client) PlanDelete(ctx context.Context, d Deletion) (plan.Plan, []string, error) {
	p, err := c.Project(ctx)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	s, err := c.readDeletion(ctx, p, d)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	gone, notes := d.accounts(p, s)
	var h allow.Holdings
	for _, a := range gone {
		h.Gone = append(h.Gone, a.Email)
	}
	var roles plan.Stage
	if d.CustomRoles {
		var more []string
		if roles, more, err = c.deleteRoles(ctx, p, s.project, h.Gone); err != nil {
			return plan.Plan{}, nil, err
		}
		notes = append(notes, more...)
	}
	bindings := c.planProjectPolicy(p, h, s.project)
	if err := d.checkUsers(p, s, h.Gone); err != nil {
		return plan.Plan{}, nil, err
	}
	owner := federation.OwnedBy(d.Name)
	pool, poolNotes, err := c.PlanDeletePool(p, owner, d.Pool, s.pool)
	return plan.Of(slices.Concat(notes, poolNotes), roles, bindings, c.deleteAccounts(p, gone), pool), s.pool.Issuers(owner), err
}

// readDeletion reads what d may be about.
func (c *Client) readDeletion(ctx context.Context, p federation.Project, d Deletion) (*snapshot, error) {
	s := &snapshot{}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(into(&s.pool, func() (federation.Contents, error) { return c.ReadContents(ctx, p, d.Pool) }))
	group.Go(into(&s.project, func() (allow.Policy, error) { return c.readProjectPolicy(ctx, p) }))
	group.Go(func() (err error) {
		if s.accounts, err = c.readAccounts(ctx, p); err != nil {
			return err
		}
		s.policies, err = c.readPolicies(ctx, p, s.accounts)
		return err
	})
	return s, group.Wait()
}

// accounts returns the accounts to delete.
func (d Deletion) accounts(p federation.Project, s *snapshot) (gone []accountState, notes []string) {
	pool := p.PoolName(d.Pool)
	for _, a := range s.accounts {
		switch {
		case federation.OwnedBy(d.Name).Owns(a.Description):
			gone = append(gone, a)
		case ofNoInstallation(a) && s.within(a.Email, pool):
			notes = append(notes, fmt.Sprintf("service account %s is for a workload: it stays, and no workload of the pool %s can use it any more", a.Email, d.Pool))
		case !madeByCcoctl(d.Name, a):
		case s.within(a.Email, pool):
			gone = append(gone, a)
		case len(s.pools(a.Email)) == 0:
			notes = append(notes, fmt.Sprintf("service account %s (%s) may be of ccoctl's for %s, or for an installation whose name begins so: "+
				"it stays",
				a.DisplayName, a.Email, d.Name))
		}
	}
	return gone, notes
}

// ofNoInstallation reports whether an account was made by create-service-account, or by neither keypost nor ccoctl.
func ofNoInstallation(a accountState) bool {
	return federation.OwnedByKeypost().Owns(a.Description) || !strings.HasPrefix(a.Description, federation.Made)
}

// checkUsers returns an error if accounts of other installations are used from a pool that would go.
func (d Deletion) checkUsers(p federation.Project, s *snapshot, gone []string) error {
	if !s.pool.Goes(federation.OwnedBy(d.Name)) {
		return nil
	}
	var users []string
	for _, a := range s.accounts {
		if !ofNoInstallation(a) && !slices.Contains(gone, a.Email) && s.within(a.Email, p.PoolName(d.Pool)) {
			users = append(users, fmt.Sprintf("%s (%s)", a.DisplayName, a.Email))
		}
	}
	if len(users) == 0 {
		return nil
	}
	return fmt.Errorf("%s %s would go too, and other installations use it: service accounts %s; delete those installations first", federation.PoolThing, d.Pool,
		text.List(users, 10))
}

// deleteRoles plans to delete the custom roles that accounts have by the project's policy, unless somebody else has them. It comes before the
// bindings are taken away: what a stopped run leaves is found again by them.
func (c *Client) deleteRoles(ctx context.Context, p federation.Project, policy allow.Policy, emails []string) (
	stage plan.Stage, notes []string, err error,
) {
	known := members(emails)
	var names []string
	for _, b := range policy.Bindings {
		had := slices.ContainsFunc(b.Members, func(m string) bool { return slices.Contains(known, m) || allow.Remains(m, emails) })
		if had && strings.HasPrefix(b.Role, "projects/"+p.ID+"/roles/") {
			names = append(names, b.Role)
		}
	}
	names = rest.Minus(names, nil)
	roles, err := c.readRoles(ctx, names)
	for _, name := range names {
		r := roles[name]
		if r == nil || r.Deleted || !strings.HasPrefix(r.Description, federation.Made) {
			continue
		}
		if others := living(holders(policy, name, known)); len(others) > 0 {
			notes = append(notes, fmt.Sprintf("%s %s stays: %s has it too", roleThing, r.Title, text.List(others, 3)))
			continue
		}
		k := roleCall(name, "DeleteRole", "delete")
		k.Method = "DELETE"
		step := c.Rest.Step(k, fmt.Sprintf("IAM custom role %s deleted", r.Title))
		left := func(have *roleState) ([]cloud.Step, error) {
			if have == nil || have.Deleted {
				return nil, nil
			}
			return []cloud.Step{step}, nil
		}
		// Google refuses to delete a role twice: where the answer was lost, or another run was first, the role says so.
		again := cloud.After(func(ctx context.Context) (*roleState, error) { return c.readRole(ctx, name) }, left)
		stage = append(stage, c.Rest.API.Deletion(plan.Change{Verb: plan.Delete, Thing: roleThing, Name: name}, []cloud.Step{step}, again)...)
	}
	return stage, notes, err
}

// living returns members without those that stand for what is deleted.
func living(members []string) []string {
	return slices.DeleteFunc(members, func(m string) bool { return strings.HasPrefix(m, "deleted:") })
}
