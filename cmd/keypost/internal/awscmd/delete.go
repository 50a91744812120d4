package awscmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/install"
)

func (r *run) newDelete() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "delete --name NAME --region REGION",
		Short: "Delete the roles and the provider that bear a name's tag",
		Long: "Delete the roles and IAM OIDC identity providers that keypost or ccoctl made under a name. Roles of create-role, and\n" +
			"whatever else does not have the name's tag, stay.\n\n" +
			"With --issuer-url nothing but this issuer's provider is deleted, and its statements are taken out of the trust\n" +
			"policies of the name's roles and create-role's. No role is deleted. Where one trusts nobody else, nothing is done.\n\n" +
			"The key store stays as it is, and so does a bucket of ccoctl's; what removes them is printed.",
	}, r.delete, "name", "dry-run=print what would be changed and deleted, and do nothing")
}

func (r *run) delete(ctx context.Context) error {
	if r.DryRun {
		r.Mode = install.Preview
	}
	deleted, err := aws.Delete(ctx, aws.DeleteOptions{Options: r.Options})
	return r.Deleted(deleted.Preview, deleted.Issuers, err, r.sayStorage)
}

// sayStorage prints how to remove what ccoctl keeps an issuer's documents in. It reports whether the issuer is one of
// ccoctl's.
func (r *run) sayStorage(issuer string) bool {
	bucket, region := bucketOf(issuer)
	switch {
	case bucket != "":
		r.Notice("The bucket of %s stays; what removes it, once nothing needs its documents:", issuer)
		r.Notice("  %s", cli.Paste("aws s3 rm s3://"+bucket+" --recursive --region "+region+" && aws s3api delete-bucket --bucket "+bucket+" --region "+region))
	case isCloudFront(issuer):
		r.Notice("The CloudFront distribution of %s and the bucket behind it stay; nothing here removes them", issuer)
	}
	return bucket != "" || isCloudFront(issuer)
}
