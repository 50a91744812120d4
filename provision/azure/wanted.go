package azure

import (
	"context"
	"fmt"
	"slices"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/azure/iam"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/credrequest"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// RequestedIdentities are the identities that a release's CredentialsRequests ask for.
type RequestedIdentities struct {
	Dir         string // with the CredentialsRequests
	TechPreview bool   // also those of tech preview features
}

// identitySet is what a directory of CredentialsRequests asks for.
type identitySet struct {
	requests   []credrequest.Request
	skipped    []string
	identities []iam.Identity // of the requests that do not bring an identity of their own, in their order
	named      []string       // client IDs of those that requests bring
	warnings   []string
}

// The CredentialsRequests, by their names, whose components work outside the installation's resource group. ccoctl has these lists.
const ingressRequest = "openshift-ingress-azure"

func networkRequests() []string {
	return []string{"openshift-image-registry-azure", ingressRequest, "openshift-machine-api-azure", "azure-file-csi-driver-operator",
		"openshift-cloud-network-config-controller-azure", "openshift-azure-cloud-controller-manager"}
}

// readIdentities reads the CredentialsRequests, all of them before anything is done about one.
func readIdentities(o Options, q RequestedIdentities) (identitySet, error) {
	requests, skipped, err := credrequest.ReadDir(credrequest.Azure, q.Dir, q.TechPreview)
	if err != nil {
		return identitySet{}, fmt.Errorf("read CredentialsRequests: %w", err)
	}
	set := identitySet{requests: requests, skipped: skipped}
	for _, request := range requests {
		if request.SecretNamespace == ccoctl.AzureWebhookNamespace && request.SecretName == ccoctl.AzureWebhookSecret {
			return identitySet{}, fmt.Errorf("CredentialsRequest %s (%s) asks for the Secret %s/%s, which is that of OpenShift's webhook for pod identities, with the tenant "+
				"of all of them: remove it", request, request.File, request.SecretNamespace, request.SecretName)
		}
		if request.HasIdentity() {
			set.named = append(set.named, request.Azure.ClientID)
			continue
		}
		if request.Name == ingressRequest && o.DNSGroup == "" {
			set.warnings = append(set.warnings, "without the resource group of the base domain's DNS zone (--dnszone-resource-group-name) the ingress "+
				"operator may not write its records there")
		}
		set.identities = append(set.identities, requested(o, request))
	}
	if len(requests) == 0 {
		return set, install.Refuse(install.NoRequests, "%s has no CredentialsRequest for Azure in any file named *.yaml or *.yml (%s left out)", q.Dir,
			text.Count(len(skipped), "thing was", "things were"))
	}
	return set, nil
}

// requested returns ccoctl's identity for a CredentialsRequest. Its service accounts are in the namespace of its Secret.
func requested(o Options, q credrequest.Request) iam.Identity {
	i := iam.Identity{
		Name: identityName(o.Name, q.SecretNamespace, q.SecretName), Request: fmt.Sprintf("CredentialsRequest %s (%s)", q, q.File),
		Actions: iam.Distinct(q.Azure.Permissions), DataActions: iam.Distinct(q.Azure.DataPermissions), Roles: iam.Distinct(q.Azure.Roles),
		Scopes: scopes(o, q.Name),
	}
	for _, account := range q.ServiceAccounts {
		i.Credentials = append(i.Credentials, credential(o, install.ServiceAccount{Namespace: q.SecretNamespace, Name: account}))
	}
	return i
}

func credential(o Options, a install.ServiceAccount) iam.Credential {
	return iam.Credential{Name: credentialName(a.Name), Issuer: o.IssuerURL, Subject: a.Subject(), Audience: o.Audience}
}

// scopes returns where the roles of a request's identity are assigned.
func scopes(o Options, request string) []string {
	groups := []string{o.InstallGroup}
	if o.DNSGroup != "" && request == ingressRequest {
		groups = append(groups, o.DNSGroup)
	}
	if o.NetworkGroup != "" && slices.Contains(networkRequests(), request) {
		groups = append(groups, o.NetworkGroup)
	}
	var ids []string
	for _, g := range iam.Distinct(groups) {
		ids = append(ids, o.GroupID(g))
	}
	return ids
}

// secrets returns the manifest of the Secret that each CredentialsRequest asks for. In a dry run the identities' client IDs are
// not known, and the tenant is the one that was given.
func (r *run) secrets(set identitySet) []ccoctl.File {
	var files []ccoctl.File
	for _, q := range set.requests {
		s := ccoctl.AzureSecret{Namespace: q.SecretNamespace, Name: q.SecretName, TokenPath: q.CloudTokenPath,
			Region: r.O.Region, SubscriptionID: r.O.Subscription, TenantID: r.tenantID()}
		if q.HasIdentity() {
			s.ClientID, s.TenantID, s.Region, s.SubscriptionID = q.Azure.ClientID, q.Azure.TenantID, q.Azure.Region, q.Azure.SubscriptionID
		} else if client, tenant := r.Known(identityName(r.Name, q.SecretNamespace, q.SecretName)); client != "" {
			s.ClientID, s.TenantID = client, tenant
		}
		files = append(files, s.File())
	}
	return files
}

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
