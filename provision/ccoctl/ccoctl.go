// Package ccoctl holds what an installation of OpenShift and scripts written for ccoctl expect, byte for byte: the names
// and contents of files, the names of roles, and the lines of the log. It promises that a file of the output directory is
// never seen half written. It makes no network calls.
//
// Source: github.com/openshift/cloud-credential-operator, pkg/cmd/provisioning/aws.
package ccoctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"

	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/internal/strictyaml"
)

// Directories below the output directory, as the installer knows them.
const (
	ManifestsDir = "manifests" // manifests that the installer puts into the cluster
	TLSDir       = "tls"       // the signing key that it puts into the cluster
)

// Files of the cluster's key pair, below the output directory.
const (
	PrivateKeyName = "serviceaccount-signer.private"
	PublicKeyName  = "serviceaccount-signer.public"
	SigningKeyName = TLSDir + "/bound-service-account-signing-key.key" // the private half again, where the installer takes it from
)

// defaultTokenPath is where OpenShift's own components find their token for the cloud.
const defaultTokenPath = "/var/run/secrets/openshift/serviceaccount/token" //nolint:gosec // the path of a token, not a token

// File is a complete file of the output directory. The installer and scripts look for it by its name.
type File struct {
	Name string // below the output directory, with slashes
	Data []byte
	Mode fs.FileMode // less the umask

	Namespace string // of the Secret of a component, whose manifest it is; empty for any other file

	log string // the line that reports it, up to its path
}

// Secret is the Kubernetes Secret from which a component learns its role in AWS.
type Secret struct {
	Namespace, Name string
	RoleARN         string // empty while it is not known
	TokenPath       string // empty for that of OpenShift's own components
}

// File returns the manifest of a Secret. Without a role it ends, as ccoctl's does, in a line that is not YAML: `oc apply`
// then refuses a file in which nobody has filled in the role, instead of making a component that cannot start.
func (s Secret) File() File {
	if s.TokenPath == "" {
		s.TokenPath = defaultTokenPath
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
type: Opaque`, s.RoleARN, s.TokenPath, scalar(s.Name), scalar(s.Namespace))
	if s.RoleARN == "" {
		text += "\nPOPULATE ROLE ARN AND DELETE THIS LINE"
	}
	return secretFile(s.Namespace, s.Name, text)
}

// otherScalar matches the names of Kubernetes objects that some reader of YAML takes for something else than text: null, booleans,
// numbers, dates (https://yaml.org/type/, which YAML 1.1 readers such as Kubernetes' go by, and https://yaml.org/spec/1.2.2/#103-core-schema).
var otherScalar = regexp.MustCompile(`(?i)^(null|true|false|y|n|yes|no|on|off|0x[0-9a-f]+|0o[0-7]+|0b[01]+|[0-9]+(\.[0-9]*)?(e-?[0-9]+)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2})$`)

// scalar returns the name of a Kubernetes object as YAML: as it is, as ccoctl writes it, unless that is read as something else.
func scalar(name string) string {
	if otherScalar.MatchString(name) {
		return `"` + name + `"`
	}
	return name
}

// secretFile returns the file of a Secret's manifest.
func secretFile(namespace, name, text string) File {
	return File{Name: fmt.Sprintf("%s/%s-%s-credentials.yaml", ManifestsDir, namespace, name), Data: []byte(text), Mode: 0o600, Namespace: namespace,
		log: "Saved credentials configuration to: "}
}

// AuthenticationFile returns the manifest that gives a new cluster its issuer URL.
func AuthenticationFile(issuer string) File {
	return File{Name: ManifestsDir + "/cluster-authentication-02-config.yaml", Mode: 0o600,
		log: "Wrote cluster authentication manifest at path ", Data: []byte(`apiVersion: config.openshift.io/v1
kind: Authentication
metadata:
  name: cluster
spec:
  serviceAccountIssuer: ` + issuer)}
}

// maxManifest is the most bytes of a manifest that is read; an [AuthenticationFile] has less than 1 KiB.
const maxManifest = 64 << 10

// IssuerIn returns the issuer URL in the [AuthenticationFile] of an output directory, which says whose directory it is. It is empty
// where there is no such file, and where the file has none. The error is about one that cannot be read: it may be anybody's.
func IssuerIn(dir string) (string, error) {
	data, err := regular.Read(filepath.Join(dir, filepath.FromSlash(AuthenticationFile("").Name)), maxManifest)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(data) == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	asJSON, err := strictyaml.ToJSON(data, maxManifest)
	if err != nil {
		return "", err
	}
	var manifest struct {
		Spec struct {
			ServiceAccountIssuer string `json:"serviceAccountIssuer"`
		} `json:"spec"`
	}
	if json.Unmarshal(asJSON, &manifest) != nil {
		return "", errors.New("it has something else than text in the place of spec.serviceAccountIssuer")
	}
	return manifest.Spec.ServiceAccountIssuer, nil
}

// DiscoveryFile returns the dry-run file of a discovery document.
func DiscoveryFile(document []byte) File {
	return dryRun("02-openid-configuration", "discovery document", document)
}

// JWKSFile returns the dry-run file of a JWKS. OpenShift's documented key rotation merges it.
func JWKSFile(jwks []byte) File { return dryRun("03-keys.json", "JSON web key set (JWKS)", jwks) }

// ProviderFile returns the dry-run file of an IAM OIDC identity provider: the input of `aws iam
// create-open-id-connect-provider --cli-input-json`.
func ProviderFile(input []byte) File {
	return dryRun("04-iam-identity-provider.json", "AWS IAM Identity Provider", input)
}

// RoleID identifies the files of one role.
type RoleID struct {
	Number                          int // of its CredentialsRequest, from 0
	Installation, Namespace, Secret string
}

// Files returns the dry-run files of a role and of its permissions policy: the inputs of `aws iam create-role
// --cli-input-json` and `aws iam put-role-policy --cli-input-json`.
func (r RoleID) Files(role, policy []byte) []File {
	// Not [RoleName]: two roles may be cut to one name.
	name := fmt.Sprintf("%d-%s-%s-%s", r.Number, r.Installation, r.Namespace, r.Secret)
	what := fmt.Sprintf("OpenShift role for %s/%s", r.Namespace, r.Secret)
	return []File{dryRun("05-"+name+"-role.json", what, role), dryRun("06-"+name+"-policy.json", "policy for "+what, policy)}
}

// RoleFiles is a pattern that the files of all roles match.
const RoleFiles = "05-*-role.json"

func dryRun(name, what string, data []byte) File {
	return File{Name: name, Data: data, Mode: 0o644, log: "Saving " + what + " locally at "}
}

// roleNameLimit is IAM's, in characters.
const roleNameLimit = 64

// RoleName returns the name of the role behind a CredentialsRequest's Secret. It is cut to 64 bytes, so two requests may
// lead to the same name.
func RoleName(installation, namespace, secret string) string {
	return cut(installation + "-" + namespace + "-" + secret)
}

// RoleNamePrefix returns the beginning that the names of all roles of an installation share.
func RoleNamePrefix(installation string) string { return cut(installation + "-") }

func cut(name string) string { return name[:min(len(name), roleNameLimit)] }

// The tag that marks what was made for an installation: its key is OwnerTagPrefix and the installation's name, its value
// is Owned. ccoctl looks only at the key.
const (
	OwnerTagPrefix = "openshift.io/cloud-credential-operator/"
	Owned          = "owned"
)
