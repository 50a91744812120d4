package keycmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/party"
)

// stillTrusting returns, for each relying party that the policy declares, until when it may trust a key that left at a time,
// and what ends that sooner, where caches were seen to be given these times; where none is declared, for each that is known.
// The cluster itself reads its own files, which no document of ours changes.
func stillTrusting(s keystore.KeySet, at time.Time, seen keystore.Cache) []string {
	parties := s.Policy().RelyingParties
	if len(parties) == 0 {
		parties = append(party.Known(), "any other")
	}
	var lines []string
	for _, name := range parties {
		if party.IsUpload(name) {
			lines = append(lines, name+" without end: until the published keys, without it, are uploaded there, and perhaps for 1h after that")
			continue
		}
		lines = append(lines, trustOf(name, s.Issuers()[0].String(), cli.Stamp(s.Gates().CopiesOf(name, at, seen)))...)
	}
	if s.Policy().Reach != keystore.ReachCopies { // else nobody reads the documents, through a cache or without
		lines = append(lines, "caches in front of keypostd: purge them, also of copies that are stale; a purge that only marks copies stale ends nothing")
	}
	return append(lines,
		"the cluster's own kube-apiservers, without end, in this order; on OpenShift the key stands in ConfigMap bound-sa-token-signing-certs of openshift-kube-apiserver:",
		"  1. on each control-plane node the replacement's public key beside the old one in --service-account-key-file; restart every kube-apiserver",
		"  2. the replacement as --service-account-signing-key-file, and as --service-account-private-key-file of kube-controller-manager; restart them all",
		"  3. take the stolen key's file out of --service-account-key-file and restart every kube-apiserver: each running pod gets 401 until it has a new token",
		"  4. restart what runs in pods, the cluster's own add-ons first: a kubelet gives out new tokens only when old ones are near their end",
		"where keypost-signer signs, in place of steps 1 to 3: the replacement's file beside the signer's other keys. No signer signs with the stolen key 2s after its mirror "+
			"has copied the key set (within seconds from a directory or Kubernetes, 15s from s3://, or its --poll); the API servers refuse its tokens at most 10s later")
}

// trustOf says of one relying party until when it may trust a key that left, and what ends that: commands, each on a line of its
// own.
//
// Sources: go-oidc verifies with the keys that it has, and fetches only when none of them fits, v2 (kube-apiserver up to 1.36)
// not before its copy is older than max-age (coreos/go-oidc v2.3.0 jwks.go, v3.21.0 oidc/jwks.go: verify); Vault's JWT method uses v3
// (hashicorp/cap, jwt/keyset.go) and drops its copy when its configuration is written (vault-plugin-auth-jwt, path_config.go). AWS:
// IAM user guide, "Revoke IAM role temporary security credentials".
func trustOf(party, issuer, until string) []string {
	const unknownKid = "as it fetches only for a kid that it does not know: once no cache has the key any more (--wait), or after"
	switch provider := "oidc-provider/" + strings.TrimPrefix(issuer, "https://"); party {
	case "aws":
		return []string{
			"aws until " + until + ": nothing makes STS fetch sooner; deleting the provider (" + provider + ") ends it at once, for your own pods too",
			"aws sessions that STS has given out, for up to 12h: for each of these roles, now and again after that time, whereupon your own pods need new ones, too:",
			"  aws iam list-roles --output text --query " + text.Quoted("Roles[?contains(to_string(AssumeRolePolicyDocument), '"+provider+"\"')].RoleName"),
			"  aws iam put-role-policy --role-name ROLE --policy-name AWSRevokeOlderSessions --policy-document " + revokeSessions,
		}
	case "gcp":
		return []string{
			"gcp until " + until + ", and with an uploaded JWKS until another one is (--jwk-json-path FILE); to end it at once:",
			"  gcloud iam workload-identity-pools providers update-oidc PROVIDER --workload-identity-pool POOL --location global --disabled",
			"gcp access tokens that it has given out, for up to 1h: disable the service accounts to end them",
		}
	case "entra":
		return []string{
			"entra until " + until + "; to end it now, delete the federated credentials that name this issuer; access tokens that it has given out live on for an hour and more:",
			"  az identity federated-credential delete --name NAME --identity-name IDENTITY --resource-group GROUP",
			"  az ad app federated-credential delete --id APP --federated-credential-id NAME",
		}
	case "vault":
		return []string{
			"vault without end, " + unknownKid + " " + until + ", write the auth method's configuration again, which drops its copy, with what else stood there; then revoke what it gave out:",
			"  vault read auth/NAME/config",
			"  vault write auth/NAME/config oidc_discovery_url=" + issuer,
			"  vault token revoke -mode path auth/NAME",
		}
	case "kube-apiserver":
		return []string{"kube-apiserver (of a cluster that trusts this issuer) without end, " + unknownKid + " " + until + ", restart it, or show it a token of a new signing key"}
	}
	return []string{fmt.Sprintf("%s until %s where it fetches by itself, and without end where it fetches only for a kid that it does not know, as Go services with go-oidc do: restart or reconfigure what holds a copy, once no cache has the key any more (--wait)", party, until)}
}

// revokeSessions is the policy of AWS's console ("Revoke active sessions") as a word of a shell, with the time at which it is run.
const revokeSessions = `'{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":["*"],"Resource":["*"],"Condition":{"DateLessThan":{"aws:TokenIssueTime":"'$(date -u +%Y-%m-%dT%H:%M:%SZ)'"}}}]}'`
