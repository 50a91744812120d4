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
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/webidentity"
)

// migrateFlags are those of aws migrate.
type migrateFlags struct {
	flags
	move cloudcmd.Migration
}

func newCmdMigrate(factory *cli.Factory) *cobra.Command {
	f := &migrateFlags{}
	cmd := f.command(factory, cobra.Command{
		Use:   "migrate --from-issuer-url OLD --issuer-url NEW [--kubeconfig FILE] [--finish]",
		Short: "Move a live cluster from an old issuer, such as a public bucket, to a new one",
		Long: "Publish the keys of OLD under NEW, make NEW's IAM OIDC identity provider, and give every role that trusts OLD a\n" +
			"second statement that trusts NEW; then print the one command that switches the cluster. Tokens of both issuers are\n" +
			"good from then on. Once every kube-apiserver signs as NEW, the same command with --finish takes OLD's statements and\n" +
			"provider away; it refuses (exit code 75, with the time) as long as a token of OLD may still be in use.\n\n" +
			"Each run does what is still to be done; it may be stopped at any point.",
		Example: "  keypost aws migrate --name prod-a --from-issuer-url https://prod-a-oidc.s3.us-east-1.amazonaws.com \\\n" +
			"    --issuer-url https://oidc.example.com/prod-a --kubeconfig admin.kubeconfig",
	}, f.run)
	f.register(cmd)
	return cmd
}

func (f *migrateFlags) register(cmd *cobra.Command) {
	fs := f.define(cmd, "name", "diff", "user-tags", "adopt", "thumbprint")
	fs.Lookup("name").Usage = "the cluster's name, with which its roles and OLD's provider are tagged (default as in ccoctl's bucket, NAME-oidc)"
	fs.Lookup("thumbprint").Usage = "SHA-1 of a CA of NEW that AWS does not know, 40 hex digits (repeatable)"
	f.clientIDs(fs, "openshift", "sts.amazonaws.com")
	f.move.Define(fs, "take OLD's statements and provider away")
	fs.BoolVar(&f.force, "force", false, "go on although OLD is a CloudFront address, which can be kept")
	cloudcmd.Required(cmd, "from-issuer-url", "issuer-url")
}

func (f *migrateFlags) checkMigration() error {
	if f.Name == "" {
		f.Name = bucketName(f.move.Old)
	}
	err := f.move.CheckIssuers(f.IssuerURL, "trust")
	if err == nil && f.Name == "" {
		err = cli.Usagef("the cluster's --name is needed: %s is not an address of a bucket NAME-oidc, as ccoctl makes them", f.move.Old)
	}
	if err := cmp.Or(err, f.move.CheckCluster()); err != nil {
		return err
	}
	if err := f.move.CheckFinish(); err != nil {
		return cli.WithHint(err, "where they cannot be asked, this takes the old trust away on your word, and deletes no role: %s",
			cli.Command{"aws", "delete", "--name", f.Name, "--region", cmp.Or(f.Region, "REGION"), "--issuer-url", f.move.Old})
	}
	return nil
}

func (f *migrateFlags) run(ctx context.Context, r *run) error {
	if err := f.checkMigration(); err != nil {
		return err
	}
	if isCloudFront(f.move.Old) && !f.force {
		return f.keepCloudFront()
	}
	migrate := aws.Migrate
	if f.move.Finish {
		migrate = aws.FinishMigration
		r.WithoutStore() // then the lifetime of tokens comes only from the pods
	} else if err := f.cloud.ReadIssuer(r.Factory); err != nil {
		return err
	}
	done, err := migrate(ctx, aws.MigrateOptions{Options: f.Options, Move: f.move.Reading(r.Factory)})
	if err == nil {
		r.SayGate(done.Gate)
	}
	switch end, err := r.Ended(done.Preview, f.hinted(r, err)); {
	case end:
		return err
	case f.move.Finish:
		f.sayBucket(r)
		return r.Result(cloudcmd.Moved{From: f.move.Old, To: f.IssuerURL, Finished: true})
	}
	return f.sayNext(r, done)
}

