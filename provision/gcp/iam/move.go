package iam

import (
	"context"
	"slices"
	"strings"

	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/internal/allow"
)

// PoolUser is who else may be reached from the pool.
type PoolUser struct {
	Email           string   // of the Google service account; empty for roles that the project's policy gives to subjects themselves
	Workload        bool     // it was made for a workload
	ServiceAccounts []string // NAMESPACE/NAME
	Sets            []string // members that stand for other subjects, or for many
}

// PoolUsers returns who can be reached from a pool but for the accounts that are known: by the policies of the project's accounts,
// and by its own. Other projects have policies of their own.
func (c *Client) PoolUsers(ctx context.Context, pool string, known []string) ([]PoolUser, error) {
	p, err := c.Project(ctx)
	if err != nil {
		return nil, err
	}
	accounts, err := c.readAccounts(ctx, p)
	if err != nil {
		return nil, err
	}
	accounts = slices.DeleteFunc(accounts, func(a accountState) bool { return slices.Contains(known, a.Email) })
	policies, err := c.readPolicies(ctx, p, accounts)
	if err != nil {
		return nil, err
	}
	project, err := c.readProjectPolicy(ctx, p)
	if err != nil {
		return nil, err
	}
	var users []PoolUser
	add := func(u PoolUser, of *allow.Policy) {
		if of != nil && u.take(p, pool, *of) {
			users = append(users, u)
		}
	}
	for _, a := range accounts {
		add(PoolUser{Email: a.Email, Workload: federation.OwnedByKeypost().Owns(a.Description)}, policies[a.Email])
	}
	slices.SortFunc(users, func(a, b PoolUser) int { return strings.Compare(a.Email, b.Email) })
	add(PoolUser{}, &project)
	return users, nil
}

// take adds those of a policy's members that belong to a pool, and reports whether there are any.
func (u *PoolUser) take(p federation.Project, pool string, of allow.Policy) bool {
	for _, b := range of.Bindings {
		for _, m := range b.Members {
			if _, name, _ := strings.Cut(m, "://iam.googleapis.com/"); !strings.HasPrefix(name, p.PoolName(pool)+"/") {
				continue
			}
			subject := strings.TrimPrefix(m, p.Principal(pool, ""))
			account := strings.Replace(strings.TrimPrefix(subject, "system:serviceaccount:"), ":", "/", 1)
			if checkSubject(subject) != nil {
				u.Sets = append(u.Sets, m)
			} else if !slices.Contains(u.ServiceAccounts, account) {
				u.ServiceAccounts = append(u.ServiceAccounts, account)
			}
		}
	}
	return len(u.ServiceAccounts)+len(u.Sets) > 0
}
