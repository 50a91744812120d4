package aws

import (
	"context"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// DeleteOptions say what to take away of an installation.
type DeleteOptions struct {
	Options // with IssuerURL, only this issuer's provider and its statements go, and no role; the Store stays as it is
}

// Deleted is what [Delete] did.
type Deleted struct {
	Preview *plan.Preview // with mode Preview; Issuers is empty then
	Issuers []install.StillPublished
}

// Delete deletes the roles and providers that bear the tag of the installation, roles first. The error has
// the problem [awsiam.Stranded] if a role trusts nobody but the issuer to be taken away.
func Delete(ctx context.Context, o DeleteOptions) (Deleted, error) {
	r := newRun(o.Options)
	if err := r.identify(ctx); err != nil {
		return Deleted{}, err
	}
	p, err := r.client.PlanDelete(ctx, r.account, awsiam.Deletion{Name: o.Name, IssuerURL: o.IssuerURL})
	if err != nil {
		return Deleted{}, err
	}
	if preview, err := r.carryOut(ctx, p); err != nil || preview != nil {
		return Deleted{Preview: preview}, err
	}
	if p.Empty() {
		if o.IssuerURL != "" {
			r.Line("Nothing of %s in account %s trusts %s", o.Name, r.account.ID, o.IssuerURL)
		} else {
			r.Line("Nothing in account %s bears the tag %s", r.account.ID, awsiam.OwnedBy(o.Name))
		}
	}
	issuers := []string{o.IssuerURL}
	if o.IssuerURL == "" {
		issuers = deletedProviders(p)
	}
	return Deleted{Issuers: r.StillPublished(ctx, issuers)}, nil
}

// deletedProviders returns the issuer URLs of the providers that a plan deletes.
func deletedProviders(p plan.Plan) []string {
	var urls []string
	for _, c := range p.Preview().Changes {
		if url, err := api.ProviderURL(c.Name); err == nil && c.Verb == plan.Delete {
			urls = append(urls, url)
		}
	}
	return urls
}
