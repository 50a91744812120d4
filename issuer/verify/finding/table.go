package finding

import "slices"

// Where it is written, or tested, that a cause happens to people.
const (
	awsSTS      = "https://repost.aws/knowledge-center/iam-sts-invalididentitytoken"
	awsProvider = "https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html"
	awsDeny     = "https://repost.aws/knowledge-center/eks-troubleshoot-oidc-and-irsa"
	awsCaching  = "https://gitlab.com/gitlab-org/gitlab/-/merge_requests/138405"
	gcpPages    = "https://cloud.google.com/iam/docs/workload-identity-federation-with-kubernetes"
	entraPages  = "https://azure.github.io/azure-workload-identity/docs/troubleshooting.html"
	cloudFront  = "https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/HTTPStatusCodes.html"

	testImpostor  = "issuer/verify TestImpostor"
	testCaches    = "test/e2e TestBehindCaches"
	testCluster   = "test/e2e TestVerifyCluster"
	testAnswers   = "test/e2e TestKubeAPIServerAnswers"
	testAWS       = "test/e2e TestAWSTokenAssumesTheRole"
	testRevoke    = "test/e2e TestRevoke"
	testRotations = "test/e2e TestRotationRefusesNoToken"
	testLifetimes = "test/e2e TestTokenLifetimes"
	testUploads   = "cmd/keypost/testdata/gcp_sync.txtar"
)

// Causes returns the table, in the order in which a relying party meets the causes: what stands earlier may have led to what stands
// later. A cluster stands before its tokens.
func Causes() []Cause {
	return slices.Concat(reachCauses(), tlsCauses(), documentCauses(), keyCauses(), storedCauses(), originCauses(), uploadCauses(),
		clusterCauses(), tokenCauses(), awsCauses(), trustCauses(), comparisonCauses())
}

func reachCauses() []Cause {
	return []Cause{
		{
			"url-form", "url", "clouds do not accept the issuer URL", "they compare it byte for byte",
			"issue tokens under another URL (kube-apiserver --service-account-issuer): https, host in lower case, no port, no slash at the end; for a development issuer say --dev",
			awsProvider, append(aws("InvalidInput", awsNoProvider), mismatch()...),
		},
		{
			"dns-none", "reach", "the host name does not resolve", "",
			"publish an A record for the host in the public DNS; if no name resolves here, repair this machine's resolver (/etc/resolv.conf)", awsSTS, unreadable(),
		},
		{
			"dns-hidden", "addresses", "the host name leads to a private address here", "with split-horizon DNS nothing here says what clouds see",
			"look again from outside; an issuer that is meant to be private says so in its policy: keypost issuer set NAME --reach private", awsSTS, unreadable(),
		},
		{
			"address-unasked", "addresses", "this machine did not ask every address itself", "relying parties may be sent there and get another answer; such a look opens no gate",
			"look again from a machine that reaches each address directly; give the host at most 32", "cmd/keypost/testdata/verify_proxy.txtar", nil,
		},
		{
			"connection-refused", "reach", "there is no TLS connection", "",
			"start keypostd there with TLS 1.2 and 1.3, open the way to port 443, or take the address out of the DNS record", awsSTS, unreadable(),
		},
		{
			"connection-dropped", "reach", "connections are not answered", "AWS gives up after 5 seconds, others after 30",
			"let port 443 through the firewall from everywhere; if connections are accepted, see the log of the server", awsSTS, unreadable(),
		},
		{
			"clock-off", "clock", "this machine's clock and the server's differ by more than a minute", "gated steps refuse, and tokens of such a machine count as expired or as not valid yet",
			"set both clocks (chronyc makestep)", entraPages, nil,
		},
	}
}

