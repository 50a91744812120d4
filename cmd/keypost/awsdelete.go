package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/plan"
)

func (a *app) awsDelete() *cobra.Command {
	f := &awsFlags{}
	cmd := &cobra.Command{
		Use:   "delete --name NAME --region REGION",
		Short: "Delete the roles and the provider that bear a name's tag",
		Long: "Delete the roles and IAM OIDC identity providers that keypost or ccoctl made under a name. Roles of create-role, and\n" +
			"whatever else lacks the name's tag, stay.\n\n" +
			"With --issuer-url nothing but this issuer's provider is deleted, and its statements are taken out of the trust\n" +
			"policies of the name's roles and create-role's. No role is deleted. Where one trusts nobody else, nothing is done\n" +
			"without --force.\n\n" +
			"The key store stays as it is, and so does a bucket of ccoctl's; what removes them is printed.",
		Args: exactly(0),
	}
	fs := cmd.Flags()
	f.target(cmd, "AWS region whose IAM endpoint is called")
	fs.StringVar(&f.issuerURL, "issuer-url", "", "take away only this issuer's provider and its statements; roles stay")
	fs.BoolVar(&f.force, "force", false, "with --issuer-url: also where a role trusts nobody else; it stays, and nobody may assume it")
	fs.BoolVar(&f.dev, "dev", false, "a development issuer of keypostd --dev: its URL may have a port")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print what would be changed and deleted, and do nothing")
	required(cmd, "region")
	cmd.RunE = a.awsDo(f, func(ctx context.Context, r *awsRun) error { return r.delete(ctx) })
	return cmd
}

func (r *awsRun) delete(ctx context.Context) error {
	if r.f.force && r.f.issuerURL == "" {
		return usagef("--force needs --issuer-url: without it, the name's roles are deleted in any case")
	}
	if err := r.identify(ctx); err != nil {
		return err
	}
	deletion, err := r.client.PlanDelete(ctx, r.account, awsiam.Deletion{Name: r.f.name, IssuerURL: r.f.issuerURL, Strand: r.f.force})
	if stranded, is := errors.AsType[*awsiam.StrandedError](err); is {
		return withHint(stranded, "to move a live cluster: %s; to delete all of %s, roles too, leave --issuer-url out; "+
			"to leave the roles without anybody who may assume them, add --force", command{"aws", "migrate", "--name", r.f.name,
			"--from-issuer-url", r.f.issuerURL, "--issuer-url", "NEW", "--kubeconfig", "FILE"}, r.f.name)
	}
	if err != nil {
		return err
	}
	if r.f.dryRun {
		return deletion.Preview().Write(r.Out)
	}
	if err := r.settle(ctx, deletion); err != nil {
		return err
	}
	if deletion.Empty() {
		r.journal.printf("%s", r.nothingFound())
	}
	r.removalSteps(ctx, deletion)
	return nil
}

func (r *awsRun) nothingFound() string {
	if r.f.issuerURL != "" {
		return fmt.Sprintf("Nothing of %s in account %s trusts %s", r.f.name, r.account.ID, r.f.issuerURL)
	}
	return fmt.Sprintf("Nothing in account %s bears the tag %s", r.account.ID, awsiam.OwnedBy(r.f.name))
}

// removalSteps says how to stop publishing, which other accounts and cloud providers may still need.
func (r *awsRun) removalSteps(ctx context.Context, deletion plan.Plan) {
	gone := []string{r.f.issuerURL}
	if r.f.issuerURL == "" {
		gone = providerURLs(deletion)
	}
	for _, url := range gone {
		if r.sayStorage(url) {
			continue
		}
		name, known := r.nameInStore(ctx, url)
		switch {
		case name != "":
			r.notice("the keys of %s are still published; when nothing trusts them any more:", url)
			r.notice("  %s", command{"issuer", "remove", name, "--confirm-url", url, "--why", "REASON"})
		case !known:
			r.notice("if a key store publishes %s, its keys still are; when nothing trusts them any more:", url)
			remove := command{"issuer", "remove", url, "--confirm-url", url, "--why", "REASON"}
			if !strings.Contains(r.line(remove), " --store ") {
				remove = append(remove, "--store", "STORE")
			}
			r.notice("  %s", remove)
		}
	}
}

// sayStorage says how to remove what ccoctl keeps an issuer's documents in. It reports whether the issuer is one of
// ccoctl's.
func (a *app) sayStorage(issuer string) bool {
	bucket, region := bucketOf(issuer)
	switch {
	case bucket != "":
		a.notice("The bucket of %s stays; what removes it, once nothing needs its documents:", issuer)
		a.notice("  aws s3 rm s3://%s --recursive --region %s && aws s3api delete-bucket --bucket %s --region %s", bucket, region, bucket, region)
	case isCloudFront(issuer):
		a.notice("The CloudFront distribution of %s and the bucket behind it stay; nothing here removes them", issuer)
	}
	return bucket != "" || isCloudFront(issuer)
}

func providerURLs(p plan.Plan) []string {
	var urls []string
	for _, s := range p.Stages {
		for _, a := range s {
			if url, err := awsiam.ProviderURL(a.Name); err == nil && a.Verb == plan.Delete {
				urls = append(urls, url)
			}
		}
	}
	return urls
}

// nameInStore is how the store calls an issuer; "" if no key set has it. known is false when there is no store to ask.
func (r *awsRun) nameInStore(ctx context.Context, url string) (name string, known bool) {
	st, err := r.openStore(ctx)
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
