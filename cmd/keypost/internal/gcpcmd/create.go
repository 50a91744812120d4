package gcpcmd

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/uploadcmd"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/provision/gcp/federation"
)

// installation are the flags of whatever publishes a key and makes a provider.
func installation(more ...string) []string {
	return append([]string{"name", "region", "dry-run", "diff", "issuer-url", "public-key-file", "key-storage-method", "allowed-audience", "attribute-condition",
		"adopt+=, change the issuer that a provider trusts or the attribute condition that it has, replace a copy of other keys, " +
			"and write over the manifests of another issuer in --output-dir"}, more...)
}

func (r *run) newCreatePool() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-workload-identity-pool --name NAME --project PROJECT",
		Short: "Make the workload identity pool of a cluster",
		Long: "Make the workload identity pool of a cluster, one for each: all subjects of a pool are alike, whichever of its\n" +
			"providers their tokens came through. A pool that was deleted or disabled is brought back.",
	}, r.createPool, "name", "dry-run", "diff", "adopt")
}

func (r *run) createPool(ctx context.Context) error {
	preview, err := gcp.CreatePool(ctx, r.Options)
	if end, err := r.Ended(preview, err); end {
		return err
	}
	return r.Result(map[string]any{"pool": r.Name, "dryRun": r.DryRun})
}

func (r *run) newCreateProvider() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-workload-identity-provider --name NAME --project PROJECT --workload-identity-pool POOL --issuer-url URL",
		Short: "Publish a cluster's key and make the provider in its pool",
		Long: "Publish the cluster's public key under the issuer URL, wait until relying parties see it there, and make the OIDC\n" +
			"provider in the workload identity pool. What is there already is compared and brought up to date. Without a file\n" +
			"with the key, those that the store has under the issuer URL count (keypost issuer add --kubeconfig).\n\n" +
			"With --key-storage-method pool-jwk-file Google is given an upload of the published keys and never calls the issuer, which\n" +
			"may be out of its reach then. The upload stays what it was when it was made: run keypost sync-keys whenever the keys change.",
	}, func(ctx context.Context) error { return r.create(ctx, nil) }, installation("workload-identity-pool", "workload-identity-provider+= (default NAME)",
		"prune=take from the provider the audiences that --allowed-audience does not name")...)
}

func (r *run) newCreateAll() *cobra.Command {
	return r.Command(cobra.Command{
		Use:   "create-all --name NAME --project PROJECT --credentials-requests-dir DIR --issuer-url URL",
		Short: "Key pair, published issuer, pool, provider, service accounts and manifests in one go",
		Long: "Make or reuse the cluster's key pair, publish its public half under the issuer URL, wait until relying parties see\n" +
			"it there, make the workload identity pool, its provider and the service accounts, and write what the installer\n" +
			"takes. It may be stopped and run again at any point: what is there already is compared and brought up to date.",
	}, func(ctx context.Context) error { return r.create(ctx, &r.requested) }, installation("credentials-requests-dir", "enable-tech-preview",
		"prune+=, and from the provider the audiences that --allowed-audience, if it is given, does not name")...)
}

// create makes an installation; without accounts, only a provider.
func (r *run) create(ctx context.Context, accounts *gcp.RequestedAccounts) error {
	key, err := r.ReadNew(accounts != nil)
	if err != nil {
		return err
	}
	o := gcp.CreateOptions{Options: r.Options, Accounts: accounts, PublicKey: key, Stored: accounts == nil && key == nil}
	made, err := gcp.Create(ctx, o)
	switch end, err := r.Ended(made.Preview, err); {
	case end:
		return err
	case r.DryRun:
		r.Notice("the scripts do not publish the key set; before they are run: %s", r.Publishing())
		r.sayUnrecorded()
	default:
		r.sayCopy(made.KeySet, made.Copy)
		r.SayLifetime(made.KeySet)
		if accounts != nil {
			r.SayInstall(made.Created, r.readings(made.Copy)...)
		}
	}
	return r.Made(made.Created, map[string]any{"provider": made.Provider, "serviceAccounts": made.Accounts, "secrets": made.Secrets})
}

// newCopy returns what the policy of a key set that is still to be made calls the copy that this run is to give Google. NUMBER stands for the
// project's number where that is not given.
func (r *run) newCopy() string {
	number := "NUMBER"
	if projectNumber.MatchString(r.Project) {
		number = r.Project
	}
	return r.Party + "-upload:" + federation.Project{Number: number}.ProviderName(cmp.Or(r.PoolID, r.Name), cmp.Or(r.ProviderID, r.Name))
}

// sayUnrecorded prints what a dry run leaves to do about the copy that its scripts give Google.
func (r *run) sayUnrecorded() {
	if !r.Upload {
		return
	}
	r.Notice("  (NUMBER: gcloud projects describe %s --format=%s)", cli.Quoted(r.Project), cli.Quoted("value(projectNumber)"))
	r.Notice("after the scripts, after every change of the keys, and before the cluster signs with a new one, or every token is refused:")
	r.Notice("  %s", cli.SyncCommand(keystore.Name(r.Name)))
}

// readings returns the flag by which verify finds what was read back of a copy, if there is one and no flag of this run names the place.
func (r *run) readings(place string) []string {
	if place == "" || r.Observations != "" {
		return nil
	}
	return []string{"--observations", cli.UnknownPlace}
}

// sayCopy prints what is to be done about a copy that Google has been given, if it was, in the order in which it works: a copy that no
// policy names is not uploaded to, and one that was not read back is not proof for verify.
func (r *run) sayCopy(set keystore.KeySet, place string) {
	if place == "" {
		return
	}
	policy, sync := set.Policy(), cli.SyncCommand(set.Name())
	r.Notice("Google has a copy of the keys of %s, and does not look at the issuer.", set.Name())
	if slices.Contains(policy.RelyingParties, place) {
		r.Notice("No key is promoted or removed before it was read back: the policy of %s names the copy.", set.Name())
	} else {
		policy.RelyingParties = party.WithUpload(policy.RelyingParties, place)
		r.Notice("Name the copy first, once, so that no key is promoted or removed before it was read back:")
		r.Notice("  %s", uploadcmd.Setting(set.Name(), set.Policy(), policy))
	}
	if len(policy.Uploads()) == len(policy.RelyingParties) && policy.Reach == "" && !policy.Private {
		r.Notice("If nobody else reads what is published, say so, or gates and verify look at the issuer URL too:")
		r.Notice("  %s", cli.Command{"issuer", "set", string(set.Name()), "--reach", "copies"})
	}
	r.Notice("Now, after every change of the keys, and before the cluster signs with a new one, bring the copy up to date, or every token is refused:")
	r.Notice("  %s", sync)
}