func tlsCauses() []Cause {
	return []Cause{
		{"tls-name", "tls-chain", "the certificate is for another host", "", "use a certificate for this host name", awsProvider, untrusted()},
		{
			"tls-untrusted", "tls-chain", "an unknown CA signed the certificate, or the intermediate one is missing", "",
			"use a certificate of a public CA and send the intermediate ones with it, or give a private CA with --ca-file", awsSTS, untrusted(),
		},
		{
			"tls-order", "tls-chain", "the certificates are out of order, or one is sent twice", "browsers and Go do not mind",
			"send the leaf first and after each certificate the one that signed it, nothing else (keypostd reads it from tls.files[].cert)", awsSTS, aws(awsNoKey),
		},
		{"tls-13-only", "tls-versions", "TLS 1.2 is not accepted", "", "offer TLS 1.2 as well (in CloudFront: the policy TLSv1.2_2021)", awsProvider, aws(awsThumbprint)},
		{
			"tls-expired", "tls-expiry", "the certificate has expired, is not valid yet, or expires soon", "once it has expired every token exchange fails",
			"renew the certificate, see why it was not renewed, and check this machine's clock", awsProvider, untrusted(),
		},
	}
}

func documentCauses() []Cause {
	const export = "serve the documents of an export, unchanged (keypost export DIR)"
	const proxy = " let it pass on host and path unchanged, without a login, as docs/cdn/nginx.conf does"
	const answering = ", with status 200; purge a cached error, and see the log of what answers"
	const cached = "serve it as keypostd does, with Cache-Control: public, max-age=300; a CDN must not rewrite the header"
	return []Cause{
		{
			"discovery-not-found", "discovery", "the discovery document is not there", "",
			"serve it with status 200, and purge a cached 404: see what keypostd serves with keypost issuer list --admin URL; if it serves this issuer, a proxy asks it for another host or path:" + proxy,
			testAnswers, unreadable(),
		},
		{
			"discovery-forbidden", "discovery", "the discovery document is not for everybody", "relying parties bring no credentials",
			"let everybody read it, as they ask; where a proxy is before it:" + proxy +
				"; kube-apiserver's own with kubectl create clusterrolebinding issuer-discovery --clusterrole=system:service-account-issuer-discovery --group=system:unauthenticated",
			"test/e2e TestKubeAPIServerAsIssuer", unreadable(),
		},
		{
			"discovery-form", "discovery", "the discovery document does not come with status 200, or not everybody reads the same in it", "relying parties need not follow a redirect",
			export + answering + ". A proxy asks keypostd with https:// where its tls.mode is files or acme, with http:// where it is off", awsSTS, unreadable(),
		},
		{
			"issuer-other", "issuer", "the discovery document names another issuer", "",
			"serve this issuer's own document at this URL: host, path, case and a trailing slash must be equal", "https://github.com/siderolabs/talos/issues/13210", mismatch(),
		},
		{
			"jwks-uri-host", "jwks-uri", "jwks_uri is on another host", "the IAM console refuses it, and a thumbprint belongs to that host's certificate",
			"keep both documents on one host: " + export, "https://github.com/OctopusDeploy/Issues/issues/8759", aws(iamCheckDocument),
		},
		{
			"document-members", "discovery-members", "the discovery document does not have a member that AWS documents", "AWS, Entra and Vault refuse some of them",
			export, "https://github.com/hashicorp/vault/issues/7533", append(aws(awsNoKey, iamNoDocument, iamCheckDocument), Answer{Entra, "AADSTS90061"}),
		},
		{
			"jwks-form", "jwks", "the JWKS does not come with status 200, or not everybody reads the same in it", "relying parties bring no credentials, and need not follow a redirect",
			export + answering, awsSTS, noJWKS(),
		},
		{"jwks-empty", "jwks-keys", "the JWKS has no key", "", "publish the cluster's key: keypost key add ISSUER --kubeconfig FILE", awsProvider, keyUnknown()},
		{
			"alias-differs", "jwks-alias", "/openid/v1/jwks does not have the keys of jwks_uri", "newer OpenShift sends relying parties inside the cluster there",
			"serve the JWKS there too, as keypostd does and an export has it (keypost export DIR), and purge a cache that holds an older copy", "https://github.com/openshift/cluster-kube-apiserver-operator/pull/2062", nil,
		},
		{"not-cacheable", "headers", "a document may not be cached, or for less than a minute", "under load AWS has no copy to go on with", cached, awsCaching, aws(awsNoKey)},
		{
			"max-age-long", "headers", "a document may be cached for more than an hour", "after a revocation relying parties may trust the key for that long",
			"lower it: keypost issuer set NAME --max-age 5m", testCaches, nil,
		},
		{
			"cache-stale", "shared-cache", "a cache hands out a document for longer than it may", "a new key is not seen and a revoked one stays trusted",
			"let the CDN obey Cache-Control (no minimum TTL, no TTL of its own) and purge it; or say for how long at most it holds copies: keypost issuer set NAME --edge-hold 24h", testCaches, keyUnknown(),
		},
		{
			"cache-undeclared", "shared-cache", "the policy does not say how long the shared cache holds copies", "keypost key promote refuses until the policy says it",
			"say how long it may hold a copy: keypost issuer set NAME --edge-hold 24h", testCaches, nil,
		},
	}
}

