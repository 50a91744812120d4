package ccoctl

import (
	"cmp"
	"fmt"
)

// AzureSecret is the Kubernetes Secret from which a component learns its identity in Azure.
type AzureSecret struct {
	Namespace, Name    string
	ClientID, TenantID string // empty while they are not known
	Region             string
	SubscriptionID     string
	TokenPath          string // empty for that of OpenShift's own components
}

// File returns the manifest of a Secret. Without a client ID it ends, as ccoctl's does, in a line that is not YAML: see
// [Secret.File].
func (s AzureSecret) File() File {
	text := fmt.Sprintf(`apiVersion: v1
stringData:
  azure_client_id: %s
  azure_tenant_id: %s
  azure_region: %s
  azure_subscription_id: %s
  azure_federated_token_file: %s
kind: Secret
metadata:
  name: %s
  namespace: %s
type: Opaque`, s.ClientID, s.TenantID, s.Region, s.SubscriptionID, cmp.Or(s.TokenPath, defaultTokenPath), scalar(s.Name), scalar(s.Namespace))
	if s.ClientID == "" {
		text += "\nPOPULATE CLIENT ID AND TENANT ID AND DELETE THIS LINE"
	}
	return secretFile(s.Namespace, s.Name, text)
}

// The Secret of [AzureWebhookFile].
const (
	AzureWebhookNamespace = "openshift-cloud-credential-operator"
	AzureWebhookSecret    = "azure-credentials" //nolint:gosec // a name
)

// AzureWebhookFile returns the manifest with the tenant's ID, without which OpenShift does not deploy its webhook for pod
// identities in Azure.
func AzureWebhookFile(tenantID string) File {
	return File{Name: ManifestsDir + "/azure-ad-pod-identity-webhook-config.yaml", Mode: 0o600,
		log: "Saved Azure AD pod identity webhook configuration to: ", Data: []byte(`apiVersion: v1
stringData:
  azure_tenant_id: ` + tenantID + `
kind: Secret
metadata:
  name: ` + AzureWebhookSecret + `
  namespace: ` + AzureWebhookNamespace + `
type: Opaque`)}
}

// AzureDiscoveryFile returns the dry-run file of a discovery document.
func AzureDiscoveryFile(document []byte) File {
	return dryRun("openid-configuration", "discovery document", document)
}

// AzureJWKSFile returns the dry-run file of a JWKS.
func AzureJWKSFile(jwks []byte) File { return dryRun("jwks", "JSON web key set (JWKS)", jwks) }
