package gcp

import (
	"context"
	"slices"

	"github.com/keypost/keypost/provision/credrequest"
	"github.com/keypost/keypost/provision/gcp/internal/rest"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// DeleteOptions say what to take away of an installation.
type DeleteOptions struct {
	Options
	Requests    string // directory with the CredentialsRequests, by which more of ccoctl's accounts are found; may be empty
	CustomRoles bool   // also the custom roles that no other account has
}

// Deleted is what [Delete] did.
type Deleted struct {
	Preview *plan.Preview // with mode Preview; Issuers is empty then
	Issuers []install.StillPublished
}

// Delete deletes the accounts of an installation with their bindings, and its pool with the provider.
func Delete(ctx context.Context, o DeleteOptions) (Deleted, error) {
	r := newRun(o.Options)
	d := Deletion{Name: o.Name, Pool: o.PoolID, CustomRoles: o.CustomRoles}
	if o.Requests != "" {
		var skipped []string
		var err error
		if d.Requests, skipped, err = requestNames(o.Requests); err != nil {
			return Deleted{}, err
		}
		r.Lines(skipped)
	}
	if err := (Wanted{Pool: o.pool()}).Check(); err != nil {
		return Deleted{}, err
	}
	if err := r.identify(ctx); err != nil {
		return Deleted{}, err
	}
	issuers := r.client.issuers(ctx, r.project, o.pool().ID)
	p, err := r.client.PlanDelete(ctx, d)
	if err != nil {
		return Deleted{}, err
	}
	if preview, err := r.carryOut(ctx, p); err != nil || preview != nil {
		return Deleted{Preview: preview}, err
	}
	if p.Empty() {
		r.Line("Nothing in project %s belongs to %s", r.project.ID, o.Name)
		return Deleted{}, nil
	}
	return Deleted{Issuers: r.StillPublished(ctx, issuers)}, nil
}

// requestNames returns the names of the CredentialsRequests in a directory that ask for an account, whatever feature set they are for:
// nobody knows with which flag the accounts were made. skipped are the lines about what is left out whatever the set.
func requestNames(dir string) (names, skipped []string, err error) {
	for _, techPreview := range []bool{false, true} {
		requests, lines, err := credrequest.ReadDir(credrequest.GCP, dir, techPreview)
		if err != nil {
			return nil, nil, err
		}
		for _, q := range requests {
			if !q.HasIdentity() {
				names = append(names, q.Name)
			}
		}
		if !techPreview {
			skipped = lines
			continue
		}
		skipped = slices.DeleteFunc(skipped, func(line string) bool { return !slices.Contains(lines, line) })
	}
	return minus(names, nil), skipped, nil
}

// issuers returns those that the providers of a pool trust, of which a moved cluster has had two; none if the pool is gone, or cannot be
// read, which whoever deletes it finds out.
func (c *Client) issuers(ctx context.Context, p Project, pool string) []string {
	k := providerCall(p.PoolName(pool)+"/providers", "ListWorkloadIdentityPoolProviders", "list")
	all, err := rest.List[providerState](ctx, c.rest, k, "workloadIdentityPoolProviders")
	if err != nil {
		return nil
	}
	var urls []string
	for _, have := range all {
		if have.OIDC != nil && have.State != deleted {
			urls = append(urls, have.OIDC.Issuer)
		}
	}
	return minus(urls, nil)
}