func keyCauses() []Cause {
	return []Cause{
		{
			"key-private", "jwks-keys", "the signing key is public", "everybody who read it can sign as this cluster",
			"take it out at once and give the cluster a new key: keypost key revoke ISSUER KID --why leaked --replacement FILE", "https://www.rfc-editor.org/rfc/rfc7517#section-9.2", nil,
		},
		{
			"key-form", "jwks-keys", "relying parties cannot use a key of the JWKS", "each key needs a kid of its own, and 2048 bits or more or a NIST curve; some relying parties then read no key at all",
			"serve the JWKS of an export, unchanged (keypost export DIR); if the cluster has such a key, give it another: keypost key generate --out DIR", awsProvider,
			damagedKey(),
		},
		{
			"key-refused", "jwks-keys", "a declared relying party does not take a key", "Entra takes RS256, GCP and Databricks take RS256 and ES256, Oracle takes RS256 to RS512",
			"give the cluster an RSA key: keypost key generate --type rsa3072 --out DIR, then keypost key add ISSUER --public-key-file DIR/sa.pub; take the other one out once it signs no more (keypost key remove ISSUER KID)",
			gcpPages, []Answer{{GCP, "invalid_grant"}, {Entra, "AADSTS700027"}},
		},
	}
}

func storedCauses() []Cause {
	const behind = "see that keypostd serves the stored version (keypost issuer list --admin URL) and that its mirror is up to date; a shared cache that shows itself in no header is declared with keypost issuer set NAME --edge-hold 24h"
	const stranger = "tokens signed with it are accepted wherever this issuer is trusted: somebody else answers for your issuer, or publishes a key of theirs"
	const outOfReach = "first take what serves it out of reach (DNS record, CDN, host) and replace the TLS key; until that is done deny this issuer in the trust policies of the clouds." +
		" Make sure also that --store names the store that is published"
	return []Cause{
		{
			"key-rogue", "stored-keys", "a key is published that the store never had, perhaps under the kid of a stored one", stranger,
			"ask keypostd itself first (keypost issuer list --admin URL): older_generation means that the store was put back to an older version, by a backup or a revert in Git, and that the key may be your own, of a version in between; else " + outOfReach,
			testImpostor, nil,
		},
		{"keys-unread", "stored-keys", "what is published cannot be compared, or the discovery document names a JWKS that is not keypostd's", stranger, outOfReach, testImpostor, nil},
		{
			"key-changed", "stored-keys", "a stored key is published under another kid or for another algorithm", "relying parties pick the key by its kid, and refuse its tokens",
			"find out what changed the document on its way, and compare it with an export (keypost export DIR)", testImpostor, keyUnknown(),
		},
		{
			"key-still-there", "stored-keys", "a key that is gone is still published", "tokens signed with it are still accepted; where a cache explains it, it is a warning",
			"purge the CDN, look for a host that serves an older document, and look again; " + behind, testRevoke, nil,
		},
		{
			"key-missing", "stored-keys", "a stored key is not published, or not everywhere yet", "tokens signed with it are refused; where a cache explains it, it is a warning",
			"look again later; keypostd may reject the key set (see its log); " + behind, testImpostor, keyUnknown(),
		},
		{
			"active-none", "active-key", "no key is active", "what the cluster signs may be refused; before a cluster signs and after its end it is so",
			"once the cluster is to sign with the next key: keypost key promote ISSUER KID", "cmd/keypost/testdata/key_revoke_next.txtar", keyUnknown(),
		},
		{
			"addresses-differ", "same-keys", "the addresses publish different keys", "",
			"a cache may hold an older copy, or somebody else answers at one of them: compare with the store (keypost verify NAME --store STORE)", testImpostor, keyUnknown(),
		},
	}
}

