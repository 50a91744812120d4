// Package azure makes, moves and deletes an installation in Azure: what package install makes in any cloud, with user-assigned
// managed identities, their federated credentials, custom roles and role assignments. Packages iam and arm are the only users of Azure's SDK.
//
// The package promises:
//   - Nothing is changed in another subscription than the one that is meant, nor for a tenant that is not its own.
//   - What [iam.Run] promises.
//   - A run may be stopped anywhere and started again.
//
// Source: github.com/openshift/cloud-credential-operator, pkg/cmd/provisioning/azure.
package azure

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/provision/azure/iam"
	"github.com/keypost/keypost/provision/cloud"
)

// DefaultAudience is what OpenShift's components put into their tokens for Azure.
const DefaultAudience = "openshift"

// Options are what the verbs have in common.
type Options = iam.Options

// run is one run of a verb.
type run struct {
	*iam.Run
	tenant string // empty until identify, and where the caller may not read the subscription
}

func newRun(o Options) *run { return &run{Run: iam.New(o)} }

// identify asks Azure whose the subscription is, reports where everything is going to be, and refuses another tenant than the
// one that is meant.
func (r *run) identify(ctx context.Context) error {
	var err error
	account := arm.Account{Endpoint: r.O.Endpoint, Subscription: r.O.Subscription, Tenant: r.O.Tenant}
	r.Client, err = arm.Open(account, func(w cloud.Wait) { r.Still(time.Now(), "still waiting for Azure: %s", w) })
	if err != nil {
		return err
	}
	if r.tenant, err = r.Tenant(ctx); err != nil {
		return err
	}
	r.Place(fmt.Sprintf("Subscription %s, tenant %s", r.O.Subscription, cmp.Or(r.tenant, "unknown, as the caller may not read the subscription")))
	if r.tenant != "" && r.O.Tenant != "" && !iam.SameName(r.O.Tenant, r.tenant) {
		return arm.Refuse(arm.WrongTenant, "subscription %s belongs to tenant %s, not to %s; nothing was changed", r.O.Subscription, r.tenant, r.O.Tenant)
	}
	return nil
}
