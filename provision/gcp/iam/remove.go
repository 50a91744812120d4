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
// say so. Without anything of that name the plan is empty. A pool that other
// installations use is an error. Trusted is what goes with the pool.
func (c *Client) PlanDelete(ctx context.Context, d Deletion) (plan.Plan, federation.Trusted, error) {
	if d.Pool == "" {
		d.Pool = d.Name
	}
	p, err := c.Project(ctx)
	if err != nil {
		return plan.Plan{}, federation.Trusted{}, err
	}
	s, err := c.readDeletion(ctx, p, d)
	if err != nil {
		return plan.Plan{}, federation.Trusted{}, err
	}
	gone, notes := d.accounts(p, s)
	var h allow.Holdings
	for _, a := range gone {
		h.Gone = append(h.Gone, a.Email)
	}
	roles, more := c.deleteRoles(p, d, s, h.Gone)
	bindings := c.planProjectPolicy(p, h, s.project)
	if err := d.checkUsers(p, s, h.Gone); err != nil {
		return plan.Plan{}, federation.Trusted{}, err
	}
	owner := federation.OwnedBy(d.Name)
	pool, poolNotes, err := c.PlanDeletePool(p, owner, d.Pool, s.pool)
	return plan.Of(slices.Concat(notes, more, poolNotes), roles, bindings, c.deleteAccounts(p, gone), pool), s.pool.Trusted(owner), err
}

// readDeletion reads what d may be about.
func (c *Client) readDeletion(ctx context.Context, p federation.Project, d Deletion) (*snapshot, error) {
	s := &snapshot{}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(into(&s.pool, func() (federation.Contents, error) { return c.ReadContents(ctx, p, d.Pool) }))
	group.Go(into(&s.project, func() (allow.Policy, error) { return c.readProjectPolicy(ctx, p) }))
	if d.CustomRoles {
		group.Go(into(&s.roles, func() ([]roleState, error) { return c.readRoles(ctx, p) }))
	}
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
		named := slices.ContainsFunc(d.Requests, func(request string) bool { return a.DisplayName == displayName(d.Name, request) })
		switch used := s.policy(a.Email); {
		case federation.OwnedBy(d.Name).Owns(a.Description):
			gone = append(gone, a)
		case ofNoInstallation(a) && s.within(a.Email, pool):
			notes = append(notes, fmt.Sprintf("service account %s is for a workload: it stays, and no workload of the pool %s can use it any more", a.Email, d.Pool))
		case !madeByCcoctl(d.Name, a):
		case s.within(a.Email, pool) || named && !s.foreign(a.Email, pool):
			gone = append(gone, a)
		case used != nil && len(used.Pools()) == 0:
			notes = append(notes, fmt.Sprintf("service account %s (%s) may be of ccoctl's for %s, or for an installation whose name begins so: "+
				"it stays, unless its CredentialsRequest is given", a.DisplayName, a.Email, d.Name))
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

// deleteRoles plans to delete the custom roles that these accounts have, and those of the requests, unless somebody else has
// them. It comes before the bindings are taken away: what a stopped run leaves is found again by them.
func (c *Client) deleteRoles(p federation.Project, d Deletion, s *snapshot, emails []string) (stage plan.Stage, notes []string) {
	known := members(emails)
	for _, r := range s.roles {
		asked := slices.ContainsFunc(d.Requests, func(request string) bool { return r.Title == roleTitle(p.ID, request) })
		users := holders(s.project, r.Name, nil)
		had := slices.ContainsFunc(users, func(m string) bool { return slices.Contains(known, m) || allow.Remains(m, emails) })
		if r.Deleted || !asked && !had || !strings.HasPrefix(r.Description, federation.Made) {
			continue
		}
		others := living(rest.Minus(users, known))
		if len(others) > 0 {
			notes = append(notes, fmt.Sprintf("%s %s stays: %s has it too", roleThing, r.Title, text.List(others, 3)))
			continue
		}
		stage = append(stage, c.deleteRole(p, r, known)...)
	}
	return stage, notes
}

// living returns members without those that stand for what is deleted.
func living(members []string) []string {
	return slices.DeleteFunc(members, func(m string) bool { return strings.HasPrefix(m, "deleted:") })
}

func (c *Client) deleteRole(p federation.Project, r roleState, known []string) plan.Stage {
	step := func(have roleState) []cloud.Step {
		k := roleCall(r.Name, "DeleteRole", "delete")
		k.Method, k.Query = "DELETE", rest.Query("etag", have.Etag)
		return []cloud.Step{c.Rest.Step(k, fmt.Sprintf("IAM custom role %s deleted", r.Title))}
	}
	return c.Rest.API.Stage(plan.Change{Verb: plan.Delete, Thing: roleThing, Name: r.Name}, step(r), func(ctx context.Context) ([]cloud.Step, error) {
		have, err := c.readRole(ctx, r.Name)
		if err != nil || have == nil || have.Deleted {
			return nil, err
		}
		if !strings.HasPrefix(have.Description, federation.Made) {
			return nil, fmt.Errorf("its description has changed meanwhile; make the plan again")
		}
		return step(*have), c.checkHolders(ctx, p, r.Name, known)
	})
}