func originCauses() []Cause {
	return []Cause{
		{
			"cdn-refused", "origin", "keypostd refuses its own CDN", "a CDN hands out copies for as long as it has them, and then this",
			"have the CDN show its origin the header of listen.shield with the secret that is in one of keypostd's secretFiles, or the client certificate where there is clientCAFile. To change the secret," +
				" give keypostd the new file beside the old one and restart it before the CDN gets it; keypost_shield_refused_total counts what is refused",
			cloudFront, unreadable(),
		},
		{
			"origin-unreachable", "origin", "an origin cannot be asked from here", "a stale replica stays hidden; if it is down, relying parties are refused once every copy is gone",
			"look from where the cache looks: keypost verify NAME --connect HOST:PORT; start keypostd there if that fails too, with a certificate for the issuer's host or for the origin's name in the policy;" +
				" if it answers its cache only, show it what that shows (KEYPOST_ORIGIN=HOST with KEYPOST_ORIGIN_HEADER_FILE=FILE, or with KEYPOST_ORIGIN_CERT and KEYPOST_ORIGIN_KEY)", testCaches, unreadable(),
		},
	}
}

// uploadCauses are about the JWKS that was uploaded to a relying party, which goes by that and fetches nothing.
func uploadCauses() []Cause {
	const sync = "upload the published keys and read them back: keypost sync-keys ISSUER; where that is refused, it says what comes first"
	return []Cause{
		{
			"upload-behind", "uploads", "a relying party holds an upload with other keys than the published ones",
			"tokens signed with a key that it does not have are refused there, those of a key that it has too many are accepted, and gates stay closed",
			sync, testUploads, []Answer{{GCP, "invalid_grant"}, {Vault, vaultNoKey}},
		},
		{
			"upload-unread", "uploads", "what a relying party holds is not known here", "nobody knows which keys the relying party goes by, and gates stay closed",
			sync, testUploads, nil,
		},
	}
}

// clusterCauses are what can be wrong with the cluster whose tokens an issuer stands for.
func clusterCauses() []Cause {
	const signWith = "let every kube-apiserver sign with the active key (--service-account-signing-key-file), and the controller-manager too"
	return []Cause{
		{
			"cluster-unreachable", "cluster-reach", "the cluster cannot be asked", "",
			"see that the kubeconfig's server is right, can be reached from here and accepts its credentials (kubectl version)", testCluster, unauthorized(),
		},
		{"cluster-forbidden", "cluster-rights", "the kubeconfig's user may not look", "what cannot be read is not checked", "have an administrator of the cluster grant it", testCluster, nil},
		{"cluster-account-missing", "cluster-token", "no token can be made for the service account", "", "give another with --service-account NAMESPACE/NAME, and see the log of the kube-apiserver", testCluster, nil},
		{
			"cluster-key-lacking", "cluster-keys", "a kube-apiserver does not trust the key that another one signs with", "pods with tokens of the one get 401 from the other",
			"give every kube-apiserver the public half of each key (--service-account-key-file) before one of them signs with it", "test/e2e TestSwitchIssuerOfSeveralServers", unknownBearer(),
		},
		{
			"cluster-issuer-other", "cluster-issuer", "the cluster signs as another issuer", "the first --service-account-issuer signs, and the others are accepted",
			"restart every kube-apiserver with the issuer URL as the first --service-account-issuer, and its present one as the second", testCluster, otherIssuer(),
		},
		{
			"cluster-key-gone", "cluster-key", "the cluster signs with a key that is retired, removed or revoked", "every token that it makes is refused once the key is gone, and such a key never returns",
			signWith, testRotations, keyUnknown(),
		},
		{
			"cluster-key-revoked", "cluster-keys", "a kube-apiserver accepts tokens of a key that was revoked", "with the key anybody can be any service account of the cluster",
			"take it out of --service-account-key-file once every kube-apiserver signs with another key (docs/stolen-key.md, round 3)", "test/e2e TestRevoke", nil,
		},
		{
			"cluster-key-unpublished", "cluster-key", "the cluster signs with a key that is not published", "", "publish it: keypost key add ISSUER --kubeconfig FILE",
			"https://github.com/Azure/azure-workload-identity/issues/1232", append(keyUnknown(), Answer{AWS, awsNoJWT}, Answer{Entra, "AADSTS700027"}),
		},
		{
			"cluster-key-next", "cluster-key", "the cluster signs with a key that may not sign yet", "relying parties and caches that hold an older copy refuse its tokens, the others take them",
			signWith + ", until this one is promoted: keypost rotate step ISSUER --wait", testRotations, keyUnknown(),
		},
		{
			"cluster-servers-unasked", "cluster-servers", "not all of the cluster could be checked", "a kube-apiserver that was not restarted goes on signing as before",
			"repair what fails besides, and run it again where the addresses of all kube-apiservers can be reached", "test/e2e TestSwitchIssuerOfSeveralServers", nil,
		},
		{
			"cluster-audience-lacking", "cluster-audiences", "--api-audiences does not include the audience of tokens that pods still have", "what runs in the pods gets 401 from the API server until it has a new token",
			"restart every kube-apiserver with the old issuer in --api-audiences as well, until every pod has a new token", testCluster,
			append([]Answer{{KubeAPIServer, "is invalid for the target audiences"}}, unauthorized()...),
		},
		{
			"cluster-audience-cloud", "cluster-audiences", "a cloud's audience is one of the cluster's own (--api-audiences)",
			"the token that every pod has is good for the cloud, lives for up to a year, and its key cannot be removed before; tokens made for the cloud are good for the API server",
			"restart every kube-apiserver without it in --api-audiences", testLifetimes, []Answer{{GCP, "invalid_grant: ID Token issued at"}},
		},
	}
}

