// Package aws makes, re-runs, moves and deletes an installation in AWS: what package install makes in any cloud, with an IAM
// OIDC identity provider and roles. It promises that nothing is changed in another account than the one that is meant, and
// that no provider is made before relying parties find the issuer's keys.
package aws

import (
	"context"
	"fmt"
	"regexp"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// Options are what the verbs have in common. Fields that a verb has no use for are ignored.
type Options struct {
	install.Options

	Config []func(*config.LoadOptions) error // comes before what the SDK's usual chain says

	Region  string // whose endpoints are called; empty for the configured one
	Account string // ID of the only account in which anything may be changed; empty for that of the credentials

	ClientIDs      []string // audiences
	Usual          bool     // ClientIDs are a default, and those that exist may differ from them
	Thumbprints    []string
	Tags           map[string]string // for all that is made, beside the owner's
	Prune          bool              // take away what is not asked for
	MaxTrustLength int               // of trust policies, in characters; 0 for 2,048
}

func (o Options) provider() awsiam.Provider {
	return awsiam.Provider{
		URL: o.IssuerURL, ClientIDs: o.ClientIDs, Thumbprints: o.Thumbprints,
		Owner: awsiam.OwnedBy(o.Name), Tags: o.Tags, Adopt: o.Adopt, Prune: o.Prune, Usual: o.Usual,
	}
}

func (o Options) trust(providerARN string) awsiam.Trust {
	return awsiam.Trust{ProviderARN: providerARN, Issuer: o.IssuerURL, Audiences: o.ClientIDs, Usual: o.Usual,
		MaxLength: o.MaxTrustLength}
}

// run is one run of a verb.
type run struct {
	*install.Run
	o       Options        // has those of Run
	client  *awsiam.Client // nil until identify
	account awsiam.Account // zero until identify
}

func newRun(o Options) *run {
	r := &run{o: o}
	r.Run = install.NewRun(&r.o.Options)
	return r
}

// identify asks AWS whose account the credentials are for, reports where everything is going to be, and refuses an account
// other than the one that is meant.
func (r *run) identify(ctx context.Context) error {
	client, err := awsiam.Open(ctx, awsiam.Options{Region: r.o.Region, Config: r.o.Config, OnWait: func(w awsiam.Wait) {
		r.Wait("still waiting for AWS: %s", w)
	}})
	if err != nil {
		return err
	}
	account, err := client.Account(ctx)
	if err != nil {
		return err
	}
	r.Place(fmt.Sprintf("Account %s (%s), caller %s", account.ID, account.Partition, account.Caller))
	if r.o.Account != "" && account.ID != r.o.Account {
		return install.Refuse(install.WrongAccount, "the credentials are for account %s, not for %s; nothing was changed", account.ID, r.o.Account)
	}
	r.client, r.account = client, account
	return nil
}

// carryOut makes the changes of a plan, or returns them as a preview.
func (r *run) carryOut(ctx context.Context, p plan.Plan) (*plan.Preview, error) {
	return r.CarryOut(ctx, p, awsiam.Parallel)
}

// CheckName returns an error if the names and tags of an installation's roles cannot have its name in them: one sentence, where IAM's rules
// have one for each role and tag.
//
// Sources: https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateRole.html,
// https://docs.aws.amazon.com/IAM/latest/APIReference/API_Tag.html.
func CheckName(name string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9_.=+@-]+$`).MatchString(name) {
		return fmt.Errorf("%q may have only letters, digits and the characters _.=+-@: the names of the roles begin with it, and their tags have it", name)
	}
	return nil
}
