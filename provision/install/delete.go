package install

import (
	"context"

	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/plan"
)

// DeleteOptions say what to take away of an installation.
type DeleteOptions struct {
	Options      // with IssuerURL, only this issuer's provider and its statements go, and no role; the Store stays as it is
	Strand  bool // with IssuerURL: also where a role trusts nobody else
}

// Deleted is what [Delete] did.
type Deleted struct {
	Preview *plan.Preview // with mode Preview; Issuers is empty then
	Issuers []StillPublished
}

// StillPublished is an issuer without a provider, whose keys other accounts and clouds may still need.
type StillPublished struct {
	URL    string
	KeySet string // that publishes it, if the key store has one
	Asked  bool   // the key store could be asked, so that an empty KeySet means that it publishes nothing
}

// Delete deletes the roles and providers that bear the tag of the installation, roles first. The error is an
// [*awsiam.StrandedError] if a role trusts nobody but the issuer to be taken away.
func Delete(ctx context.Context, o DeleteOptions) (Deleted, error) {
	r := newRun(o.Options)
	if err := r.identify(ctx, o.Options); err != nil {
		return Deleted{}, err
	}
	p, err := r.client.PlanDelete(ctx, r.account, awsiam.Deletion{Name: o.Name, IssuerURL: o.IssuerURL, Strand: o.Strand})
	if err != nil {
		return Deleted{}, err
	}
	if preview, err := r.carryOut(ctx, o.Mode, p); err != nil || preview != nil {
		return Deleted{Preview: preview}, err
	}
	if p.Empty() {
		if o.IssuerURL != "" {
			r.line("Nothing of %s in account %s trusts %s", o.Name, r.account.ID, o.IssuerURL)
		} else {
			r.line("Nothing in account %s bears the tag %s", r.account.ID, awsiam.OwnedBy(o.Name))
		}
	}
	issuers := []string{o.IssuerURL}
	if o.IssuerURL == "" {
		issuers = deletedProviders(p)
	}
	var done Deleted
	for _, url := range issuers {
		name, asked := r.publishedBy(ctx, url)
		done.Issuers = append(done.Issuers, StillPublished{URL: url, KeySet: name, Asked: asked})
	}
	return done, nil
}

// deletedProviders returns the issuer URLs of the providers that a plan deletes.
func deletedProviders(p plan.Plan) []string {
	var urls []string
	for _, c := range p.Preview().Changes {
		if url, err := awsiam.ProviderURL(c.Name); err == nil && c.Verb == plan.Delete {
			urls = append(urls, url)
		}
	}
	return urls
}

// publishedBy returns the name of the key set with an issuer URL, and whether the store could be asked.
func (r *run) publishedBy(ctx context.Context, url string) (name string, asked bool) {
	if r.store.Open == nil {
		return "", false
	}
	st, err := r.store.Open(ctx)
	if err != nil {
		return "", false
	}
	c, err := catalog.ReadAll(ctx, st)
	if err != nil {
		return "", false
	}
	if s, found := c.InUse(url); found {
		return string(s.Name()), true
	}
	return "", len(c.Unread) == 0
}
