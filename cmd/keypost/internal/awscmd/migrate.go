package awscmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/provision/aws"
)

func (r *run) newMigrate() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "migrate --from-issuer-url OLD --issuer-url NEW [--kubeconfig FILE] [--finish]",
		Short: "Move a live cluster from an old issuer, such as a public bucket, to a new one",
		Long: "Publish the keys of OLD under NEW, make NEW's IAM OIDC identity provider, and give every role that trusts OLD a\n" +
			"second statement that trusts NEW; then print the one command that switches the cluster. Tokens of both issuers are\n" +
			"good from then on. Once every kube-apiserver signs as NEW, the same command with --finish takes OLD's statements and\n" +
			"provider away; it refuses (exit code 75, with the time) as long as a token of OLD may still be in use.\n\n" +
			"Each run does what is still to be done; it may be stopped at any point.",
		Example: "  keypost aws migrate --name prod-a --from-issuer-url https://prod-a-oidc.s3.us-east-1.amazonaws.com \\\n" +
			"    --issuer-url https://oidc.example.com/prod-a --kubeconfig admin.kubeconfig",
	}, r.migrate, append(cloudcmd.MoveFlags(), "finish", "diff", "user-tags", "adopt", "client-id",
		"name=the cluster's name, with which its roles and OLD's provider are tagged (default as in ccoctl's bucket, NAME-oidc)",
		"thumbprint=SHA-1 of a CA of NEW that AWS does not know, 40 hex digits (repeatable)",
		"force")...)
}

func (r *run) migrate(ctx context.Context) error {
	old := r.Move.Old
	r.Name = cmp.Or(r.Name, bucketName(old))
	move, err := r.Moving("trust")
	switch {
	case err != nil && r.Finish && r.Move.Cluster.Kubeconfig == "":
		return cli.WithHint(err, "where they cannot be asked, this takes the old trust away on your word, and deletes no role: %s",
			cli.Command{"aws", "delete", "--name", cmp.Or(r.Name, "NAME"), "--region", cmp.Or(r.Region, "REGION"), "--issuer-url", old})
	case err != nil:
		return err
	case r.Name == "":
		return cli.Usagef("the cluster's --name is needed: %s is not an address of a bucket NAME-oidc, as ccoctl makes them", old)
	case isCloudFront(old) && !r.force:
		return r.keepCloudFront()
	}
	migrate := aws.Migrate
	if r.Finish {
		migrate = aws.FinishMigration
	}
	done, err := migrate(ctx, aws.MigrateOptions{Options: r.Options, Move: move})
	if e, closed := errors.AsType[*keystore.NotYetError](err); closed && e.Gate == gate.GateSigning {
		return cli.WithHint(err, "switch the cluster; how is printed by %s", r.MoveAgain(false))
	}
	switch end, err := r.MoveEnded(done.Preview, done.Gate, r.MoveHinted(err)); {
	case end:
		return err
	case r.Finish:
		r.Notice("Nothing trusts %s any more.", old)
		r.sayStorage(old)
		r.Notice("Do not use ccoctl aws delete for it: the roles and the new provider bear the same tag and would be deleted too.")
		return r.Finished()
	}
	return r.sayNext(done)
}

// sayNext prints what switches the cluster, and what comes before and after.
func (r *run) sayNext(done aws.Migrated) error {
	next, old := r.IssuerURL, r.Move.Old
	r.Notice("AWS takes tokens of both issuers now. What switches the cluster:")
	switching := cloudcmd.SwitchOpenShift(next)
	if !done.OpenShift {
		r.Notice("First restart every kube-apiserver with")
		r.sayFirstRound()
		switching = cloudcmd.IssuerFlags(next, old)
	}
	if err := r.PrintSwitch(done.KeySet, switching); err != nil {
		return err
	}
	switch {
	case done.OpenShift && !done.Known:
		r.Notice("On OpenShift. With kubeadm and others there are two rounds. First restart every kube-apiserver with")
		r.sayFirstRound()
		r.Notice("  %s", cli.Paste(cloudcmd.IssuerFlags(next, old)))
	case !done.OpenShift:
		r.Notice("The first issuer signs, both are accepted. kubeadm 1.34.0 to 1.34.2 sorts repeated extraArgs; look at the")
		r.Notice("manifest of the static pod afterwards.")
	}
	r.SayFinish(done.KeySet, done.OpenShift)
	return nil
}

// sayFirstRound prints the flags with which every kube-apiserver accepts the new issuer before any signs as it: one that
// still has the old flags answers 401 to the tokens that another has just signed as the new one.
func (r *run) sayFirstRound() {
	r.Notice("  %s", cli.Paste(cloudcmd.IssuerFlags(r.Move.Old, r.IssuerURL)))
	r.Notice("(and with both issuers in --api-audiences, if that is set), so that none refuses the tokens that another has just")
	r.Notice("signed. Once the last one has restarted, restart every kube-apiserver with the order switched:")
}

// isCloudFront reports whether a URL is that of a distribution, as ccoctl's --create-private-s3-bucket makes it.
func isCloudFront(issuer string) bool {
	u, err := url.Parse(issuer)
	return err == nil && strings.HasSuffix(u.Hostname(), ".cloudfront.net")
}

// keepCloudFront returns an error that says how to do without a move: unlike a bucket, a distribution can get another origin.
func (r *run) keepCloudFront() error {
	old := r.Move.Old
	return cli.WithHint(fmt.Errorf("nothing was done: %s is an address of CloudFront, which can be kept, and with it every token, role and provider", old),
		"publish its keys under it: %s; give the distribution keypostd as its origin (docs/cdn/README.md#cloudfront), with %s in issuerURLs; to move to %s nevertheless, add --force",
		cli.Command{"issuer", "add", r.Name, "--url", old, "--jwks", old, "--relying-party", "aws"}, cli.Quoted(r.Name+"="+old), r.IssuerURL)
}

// bucketHost is a bucket's own address, in every partition.
var bucketHost = regexp.MustCompile(`^https://([a-z0-9.-]+)\.s3[.-]([a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|amazonaws\.eu|c2s\.ic\.gov|sc2s\.sgov\.gov|cloud\.adc-e\.uk|csp\.hci\.ic\.gov)$`)

// bucketOf is ccoctl's bucket behind an issuer URL; "" for any other address.
func bucketOf(issuer string) (bucket, region string) {
	found := bucketHost.FindStringSubmatch(issuer)
	if found == nil || !strings.HasSuffix(found[1], "-oidc") {
		return "", ""
	}
	return found[1], found[2]
}

// bucketName is the --name with which ccoctl made the bucket behind an issuer URL; "" if it did not.
func bucketName(issuer string) string {
	bucket, _ := bucketOf(issuer)
	return strings.TrimSuffix(bucket, "-oidc")
}
