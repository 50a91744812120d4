// Package azure makes, moves and deletes an installation in Azure: what package install makes in any cloud, with user-assigned
// managed identities, their federated credentials, custom roles and role assignments. With package arm it is the only user of Azure's SDK.
//
// The package promises:
//   - Nothing is changed in another subscription than the one that is meant, nor for a tenant that is not its own.
//   - Nothing without the owner's tag is changed, unless it is to be adopted.
//   - An assignment is deleted only if it is in the subscription, binds an identity of ours directly, and goes with its identity or is
//     to be pruned: then it was made by keypost, or is at a scope of ours. Others' stay, and so does what a group of Entra's has.
//   - Whatever is written was read a moment before, since a PUT replaces what is there without a word.
//   - A run may be stopped anywhere and started again.
//
// Source: github.com/openshift/cloud-credential-operator, pkg/cmd/provisioning/azure.
package azure

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/cloud"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// Parallel is how many things are changed at once, unless [Options] say otherwise. What Azure allows of federated credentials is far
// less, and kept by itself.
const Parallel = 16

// DefaultAudience is what OpenShift's components put into their tokens for Azure.
const DefaultAudience = "openshift"

// Options are what the verbs have in common. Fields that a verb has no use for are ignored.
type Options struct {
	install.Options
	arm.Endpoint

	Subscription string // ID of the only subscription in which anything may be changed
	Tenant       string // its tenant's ID; empty for whichever it is
	Region       string // of what is made

	OIDCGroup    string // resource group of the identities
	InstallGroup string // that the installer fills
	DNSGroup     string // of the base domain's zone; empty for none
	NetworkGroup string // of the virtual network, if it has another than the cluster's; empty for none

	Audience string            // of tokens
	Usual    bool              // Audience is a default, and federated credentials that exist may have another
	Tags     map[string]string // for all that is made, beside the owner's
	Adopt    bool              // take over what is not tagged as ours, and identities that trust another issuer; trust one that is unknown to the store
	Prune    bool              // take away what this run does not ask for; without it a run only adds
	Drop     []string          // issuer URLs that an identity for workloads takes no tokens of any more
	Parallel int               // how many things are changed at once; 0 for the usual number
}

// groupID returns the ID of a resource group, which is also the scope of assignments.
func (o Options) groupID(name string) string {
	return "/subscriptions/" + o.Subscription + "/resourceGroups/" + name
}

// run is one run of a verb.
type run struct {
	*install.Run
	*arm.Client          // nil until identify
	seen        sync.Map // identityState by name in lower case, as Azure last showed it

	o      Options // has those of Run
	owner  owner
	tenant string // empty until identify, and where the caller may not read the subscription
}

func newRun(o Options) *run {
	r := &run{o: o, owner: installation(o.Name)}
	r.Run = install.NewRun(&r.o.Options)
	return r
}

// identify asks Azure whose the subscription is, reports where everything is going to be, and refuses another tenant than the
// one that is meant.
func (r *run) identify(ctx context.Context) error {
	var err error
	account := arm.Account{Endpoint: r.o.Endpoint, Subscription: r.o.Subscription, Tenant: r.o.Tenant}
	r.Client, err = arm.Open(account, func(w cloud.Wait) { r.Still(time.Now(), "still waiting for Azure: %s", w) })
	if err != nil {
		return err
	}
	if r.tenant, err = r.Tenant(ctx); err != nil {
		return err
	}
	r.Place(fmt.Sprintf("Subscription %s, tenant %s", r.o.Subscription, cmp.Or(r.tenant, "unknown, as the caller may not read the subscription")))
	if r.tenant != "" && r.o.Tenant != "" && !sameName(r.o.Tenant, r.tenant) {
		return problem(WrongTenant, "subscription %s belongs to tenant %s, not to %s; nothing was changed", r.o.Subscription, r.tenant, r.o.Tenant)
	}
	return nil
}

// parallel is how many things the run changes at once.
func (o Options) parallel() int { return cmp.Or(o.Parallel, Parallel) }

// carryOut makes the changes of a plan, or returns them as a preview.
func (r *run) carryOut(ctx context.Context, p plan.Plan) (*plan.Preview, error) {
	return r.CarryOut(ctx, p, r.o.parallel())
}