// tokenCauses are what can be wrong with a service account token, in the order in which STS looks at it.
func tokenCauses() []Cause {
	const clocks = "set the clocks of the kube-apiserver and of this machine (chronyc tracking)"
	return []Cause{
		{
			"token-unchecked", "token-look", "the token was not checked", "nobody knows whether it would be taken", "repair what fails besides, and look again",
			"test/e2e TestKubeAPIServerAsIssuer", nil,
		},
		{
			"token-malformed", "token-form", "the token is not a JWT of a service account", "it is shortened, longer than 20000 characters, or has not all claims; the old tokens in Secrets have no exp and no aud",
			"make one with " + MakeToken + ", and give the whole of it", awsSTS, append(append(aws(
				awsNoJWT, "IDPRejectedClaim", "InvalidIdentityToken: Missing a required claim: exp", "InvalidIdentityToken: Missing a required claim: sub", "InvalidIdentityToken: Missing a required claim: aud",
				"ValidationError: 1 validation error detected: Value at 'webIdentityToken' failed to satisfy constraint: Member must have length less than or equal to 20000",
			), []Answer{{GCP, "invalid_grant"}, {Entra, "AADSTS700213"}, {Vault, "oidc: malformed jwt"}, {KubeAPIServer, "oidc: token is expired"}}...), unknownBearer()...),
		},
		{
			"token-issuer-other", "token-issuer", "the token belongs to another issuer", "a slash at the end and letter case count",
			"if it is a token of this cluster: restart every kube-apiserver with the issuer URL as its first --service-account-issuer, and its present one as the second, or every running pod gets 401; then make a new token",
			awsSTS, otherIssuer(),
		},
		{
			"token-alg", "token-form", "the token is signed with an algorithm that clouds do not accept", "kube-apiserver and Vault take PS256, PS384 and PS512 too",
			"give the cluster an RSA or ECDSA key (keypost key generate --out DIR); it then signs with RS256, ES256, ES384 or ES512", testAnswers,
			[]Answer{{AWS, awsNoJWT}, {AWS, awsNoKey}, {Entra, "AADSTS700027"}, {Vault, "oidc: malformed jwt"}, {KubeAPIServer, "oidc: id token signed with unsupported algorithm"}},
		},
		{
			"token-kid-gone", "token-kid", "the key of the token was removed", "",
			"make a new token; if the new one has this key too, the cluster still signs with it, and a key that is gone never returns: give the cluster a new one (keypost key generate --out DIR), and publish it: keypost key add ISSUER --public-key-file DIR/sa.pub",
			testRevoke, append(keyUnknown(), Answer{KubeAPIServer, invalidBearer}),
		},
		{
			"token-kid-next", "token-kid", "the key of the token may not sign yet", "relying parties and caches that hold an older copy refuse it",
			"let every kube-apiserver sign with the key before it again until this one is promoted: keypost rotate step ISSUER --wait; then make a new token", testRotations, keyUnknown(),
		},
		{
			"token-kid-unknown", "token-kid", "the key of the token is not published", "",
			"make a new token, since this one may be of an earlier key; if the new one fails too, publish the key that the cluster signs with: keypost key add ISSUER --kubeconfig FILE", testAnswers,
			append(keyUnknown(), Answer{KubeAPIServer, invalidBearer}),
		},
		{
			"token-signature-wrong", "token-signature", "another key than the named one signed the token", "",
			"make a new token; if it fails too, publish the key that signs (keypost key add ISSUER --kubeconfig FILE) under a kid of its own", testAnswers, signatureWrong(),
		},
		{
			"token-expired", "token-time", "the token has expired", "AWS STS accepts a token for 5 minutes more, others do not",
			"make a new token, and let the program read its token file again before each use: kubelet renews the file", testAnswers, expired(),
		},
		{
			"token-not-yet", "token-time", "the token is not valid yet, or was issued in the future", "", clocks, testAnswers,
			[]Answer{
				{AWS, "InvalidIdentityToken"}, {GCP, "invalid_grant"}, {Entra, "AADSTS700024"}, {Vault, "invalid not before (nbf) claim"}, {Vault, "invalid issued at (iat) claim"}, {KubeAPIServer, "oidc: current time"},
			},
		},
		{
			"token-lifetime", "token-time", "the token lives longer than 24 hours", "a thief may use it for that long, and its key cannot be removed before",
			"ask for at most 24 hours (expirationSeconds of the projected volume, kubectl create token SERVICEACCOUNT --duration 1h), and take the cloud's audience out of --api-audiences: kube-apiserver extends tokens of its own audiences to a year",
			testLifetimes, []Answer{{GCP, "invalid_grant: ID Token issued at"}},
		},
		{
			"token-aud-cluster", "token-claims", "the token is for the cluster itself", "a cloud that accepts it lets every pod in with the token that it has anyway",
			"ask for the cloud's audience: " + MakeToken + ", or audience in the projected volume", awsSTS, otherAudience(),
		},
		{
			"token-aud-unusual", "token-claims", "the declared relying parties do not ask for the token's audience by default", "",
			"see that the cloud has this audience (AWS as a client ID of the provider, GCP among the allowed audiences of the provider, Entra in the federated credential), or ask for another with " + MakeToken, testAnswers, otherAudience(),
		},
		{
			"token-sub-gcp", "token-claims", "the token's subject is too long for GCP", "",
			"shorten the namespace or the service account's name, or map google.subject from a part of the subject (gcloud iam workload-identity-pools providers update-oidc PROVIDER --attribute-mapping MAPPING)",
			gcpPages, []Answer{{GCP, "invalid_grant: The size of mapped attribute exceeds the 127 bytes limit."}},
		},
	}
}

