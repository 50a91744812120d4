package ccoctl

import (
	"cmp"
	"encoding/base64"
	"fmt"
)

// GCPSecret is the Kubernetes Secret from which a component learns its Google service account.
type GCPSecret struct {
	Namespace, Name string
	Provider        string // resource name of the workload identity provider: //iam.googleapis.com/projects/…
	Email           string // of the service account
	TokenPath       string // empty for that of OpenShift's own components

	Script string // path of the dry-run script whose output is to be filled in; the rest is not known then
}

// File returns the manifest of a Secret. In a dry run it ends, as ccoctl's does, in a line that is not YAML: see [Secret.File].
func (s GCPSecret) File() File {
	config := ""
	if s.Script == "" {
		config = base64.StdEncoding.EncodeToString(s.Config())
	}
	text := fmt.Sprintf(`apiVersion: v1
data:
  service_account.json: %s
kind: Secret
metadata:
  name: %s
  namespace: %s
type: Opaque`, config, scalar(s.Name), scalar(s.Namespace))
	if s.Script != "" {
		text += "\nPOPULATE service_account.json FIELD WITH BASE 64 ENCODED CREDENTIALS CONFIG JSON GENERATED FROM SCRIPT " + s.Script
	}
	return secretFile(s.Namespace, s.Name, text)
}

// Config returns the credential configuration that the Secret holds, byte for byte as ccoctl writes it: an external account
// that exchanges the component's token and then impersonates the service account. What is put in must need no escaping.
//
// https://google.aip.dev/auth/4117
func (s GCPSecret) Config() []byte {
	return fmt.Appendf(nil, `{
  	"type": "external_account",
  	"audience": "%s",
  	"subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
  	"token_url": "https://sts.googleapis.com/v1/token",
  	"service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/%s:generateAccessToken",
  	"credential_source": {
    	"file": "%s",
    	"format": {
      		"type": "text"
    	}
	}
}`, s.Provider, s.Email, cmp.Or(s.TokenPath, defaultTokenPath))
}

// Dry-run files of Google Cloud. ccoctl writes scripts of gcloud commands; the number of an account is that of its
// CredentialsRequest, from 0.
const (
	GCPPoolScript     = "01-create-workload-identity-pool.sh"
	GCPProviderScript = "05-create-workload-identity-provider.sh"
)

// GCPDiscoveryFile returns the dry-run file of a discovery document.
func GCPDiscoveryFile(document []byte) File {
	return dryRun("03-openid-configuration", "discovery document", document)
}

// GCPJWKSFile returns the dry-run file of a JWKS.
func GCPJWKSFile(jwks []byte) File { return dryRun("04-keys.json", "JSON web key set (JWKS)", jwks) }

// GCPAccountScripts returns the names of the scripts that make a service account, make its custom role, bind its roles and its
// users, and write its credential configuration.
func GCPAccountScripts(number int, displayName string) (account, role, bindings, config string) {
	return fmt.Sprintf("06-%d-create-%s-sa.sh", number, displayName),
		fmt.Sprintf("07-%d-create-%s-role.sh", number, displayName),
		fmt.Sprintf("08-%d-add-iam-policy-binding-for-%s-sa.sh", number, displayName),
		fmt.Sprintf("09-%d-generate-credentials-config-for-%s-sa.sh", number, displayName)
}

// Script returns a dry-run file that people run. What says what it is for: "to create …".
func Script(name, what, text string) File {
	f := dryRun(name, "script "+what, []byte(text))
	f.Mode = 0o744
	return f
}
