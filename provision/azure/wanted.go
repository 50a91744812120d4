package azure

import (
	"fmt"
	"slices"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/credrequest"
	"github.com/keypost/keypost/provision/install"
)

// identity is a managed identity as it should be, with what hangs on it.
type identity struct {
	name        string
	request     string // what asks for it, for messages
	actions     []string
	dataActions []string // with actions, of the custom role under the identity's name; without either there is none
	roles       []string // names of roles that exist, to be assigned too
	scopes      []string // IDs of where roles are assigned
	credentials []credential
}

// custom reports whether the identity has a role of its own.
func (i identity) custom() bool { return len(i.actions)+len(i.dataActions) > 0 }

// credential is a federated credential: whose tokens the identity takes.
type credential struct {
	name, issuer, subject, audience string
}

// RequestedIdentities are the identities that a release's CredentialsRequests ask for.
type RequestedIdentities struct {
	Dir         string // with the CredentialsRequests
	TechPreview bool   // also those of tech preview features
}

// identitySet is what a directory of CredentialsRequests asks for.
type identitySet struct {
	requests   []credrequest.Request
	skipped    []string
	identities []identity // of the requests that do not bring an identity of their own, in their order
	warnings   []string
}

// The CredentialsRequests, by their names, whose components work outside the installation's resource group. ccoctl has these lists.
const ingressRequest = "openshift-ingress-azure"

func networkRequests() []string {
	return []string{"openshift-image-registry-azure", ingressRequest, "openshift-machine-api-azure", "azure-file-csi-driver-operator",
		"openshift-cloud-network-config-controller-azure", "openshift-azure-cloud-controller-manager"}
}

// tokenDir is a directory that Cluster API's request names as its token, as ccoctl copies it.
const tokenDir = "/var/run/secrets/azure/tokens" //nolint:gosec // the path of tokens, not a token

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
		if request.CloudTokenPath == tokenDir {
			set.warnings = append(set.warnings, fmt.Sprintf("CredentialsRequest %s names the directory %s, where a token's file is expected; its Secret is written with that, as ccoctl writes it",
				request, tokenDir))
		}
		if request.HasIdentity() {
			continue
		}
		if request.Name == ingressRequest && o.DNSGroup == "" {
			set.warnings = append(set.warnings, "without the resource group of the base domain's DNS zone (--dnszone-resource-group-name) the ingress "+
				"operator may not write its records there")
		}
		set.identities = append(set.identities, o.requested(request))
	}
	if len(requests) == 0 {
		return set, install.Refuse(install.NoRequests, "%s has no CredentialsRequest for Azure in any file named *.yaml or *.yml (%s left out)", q.Dir,
			text.Count(len(skipped), "thing was", "things were"))
	}
	return set, nil
}

// requested returns ccoctl's identity for a CredentialsRequest. Its service accounts are in the namespace of its Secret.
func (o Options) requested(q credrequest.Request) identity {
	i := identity{
		name: identityName(o.Name, q.SecretNamespace, q.SecretName), request: fmt.Sprintf("CredentialsRequest %s (%s)", q, q.File),
		actions: distinct(q.Azure.Permissions), dataActions: distinct(q.Azure.DataPermissions), roles: distinct(q.Azure.Roles),
		scopes: o.scopes(q.Name),
	}
	for _, account := range q.ServiceAccounts {
		i.credentials = append(i.credentials, o.credential(install.ServiceAccount{Namespace: q.SecretNamespace, Name: account}))
	}
	return i
}

func (o Options) credential(a install.ServiceAccount) credential {
	return credential{credentialName(a.Name), o.IssuerURL, a.Subject(), o.Audience}
}

// scopes returns where the roles of a request's identity are assigned.
func (o Options) scopes(request string) []string {
	groups := []string{o.InstallGroup}
	if o.DNSGroup != "" && request == ingressRequest {
		groups = append(groups, o.DNSGroup)
	}
	if o.NetworkGroup != "" && slices.Contains(networkRequests(), request) {
		groups = append(groups, o.NetworkGroup)
	}
	var ids []string
	for _, g := range distinct(groups) {
		ids = append(ids, o.groupID(g))
	}
	return ids
}

// distinct returns a list without what is in it before, whatever its letter case: some requests name an action twice.
func distinct(list []string) []string {
	var out []string
	for _, s := range list {
		if !contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// contains reports whether a list has s, whatever its letter case.
func contains(list []string, s string) bool {
	return slices.ContainsFunc(list, func(have string) bool { return sameName(have, s) })
}

// minus returns what list has and other does not have, whatever its letter case.
func minus(list, other []string) []string {
	var out []string
	for _, s := range list {
		if !contains(other, s) {
			out = append(out, s)
		}
	}
	return out
}

// secrets returns the manifest of the Secret that each CredentialsRequest asks for. In a dry run the identities' client IDs are
// not known, and the tenant is the one that was given.
func (r *run) secrets(set identitySet) []ccoctl.File {
	var files []ccoctl.File
	for _, q := range set.requests {
		s := ccoctl.AzureSecret{Namespace: q.SecretNamespace, Name: q.SecretName, TokenPath: q.CloudTokenPath,
			Region: r.o.Region, SubscriptionID: r.o.Subscription, TenantID: r.tenantID()}
		if q.HasIdentity() {
			s.ClientID, s.TenantID, s.Region, s.SubscriptionID = q.Azure.ClientID, q.Azure.TenantID, q.Azure.Region, q.Azure.SubscriptionID
		} else if made := r.known(identityName(r.Name, q.SecretNamespace, q.SecretName)); made != nil {
			s.ClientID, s.TenantID = made.client, made.tenant
		}
		files = append(files, s.File())
	}
	return files
}
