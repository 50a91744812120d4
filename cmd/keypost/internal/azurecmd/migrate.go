package azurecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/cloudcmd"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/install"
)

// migrateFlags are those of azure migrate.
type migrateFlags struct {
	flags
	move   install.Move
	jwks   string
	finish bool
}

func newCmdMigrate(factory *cli.Factory) *cobra.Command {
	f := &migrateFlags{}
	cmd := f.command(factory, cobra.Command{
		Use:   "migrate --name NAME --subscription-id ID --from-issuer-url OLD --issuer-url NEW [--kubeconfig FILE] [--finish]",
		Short: "Move a live cluster from an old issuer, such as public storage, to a new one",
		Long: "Publish the keys of OLD under NEW, and give every identity of NAME a second federated credential, for NEW, beside each\n" +
			"that it has for OLD; then print the one command that switches the cluster. Tokens of both issuers are good from then\n" +
			"on. Once every kube-apiserver signs as NEW, the same command with --finish takes OLD's credentials away; it refuses\n" +
			"(exit code 75, with the time) as long as a token of OLD may still be in use.\n\n" +
			"Each run does what is still to be done; it may be stopped at any point.",
		Example: "  keypost azure migrate --name prod-a --subscription-id 11111111-2222-3333-4444-555555555555 \\\n" +
			"    --from-issuer-url https://proda.blob.core.windows.net/prod-a --issuer-url https://oidc.example.com/prod-a --kubeconfig admin.kubeconfig",
	}, f.run)
	fs := f.define(cmd, append(cli.ShieldFiles(), "name", "subscription-id", "tenant-id", "oidc-resource-group-name", "audience", "cloud", "diff", "issuer-url",
		"ca-file", "connect", "dev", "why")...)
	fs.Lookup("name").Usage = "the cluster's name, with which its identities are tagged"
	fs.Lookup("audience").Usage = "audience of the cluster's tokens for Azure"
	fs.Lookup("ca-file").Usage = "PEM file with the CA of NEW, instead of the system's"
	fs.Lookup("connect").Usage = "HOST:PORT at which to look for NEW instead of its URL's own addresses"
	fs.StringVar(&f.move.Old, "from-issuer-url", "", "the issuer URL that the cluster's tokens carry now")
	fs.StringVar(&f.jwks, "jwks", "", "JWKS file or URL with OLD's keys, where OLD cannot be reached from here (default OLD itself)")
	fs.BoolVar(&f.finish, "finish", false, "take OLD's federated credentials away")
	fs.DurationVar(&f.move.TokenLifetime, "token-lifetime", 0, "the longest life of a token for Azure, where pods and policy do not say")
	fs.StringVar(&f.move.Cluster.Kubeconfig, "kubeconfig", "", "kubeconfig of the cluster: to check its keys, and to see whether it was switched")
	fs.StringVar(&f.move.Cluster.Context, "context", "", "context in the kubeconfig (default the current one)")
	fs.StringVar(&f.move.Cluster.ServiceAccount, "service-account", "",
		"NAMESPACE/NAME for which each kube-apiserver is made to mint a token (default default/default)")
	f.cloud.DefinePolicy(fs)
	required(cmd, "name", "subscription-id", "from-issuer-url", "issuer-url")
	return cmd
}

func (f *migrateFlags) checkMigration() error {
	old, err := url.Parse(f.move.Old)
	switch {
	case err != nil || old.Scheme != "https" || old.Host == "" || old.RawQuery != "" || old.Fragment != "":
		return cli.Usagef("--from-issuer-url %q is no issuer URL: it begins with https:// and has neither query nor fragment", f.move.Old)
	case f.move.Old == f.IssuerURL:
		return cli.Usagef("--from-issuer-url and --issuer-url are the same; a cluster that keeps its issuer needs no new trust")
	case f.move.Cluster.Context != "" && f.move.Cluster.Kubeconfig == "":
		return cli.Usagef("--context needs --kubeconfig")
	case f.move.TokenLifetime < 0 || f.move.TokenLifetime%time.Second != 0:
		return cli.Usagef("--token-lifetime %v: it must be whole seconds, not negative", f.move.TokenLifetime)
	case f.finish && f.move.Cluster.Kubeconfig == "":
		return cli.Usagef("--finish needs --kubeconfig: only a token from every kube-apiserver shows that none signs as %s any more", f.move.Old)
	}
	return nil
}

