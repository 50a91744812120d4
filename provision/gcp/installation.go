// Package gcp makes, re-runs, moves and deletes an installation in Google Cloud: what package install makes in any cloud, with a workload
// identity pool, a provider and service accounts. It promises that nothing is changed in another project than the one that is meant, and
// that no provider is made before Google finds the issuer's keys, or is given them.
package gcp

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"golang.org/x/oauth2"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/party"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/gcp/federation"
	"github.com/keypost/keypost/provision/gcp/iam"
	"github.com/keypost/keypost/provision/gcp/rest"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// Options are what the verbs of an installation have in common. Fields that a verb has no use for are ignored.
type Options struct {
	// Adopt also takes over what neither keypost nor ccoctl made, and a provider that trusts another issuer or holds a copy of other keys.
	install.Options

	Transport http.RoundTripper  // as in [rest.Access]
	Tokens    oauth2.TokenSource // as in [rest.Access]

	Project    string // ID or number of the only project in which anything may be changed
	PoolID     string // empty for Name
	ProviderID string // empty for Name

	Audiences     []string // that tokens may carry
	KeepAudiences bool     // what an existing provider takes beside Audiences stays
	Condition     string   // attribute condition of the provider, CEL; empty leaves what is there
	Upload        bool     // give Google a copy of the keys, so that it never calls the issuer
	UsualKeys     bool     // without Upload: that is a default, and a provider that has a copy is refused
}

// named returns o with the usual names of what has none.
func (o Options) named() Options {
	o.PoolID, o.ProviderID = cmp.Or(o.PoolID, o.Name), cmp.Or(o.ProviderID, o.Name)
	return o
}

func (o Options) pool() *federation.Pool {
	return &federation.Pool{ID: o.PoolID, Adopt: o.Adopt, Owner: federation.OwnedBy(o.Name)}
}

// provider returns the provider that is wanted, with a copy of the keys of a key set if it is to have one; empty for the one of Name.
func (o Options) provider(jwks []byte, of keystore.Name) *federation.Provider {
	p := &federation.Provider{
		Pool: o.PoolID, ID: o.ProviderID, IssuerURL: o.IssuerURL, Audiences: o.Audiences, KeepAudiences: o.KeepAudiences, Condition: o.Condition,
		Adopt: o.Adopt, Owner: federation.OwnedBy(o.Name), UsualKeys: o.UsualKeys,
	}
	if o.Upload {
		p.JWKS, p.KeySet = jwks, string(of)
	}
	return p
}

// run is one run of a verb.
type run struct {
	*install.Run
	o       Options            // has those of Run
	client  *iam.Client        // nil until identify
	project federation.Project // zero until identify
}

func newRun(o Options) *run {
	r := &run{o: o.named()}
	r.Run = install.NewRun(&r.o.Options)
	return r
}

// identify asks Google which project the credentials see, and reports where everything is going to be.
func (r *run) identify(ctx context.Context) error {
	client, err := iam.Open(ctx, rest.Access{Project: r.o.Project, Transport: r.o.Transport, Tokens: r.o.Tokens, OnWait: func(w cloud.Wait) {
		r.Wait("still waiting for Google Cloud: %s", w)
	}})
	if err != nil {
		return err
	}
	r.Line("Credentials loaded from %s", client.Rest.Source)
	if r.project, err = client.Project(ctx); err != nil {
		return err
	}
	r.client = client
	place := fmt.Sprintf("Project %s (number %s)", r.project.ID, r.project.Number)
	if r.project.Caller != "" {
		place += ", caller " + r.project.Caller
	}
	r.Place(place)
	return nil
}

// provider returns the full name of the run's provider.
func (r *run) provider() string { return r.project.ProviderName(r.o.PoolID, r.o.ProviderID) }

// audience returns what a credential configuration of the run names as its audience.
func (r *run) audience() string { return r.project.Audience(r.o.PoolID, r.o.ProviderID) }

// copyParty returns what a key set's policy calls the copy of the keys that the provider holds.
func (r *run) copyParty() string { return "gcp-upload:" + r.provider() }

// nameCopy has the policy of a new key set name the copy in Google's place, which fetches nothing then: gates wait for it. The policy
// of a key set that is there is somebody's.
func (r *run) nameCopy() {
	r.Policy.RelyingParties = party.WithUpload(r.Policy.RelyingParties, r.copyParty())
}

// CreatePool makes a workload identity pool, for [Create] to make a provider in. With mode Preview it returns what it would do.
func CreatePool(ctx context.Context, o Options) (*plan.Preview, error) {
	r := newRun(o)
	if o.Mode == install.DryRun {
		return nil, r.WriteFiles(r.poolScript())
	}
	if err := r.identify(ctx); err != nil {
		return nil, err
	}
	p, err := r.client.Plan(ctx, iam.Wanted{Pool: r.o.pool()})
	if err != nil {
		return nil, err
	}
	return r.CarryOut(ctx, p.Plan, iam.Parallel)
}