// awsCauses are what can be wrong with the role's account, the IAM OIDC identity provider, and the pod.
func awsCauses() []Cause {
	const create = "aws iam create-open-id-connect-provider --url URL --client-id-list sts.amazonaws.com, or keypost aws create-identity-provider"
	return []Cause{
		{
			"aws-unread", "aws-access", "the AWS account cannot be looked at", "", "set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the role's account, and AWS_REGION; see whether they are good: aws sts get-caller-identity",
			"cmd/keypost/testdata/verify_role.txtar", nil,
		},
		{"aws-forbidden", "aws-access", "the caller may not read the provider or the role", "what cannot be read is not checked", "have an administrator of the account grant it", "cmd/keypost/testdata/verify_role.txtar", nil},
		{
			"aws-pod-unset", "aws-pod", "the program finds no role and no token: its SDK has not asked STS", "",
			"set AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE in the pod and mount a projected token there, or make the pod anew if a webhook does that (kubectl exec POD -- env shows them);" +
				" a program in Java needs the module sts as well, and an SDK of before 2019 knows neither", "https://docs.aws.amazon.com/eks/latest/userguide/iam-roles-for-service-accounts-minimum-sdk.html", noCredentials(),
		},
		{
			"aws-pod-token-unread", "aws-pod", "the program cannot read the token file: its SDK has not asked STS", "",
			"where it is not there, mount a projected token at the path of AWS_WEB_IDENTITY_TOKEN_FILE; where permission is denied, set securityContext.fsGroup of the pod to a group of the program (any number), so that kubelet lets that read it",
			"https://github.com/aws/amazon-eks-pod-identity-webhook/issues/8", noTokenFile(),
		},
		{"aws-provider-missing", "aws-provider", "the role's account has no IAM OIDC identity provider for the issuer", "a provider in another account, or for another spelling of the URL, does not count", create, awsSTS, aws(awsNoProvider)},
		{
			"aws-client-id-missing", "aws-client-id", "the token's audience is not a client ID of the provider", "",
			"aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn ARN --client-id AUDIENCE", awsSTS, aws(awsAudience),
		},
		{
			"aws-thumbprint-stale", "aws-thumbprint", "the provider has no thumbprint of the issuer's private CA", "",
			"aws iam update-open-id-connect-provider-thumbprint --open-id-connect-provider-arn ARN --thumbprint-list SHA1", awsSTS, aws(awsThumbprint),
		},
		{"aws-role-missing", "aws-role", "there is no role with this ARN", "", "give the pods the ARN of a role that is there, or make it: keypost aws create-role", awsDeny, aws(awsDenied)},
	}
}