func (f *migrateFlags) run(ctx context.Context, r *run) error {
	if err := f.checkMigration(); err != nil {
		return err
	}
	migrate := azure.Migrate
	if f.finish {
		migrate = azure.FinishMigration
		r.withoutStore() // then the lifetime of tokens comes from --token-lifetime and the pods
	} else if err := f.cloud.ReadIssuer(); err != nil {
		return err
	}
	f.move.OldKeys = func(ctx context.Context) ([]keystore.VerificationKey, error) {
		source := keysource.Flags{JWKS: cmp.Or(f.jwks, f.move.Old)}
		found, err := source.Read(ctx, r.Factory)
		return found.Keys, err
	}
	done, err := migrate(ctx, azure.MigrateOptions{Options: f.Options, Move: f.move})
	if err == nil && done.Gate != nil {
		r.End()
		r.Notice("%v", done.Gate)
	}
	switch end, err := r.Ended(done.Preview, f.hinted(err)); {
	case end:
		return err
	case f.finish:
		r.Notice("Nothing of %s trusts %s any more. What create-identity made for workloads may still trust it: take those federated credentials away, too", f.Name, f.move.Old)
		r.Notice("Its storage account stays; what removes it, once nothing needs its documents or trusts it: az storage account delete")
		return r.Result(moved{From: f.move.Old, To: f.IssuerURL, Finished: true})
	}
	return f.sayNext(r, done.KeySet)
}

// hinted adds to an error of a migration what to do about it.
func (f *migrateFlags) hinted(err error) error {
	if e, closed := errors.AsType[*keystore.NotYetError](err); closed && e.Gate == keystore.GateUndeclared {
		return cli.WithHint(err, "give the longest expirationSeconds of any such token: --token-lifetime DURATION")
	}
	if e, is := errors.AsType[*install.Error](err); is {
		switch e.Problem {
		case install.OldKeysUnread:
			return cli.WithHint(err, "where it cannot be reached from here, give a copy of its JWKS: --jwks FILE")
		case install.KeyNotPublished:
			return cli.WithHint(err, "if the cluster signs with it: %s", cli.Command{"key", "add", string(e.KeySet), "--jwks", f.move.Old})
		case install.WrongCluster:
			return cli.WithHint(err, "is this the right cluster? See --kubeconfig and --context")
		}
	}
	return err
}

// moved is how far a move is, for scripts.
type moved struct {
	From     string        `json:"from"` // issuer URLs
	To       string        `json:"to"`
	KeySet   keystore.Name `json:"keySet"`
	Switch   string        `json:"switch"`   // the command that switches the cluster
	Finished bool          `json:"finished"` // nothing trusts From any more
}

// sayNext prints what switches the cluster: on stdout that alone, so that a script can run it.
func (f *migrateFlags) sayNext(r *run, set keystore.KeySet) error {
	switching := cloudcmd.SwitchOpenShift(f.IssuerURL)
	r.Notice("What create-identity made for workloads of the cluster is not among the identities of %s, and takes no token of the new issuer yet: for each,", f.Name)
	r.Notice("run keypost azure create-identity again before the switch, with --issuer-url %s", cli.Quoted(f.IssuerURL))
	r.Notice("Azure takes tokens of both issuers now. A new federated credential may take minutes to count; then what switches the cluster:")
	var err error
	if r.Output == "table" {
		_, err = fmt.Fprintln(r.Out, switching)
	} else {
		err = r.Result(moved{From: f.move.Old, To: f.IssuerURL, KeySet: set.Name(), Switch: switching})
	}
	if err != nil {
		return err
	}
	r.Notice("OpenShift's kube-apiservers restart one after the other, and accept tokens of %s for 24 hours more: the", f.move.Old)
	r.Notice("kubelet renews those of running pods within that time; restart what read its token only once. With kubeadm and")
	r.Notice("others, restart every kube-apiserver first with %s, then with the order switched.",
		cli.Quoted("--service-account-issuer="+f.move.Old, "--service-account-issuer="+f.IssuerURL))
	r.Notice("Then, as often as it takes, the same command with --finish")
	r.SayLifetime(set)
	return nil
}
