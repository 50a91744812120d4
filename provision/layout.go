package provision

import (
	"fmt"
	"io/fs"
)

// The directories that the installer knows, below the output directory.
const (
	Manifests = "manifests" // what the installer puts into the cluster
	TLS       = "tls"       // the signing key that it puts into the cluster
)

// TokenPath is where OpenShift's own components find their token for the cloud.
const TokenPath = "/var/run/secrets/openshift/serviceaccount/token" //nolint:gosec // the path of a token, not a token

// File is a file of the output directory, complete. Its name is ccoctl's: the installer and scripts look for it.
type File struct {
	Name string // below the output directory, with slashes
	Data []byte
	Mode fs.FileMode // less the umask
}

// Secret is what a component learns its role from.
type Secret struct {
	Namespace, Name string
	RoleARN         string // empty: not known yet
	TokenPath       string // empty: [TokenPath]
}

// File is the manifest of a Secret, byte for byte as ccoctl writes it. Without a role it ends, as ccoctl's does, in a
// line that is no YAML: whoever forgets to fill the role in has `oc apply` refuse the file, instead of a component that
// cannot start.
func (s Secret) File() File {
	if s.TokenPath == "" {
		s.TokenPath = TokenPath
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
type: Opaque`, s.RoleARN, s.TokenPath, s.Name, s.Namespace)
	if s.RoleARN == "" {
		text += "\nPOPULATE ROLE ARN AND DELETE THIS LINE"
	}
	return File{Name: fmt.Sprintf("%s/%s-%s-credentials.yaml", Manifests, s.Namespace, s.Name), Data: []byte(text), Mode: 0o600}
}

// Authentication is the manifest that gives a new cluster its issuer URL, byte for byte as ccoctl writes it.
func Authentication(issuer string) File {
	return File{Name: Manifests + "/cluster-authentication-02-config.yaml", Mode: 0o600, Data: []byte(`apiVersion: config.openshift.io/v1
kind: Authentication
metadata:
  name: cluster
spec:
  serviceAccountIssuer: ` + issuer)}
}

// Discovery is the dry-run file of a discovery document.
func Discovery(document []byte) File { return dryRun("02-openid-configuration", document) }

// Keys is the dry-run file of a JWKS. OpenShift's documented key rotation merges it.
func Keys(jwks []byte) File { return dryRun("03-keys.json", jwks) }

// Provider is the dry-run file of an IAM OIDC identity provider: what `aws iam create-open-id-connect-provider
// --cli-input-json` takes.
func Provider(input []byte) File { return dryRun("04-iam-identity-provider.json", input) }

// Role is the dry-run file of a role: what `aws iam create-role --cli-input-json` takes. i counts CredentialsRequests
// from 0; name is the role's before it is cut to what IAM allows, so that files keep apart what IAM does not.
func Role(i int, name string, input []byte) File {
	return dryRun(fmt.Sprintf("05-%d-%s-role.json", i, name), input)
}

// RolePolicy is the dry-run file of a role's permissions policy: what `aws iam put-role-policy --cli-input-json` takes.
// See [Role].
func RolePolicy(i int, name string, input []byte) File {
	return dryRun(fmt.Sprintf("06-%d-%s-policy.json", i, name), input)
}

func dryRun(name string, data []byte) File { return File{Name: name, Data: data, Mode: 0o644} }
