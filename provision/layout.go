package provision

import (
	"fmt"
	"io/fs"
)

// The names that the installer and the scripts written for ccoctl look for, below the output directory.
const (
	Manifests = "manifests" // directory: what the installer puts into the cluster
	TLS       = "tls"       // directory: the signing key that the installer puts into the cluster

	DiscoveryFile = "02-openid-configuration"
	JWKSFile      = "03-keys.json" // OpenShift's documented key rotation merges it
	ProviderFile  = "04-iam-identity-provider.json"
)

// TokenPath is where OpenShift's own components find their token for the cloud.
const TokenPath = "/var/run/secrets/openshift/serviceaccount/token" //nolint:gosec // the path of a token, not a token

// RoleFile is the name of the dry-run file of a role. i counts CredentialsRequests from 0; role is the role's name
// before it is cut to what IAM allows, so that files keep apart what IAM does not.
func RoleFile(i int, role string) string { return fmt.Sprintf("05-%d-%s-role.json", i, role) }

// PolicyFile is the name of the dry-run file of a role's permissions policy. See [RoleFile].
func PolicyFile(i int, role string) string { return fmt.Sprintf("06-%d-%s-policy.json", i, role) }

// File is a file of the output directory, complete.
type File struct {
	Name string // below the output directory, with slashes
	Data []byte
	Mode fs.FileMode // less the umask
}

// SecretFile is the manifest of the Secret from which a component learns its role, byte for byte as ccoctl writes it.
// An empty tokenPath stands for [TokenPath]. Without a role the manifest ends, as ccoctl's does, in a line that is no
// YAML: whoever forgets to fill the role in has `oc apply` refuse the file, not a component that cannot start.
func SecretFile(namespace, name, roleARN, tokenPath string) File {
	if tokenPath == "" {
		tokenPath = TokenPath
	}
	text := fmt.Sprintf(`apiVersion: v1
stringData:
  credentials: |-
    [default]
    sts_regional_endpoints = regional
    role_arn = %s
    web_identity_token_file = %s
kind: Secret
metadata:
  name: %s
  namespace: %s
type: Opaque`, roleARN, tokenPath, name, namespace)
	if roleARN == "" {
		text += "\nPOPULATE ROLE ARN AND DELETE THIS LINE"
	}
	return File{Name: fmt.Sprintf("%s/%s-%s-credentials.yaml", Manifests, namespace, name), Data: []byte(text), Mode: 0o600}
}

// AuthenticationFile is the manifest that gives a new cluster its issuer URL, byte for byte as ccoctl writes it. Its
// name has a place among the installer's own manifests.
func AuthenticationFile(issuer string) File {
	return File{Name: Manifests + "/cluster-authentication-02-config.yaml", Mode: 0o600, Data: []byte(`apiVersion: config.openshift.io/v1
kind: Authentication
metadata:
  name: cluster
spec:
  serviceAccountIssuer: ` + issuer)}
}
