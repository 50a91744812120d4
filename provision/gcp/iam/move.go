package iam

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"

	"github.com/keypost/keypost/provision/gcp/internal/allow"
	"github.com/keypost/keypost/provision/gcp/internal/rest"
)

// SecondProviderID returns the ID of the provider to which the cluster of an installation moves for another issuer, the same in every run.
func SecondProviderID(installation, issuerURL string) string {
	return cut(installation, 26) + "-" + hashed(issuerURL)
}

// hashed returns five letters or digits that stand for s.
func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:5])
}

// Predecessor returns a provider by which a cluster lives whose issuer it trusts, with what it takes: audiences, attributes, condition,
// and the keys that it has a copy of. It returns an error if another provider could not take its place by taking the same.
func (c *Client) Predecessor(ctx context.Context, pool, provider, issuerURL string) (Provider, error) {
	p, err := c.Project(ctx)
	if err != nil {
		return Provider{}, err
	}
	have, err := c.readProvider(ctx, p, pool, provider)
	name := p.ProviderName(pool, provider)
	switch {
	case err != nil:
		return Provider{}, err
	case have == nil || have.State == deleted || have.OIDC == nil:
		return Provider{}, rest.Problemf(NothingToMove, "no cluster lives by the %s %s: it is not there, is deleted or not for OIDC", providerThing, name)
	case have.OIDC.Issuer != issuerURL:
		return Provider{}, rest.Problemf(NothingToMove, "the %s %s trusts the issuer %s, and not %s", providerThing, name, have.OIDC.Issuer, issuerURL)
	case have.Mapping[subjectAttribute] != subjectMapping:
		return Provider{}, fmt.Errorf("the %s %s maps %s to %s, and not to %s: what is bound to the subjects would not be found by the new one", providerThing,
			name, subjectAttribute, have.Mapping[subjectAttribute], subjectMapping)
	case strings.Contains(have.Condition, issuerURL):
		return Provider{}, fmt.Errorf("the %s %s has the attribute condition %s, which names the old issuer and would refuse the new one's tokens: change it first",
			providerThing, name, have.Condition)
	}
	old := Provider{Pool: pool, ID: provider, IssuerURL: issuerURL, Audiences: p.accepted(pool, provider, have), Mapping: have.Mapping, Condition: have.Condition}
	if have.OIDC.JWKS != "" {
		old.JWKS = []byte(have.OIDC.JWKS)
	}
	return old, nil
}

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
		add(PoolUser{Email: a.Email, Workload: OwnedByKeypost().owns(a.Description)}, policies[a.Email])
	}
	slices.SortFunc(users, func(a, b PoolUser) int { return strings.Compare(a.Email, b.Email) })
	add(PoolUser{}, &project)
	return users, nil
}

// take adds those of a policy's members that are of a pool, and reports whether there are any.
func (u *PoolUser) take(p Project, pool string, of allow.Policy) bool {
	for _, b := range of.Bindings {
		for _, m := range b.Members {
			if _, name, _ := strings.Cut(m, "://iam.googleapis.com/"); !strings.HasPrefix(name, p.PoolName(pool)+"/") {
				continue
			}
			subject := strings.TrimPrefix(m, p.subjects(pool))
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
