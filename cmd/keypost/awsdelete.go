package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision"
	"github.com/keypost/keypost/provision/awsiam"
)

func (a *app) awsDelete() *cobra.Command {
	f := &awsFlags{}
	cmd := &cobra.Command{
		Use:   "delete --name NAME --region REGION",
		Short: "Delete the roles and the provider that bear a name's tag",
		Long: "Delete the roles and IAM OIDC identity providers that keypost or ccoctl made under a name. With --issuer-url, only\n" +
			"this issuer's provider and its statements in trust policies. The key store stays as it is.",
		Args: exactly(0),
	}
	fs := cmd.Flags()
	f.target(cmd, "AWS region whose IAM endpoint is called")
	fs.StringVar(&f.issuerURL, "issuer-url", "", "delete only what belongs to this issuer")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print what would be deleted, and delete nothing")
	required(cmd, "region")
	cmd.RunE = a.awsDo(f, func(ctx context.Context, r *awsRun) error { return r.delete(ctx) })
	return cmd
}

func (r *awsRun) delete(ctx context.Context) error {
	if err := r.identify(ctx); err != nil {
		return err
	}
	plan, err := r.client.PlanDelete(ctx, r.account, awsiam.Deletion{Name: r.f.name, IssuerURL: r.f.issuerURL})
	if err != nil {
		return err
	}
	if r.f.dryRun {
		return plan.Write(r.out)
	}
	if err := r.settle(ctx, plan); err != nil {
		return err
	}
	if plan.Empty() {
		r.journal.printf("Nothing in account %s bears the tag %s", r.account.ID, awsiam.OwnedBy(r.f.name))
	}
	r.removalSteps(ctx, plan)
	return nil
}

// removalSteps says how to stop publishing, which other accounts and cloud providers may still need.
func (r *awsRun) removalSteps(ctx context.Context, plan provision.Plan) {
	gone := []string{r.f.issuerURL}
	if r.f.issuerURL == "" {
		gone = providerURLs(plan)
	}
	for _, url := range gone {
		r.notice("the keys of %s are still published; when nothing trusts them any more:", url)
		r.notice("  keypost issuer remove %s --confirm-url %s --why REASON", r.nameInStore(ctx, url), url)
	}
}

func providerURLs(plan provision.Plan) []string {
	var urls []string
	for _, s := range plan.Stages {
		for _, a := range s {
			if url, err := awsiam.ProviderURL(a.Name); err == nil && a.Verb == provision.Delete {
				urls = append(urls, url)
			}
		}
	}
	return urls
}

// nameInStore is how the store calls an issuer; where no store is at hand, its URL will do.
func (r *awsRun) nameInStore(ctx context.Context, url string) string {
	st, err := r.openStore(ctx)
	if err != nil {
		return url
	}
	sets, _, err := all(ctx, st)
	if err != nil {
		return url
	}
	i := slices.IndexFunc(sets, func(s keystore.KeySet) bool { return slices.Contains(urls(s), url) })
	if i < 0 {
		return url
	}
	return string(sets[i].Name())
}