func trustCauses() []Cause {
	const put = "aws iam update-assume-role-policy --role-name ROLE --policy-document POLICY"
	denied := aws(awsDenied)
	return []Cause{
		{"aws-trust-provider", "aws-trust", "the trust policy does not trust the issuer's provider", "it names another provider, action or claim, or denies it", put, awsDeny, denied},
		{"aws-trust-audience", "aws-trust", "the trust policy asks for another audience", "", put, awsDeny, denied},
		{"aws-trust-wildcard", "aws-trust", "the trust policy compares letter for letter with a pattern", "StringEquals takes * and ? as they are, StringLike does not", put, testAWS, denied},
		{"aws-trust-subject", "aws-trust", "the trust policy asks for another service account", "the sub is always system:serviceaccount:NAMESPACE:NAME", put, awsDeny, denied},
		{
			"aws-trust-unclear", "aws-trust", "the trust policy has a condition that depends on more than the token", "it may keep the token out",
			"try it with --role-arn, --token-file and --assume: keypost verify ISSUER", testAWS, denied,
		},
		{
			"aws-trust-open", "aws-trust", "the trust policy lets more tokens in than it should", "a role should name the provider and compare both aud and sub",
			put, "https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_create_for-idp_oidc.html", nil,
		},
		{"aws-sts-unreachable", "aws-pod", "AWS STS cannot be reached", "", "let HTTPS to STS through, set AWS_REGION to a region where STS is active, or HTTPS_PROXY", awsDeny, noSTS()},
		{
			"aws-refused", "aws-assume", "AWS STS refuses the token", "",
			"if nothing else fails: a policy of the organisation (SCP, RCP) may deny it, or the role or the provider was made within the last minute; try again", testAWS, denied,
		},
		{
			"aws-action-denied", "aws-permissions", "the role has been assumed, and its permissions do not include the action: no matter of tokens", "",
			"add a policy with the action and the resource of the message to the role after assumed-role/; if that is the node's role, the pod has none of its own: set AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE",
			awsDeny, aws("is not authorized to perform"),
		},
	}
}

// comparisonCauses stand last: that nothing was compared follows from what stands before, or from how keypost was called.
func comparisonCauses() []Cause {
	return []Cause{{
		"not-compared", "stored-keys", "the published keys were not compared with the store", "somebody who answers in your place would pass",
		"compare with the key set: keypost verify NAME --store STORE", testImpostor, nil,
	}}
}
