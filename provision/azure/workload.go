package azure

import (
	"context"

	"github.com/keypost/keypost/provision/azure/iam"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// WorkloadOptions say which identity to make for a workload of any cluster.
type WorkloadOptions struct {
	Options                                  // Name is that of the identity, and OIDCGroup where it is; InstallGroup is empty
	For             string                   // what asks for it; for messages
	ServiceAccounts []install.ServiceAccount // whose tokens it takes
	Roles           []string                 // names of roles that exist
	Actions         []string                 // of a custom role under the identity's name
	DataActions     []string
	Scopes          []string // IDs of where roles are assigned; empty for its own resource group
}

// WorkloadCreated is an identity for a workload.
type WorkloadCreated struct {
	Preview                *plan.Preview // with mode Preview; everything else is empty then
	ID, Audience           string
	ClientID, TenantID     string
	SubscriptionID, Region string
}

// CreateIdentity makes an identity that pods of some service accounts may use. keypost never deletes it.
func CreateIdentity(ctx context.Context, o WorkloadOptions) (WorkloadCreated, error) {
	r := newRun(o.Options)
	r.Owner = iam.Workloads(o.OIDCGroup)
	i := o.identity()
	if err := check(o.Options, []iam.Identity{i}); err != nil {
		return WorkloadCreated{}, err
	}
	if err := r.checkIssuer(ctx); err != nil {
		return WorkloadCreated{}, err
	}
	if err := r.identify(ctx); err != nil {
		return WorkloadCreated{}, err
	}
	p, err := r.PlanWorkload(ctx, i)
	if err != nil {
		return WorkloadCreated{}, err
	}
	if preview, err := r.CarryOut(ctx, p, iam.Parallel); err != nil || preview != nil {
		return WorkloadCreated{Preview: preview}, err
	}
	client, tenant := r.Known(o.Name)
	return WorkloadCreated{ID: r.IdentityID(o.Name), ClientID: client, TenantID: tenant, SubscriptionID: o.Subscription,
		Region: o.Region, Audience: o.Audience}, nil
}

func (o WorkloadOptions) identity() iam.Identity {
	i := iam.Identity{Name: o.Name, Request: o.For, Scopes: o.Scopes,
		Actions: iam.Distinct(o.Actions), DataActions: iam.Distinct(o.DataActions), Roles: iam.Distinct(o.Roles)}
	if len(i.Scopes) == 0 {
		i.Scopes = []string{o.GroupID(o.OIDCGroup)}
	}
	for _, a := range o.ServiceAccounts { // each of its own name: of two runs at once, one would write over the other's
		c := credential(o.Options, a)
		c.Name = iam.Suffixed(a.Name, c.Issuer+" "+c.Subject)
		i.Credentials = append(i.Credentials, c)
	}
	return i
}