// hinted adds to an error of a migration what to do about it.
func (f *migrateFlags) hinted(r *run, err error) error {
	if e, closed := errors.AsType[*keystore.NotYetError](err); closed && e.Gate == gate.GateSigning {
		return cli.WithHint(err, "switch the cluster; how is printed by %s", f.move.Again(r.Run, false))
	}
	if e, is := errors.AsType[*install.Error](err); is && e.Problem == install.LostAudience {
		return cli.WithHint(err, "add %s; or, if no pod needs it, take it away first: %s", cli.Quoted("--client-id", e.Audience),
			webidentity.Command("remove-client-id-from-open-id-connect-provider", "--open-id-connect-provider-arn", e.Provider, "--client-id", e.Audience))
	}
	return f.move.Hinted(&f.cloud, err)
}

// sayNext prints what switches the cluster, and what comes before and after.
func (f *migrateFlags) sayNext(r *run, done aws.Migrated) error {
	openShift, known, next, old := done.OpenShift, done.Known, f.IssuerURL, f.move.Old
	r.Notice("AWS takes tokens of both issuers now. What switches the cluster:")
	if !openShift {
		r.Notice("First restart every kube-apiserver with")
		f.sayFirstRound(r)
	}
	switching := cloudcmd.SwitchOpenShift(next)
	if !openShift {
		switching = cli.Quoted("--service-account-issuer="+next, "--service-account-issuer="+old)
	}
	if err := r.PrintSwitch(cloudcmd.Moved{From: old, To: next, KeySet: done.KeySet.Name(), Switch: switching}); err != nil {
		return err
	}
	switch {
	case openShift && !known:
		r.Notice("On OpenShift. With kubeadm and others there are two rounds. First restart every kube-apiserver with")
		f.sayFirstRound(r)
		r.Notice("  %s", cli.Paste(cli.Quoted("--service-account-issuer="+next, "--service-account-issuer="+old)))
	case !openShift:
		r.Notice("The first issuer signs, both are accepted. kubeadm 1.34.0 to 1.34.2 sorts repeated extraArgs; look at the")
		r.Notice("manifest of the static pod afterwards.")
	}
	if openShift {
		r.Notice("OpenShift's kube-apiservers restart one after the other, and accept tokens of %s for 24 hours more: the", old)
		r.Notice("kubelet renews those of running pods within that time; restart what read its token only once.")
	}
	r.Notice("Then, as often as it takes:")
	r.Notice("  %s", f.move.Again(r.Run, true))
	r.SayLifetime(done.KeySet)
	return nil
}

// sayFirstRound prints the flags with which every kube-apiserver accepts the new issuer before any signs as it: one that
// still has the old flags answers 401 to the tokens that another has just signed as the new one.
func (f *migrateFlags) sayFirstRound(r *run) {
	r.Notice("  %s", cli.Paste(cli.Quoted("--service-account-issuer="+f.move.Old, "--service-account-issuer="+f.IssuerURL)))
	r.Notice("(and with both issuers in --api-audiences, if that is set), so that none refuses the tokens that another has just")
	r.Notice("signed. Once the last one has restarted, restart every kube-apiserver with the order switched:")
}

// isCloudFront reports whether a URL is that of a distribution, as ccoctl's --create-private-s3-bucket makes it.
func isCloudFront(issuer string) bool {
	u, err := url.Parse(issuer)
	return err == nil && strings.HasSuffix(u.Hostname(), ".cloudfront.net")
}

// keepCloudFront returns an error that says how to do without a move: unlike a bucket, a distribution can get another origin.
func (f *migrateFlags) keepCloudFront() error {
	old := f.move.Old
	return cli.WithHint(fmt.Errorf("nothing was done: %s is an address of CloudFront, which can be kept, and with it every token, role and provider", old),
		"publish its keys under it: %s; give the distribution keypostd as its origin (docs/cdn/README.md#cloudfront), with %s in issuerURLs; to move to %s nevertheless, add --force",
		cli.Command{"issuer", "add", f.Name, "--url", old, "--jwks", old, "--relying-party", "aws"}, cli.Quoted(f.Name+"="+old), f.IssuerURL)
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

// sayBucket prints what becomes of OLD itself, which nothing here touches.
func (f *migrateFlags) sayBucket(r *run) {
	r.Notice("Nothing trusts %s any more.", f.move.Old)
	r.sayStorage(f.move.Old)
	r.Notice("Do not use ccoctl aws delete for it: the roles and the new provider bear the same tag and would be deleted too.")
}
