package azure

import (
	"context"
	"fmt"
	"strings"

	"github.com/keypost/keypost/provision/azure/arm"
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
	r.owner = workloads(o.OIDCGroup)
	i := o.identity()
	if err := o.check([]identity{i}); err != nil {
		return WorkloadCreated{}, err
	}
	if err := r.checkIssuer(ctx); err != nil {
		return WorkloadCreated{}, err
	}
	if err := r.identify(ctx); err != nil {
		return WorkloadCreated{}, err
	}
	w, err := r.read(ctx, []identity{i})
	if err != nil {
		return WorkloadCreated{}, err
	}
	p, err := r.planWorkload(w, i)
	if err != nil {
		return WorkloadCreated{}, err
	}
	if preview, err := r.carryOut(ctx, p); err != nil || preview != nil {
		return WorkloadCreated{Preview: preview}, err
	}
	made := r.known(o.Name)
	return WorkloadCreated{ID: r.identityID(o.Name), ClientID: made.client, TenantID: made.tenant, SubscriptionID: o.Subscription,
		Region: o.Region, Audience: o.Audience}, nil
}

// planWorkload plans the identity, and its group only if there is none: a group that is there may be anybody's.
func (r *run) planWorkload(w *world, i identity) (plan.Plan, error) {
	var groups plan.Plan
	if w.oidc == nil {
		var err error
		if groups, err = r.planGroups(w); err != nil {
			return groups, err
		}
	}
	things, err := r.planIdentities(w, []identity{i})
	return groups.Then(things), err
}

// checkScopeGroups returns an error if a resource group in which roles are to be assigned is not there, and nobody makes it here. An
// assignment there would be tried for minutes, since one to a group that was made a moment ago fails in the same way. Anyone who may not
// read a group may still assign roles in it.
func (r *run) checkScopeGroups(ctx context.Context, wanted []identity) error {
	var names []string
	for _, i := range wanted {
		for _, s := range i.scopes {
			parts := strings.Split(s, "/") // "", subscriptions, ID, resourceGroups, NAME, …
			if len(parts) > 4 && sameName(parts[3], "resourceGroups") && !sameName(parts[4], r.o.OIDCGroup) && !sameName(parts[4], r.o.InstallGroup) {
				names = append(names, parts[4])
			}
		}
	}
	for _, name := range distinct(names) {
		switch g, err := r.readGroup(ctx, name); {
		case arm.IsDenied(err):
		case err != nil:
			return err
		case g == nil:
			return fmt.Errorf("there is no resource group %s in subscription %s, in which roles are to be assigned", name, r.o.Subscription)
		}
	}
	return nil
}

func (o WorkloadOptions) identity() identity {
	i := identity{name: o.Name, request: o.For, actions: distinct(o.Actions), dataActions: distinct(o.DataActions), roles: distinct(o.Roles), scopes: o.Scopes}
	if len(i.scopes) == 0 {
		i.scopes = []string{o.groupID(o.OIDCGroup)}
	}
	for _, a := range o.ServiceAccounts { // each of its own name: of two runs at once, one would write over the other's
		c := o.credential(a)
		c.name = suffixed(a.Name, c.issuer+" "+c.subject)
		i.credentials = append(i.credentials, c)
	}
	return i
}
