package finding

import "slices"

// awsDenied is all that STS says when a role's trust policy does not let a token in, and also when there is no such role.
const awsDenied = `AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity`

// awsCauses are what can be wrong with the IAM OIDC provider and the trust policy of a role.
func awsCauses() []Cause {
	return slices.Concat(accountCauses(), providerCauses(), trustCauses(), stsCauses())
}

func accountCauses() []Cause {
	return []Cause{
		{"aws-unread", "aws-access", "the AWS account cannot be looked at", nil, "", "set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_REGION; see whether they are good: aws sts get-caller-identity"},
		{"aws-credentials", "aws-access", "the credentials are of another account than the role", nil, "nothing in the role's account could be read", "run it again with credentials of the role's account (AWS_PROFILE)"},
		{"aws-forbidden", "aws-access", "the caller may not read the provider or the role", nil, "what cannot be read is not checked", "have an administrator of the account grant it"},
		{
			"aws-pod-unset", "aws-pod", "the program finds no role and no token: its SDK has not asked STS", noCredentials(), "",
			"set AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE in the pod and mount a projected token there, or make the pod anew if a webhook does that (kubectl exec POD -- env shows them);" +
				" a program in Java needs the module sts as well, and an SDK of before 2019 knows neither",
		},
		{
			"aws-pod-token-unread", "aws-pod", "the program cannot read the token file: its SDK has not asked STS", noTokenFile(), "",
			"where it is not there, mount a projected token at the path of AWS_WEB_IDENTITY_TOKEN_FILE; where permission is denied, set securityContext.fsGroup of the pod to a group of the program (any number), so that kubelet lets that read it",
		},
	}
}

// noCredentials is what SDKs say when nothing gives them credentials. The last of them go on with what each provider said.
//
// Sources: aws-sdk-go (credentials/chain_provider.go), aws-sdk-go-v2 (aws/credential_cache.go, credentials/ec2rolecreds), botocore
// (exceptions.py), aws-sdk-js (lib/config.js), @aws-sdk/credential-provider-node, AwsCredentialsProviderChain of both SDKs for Java.
func noCredentials() []Answer {
	all := []Answer{
		{AWS, "NoCredentialProviders: no valid providers in chain"}, {AWS, "failed to refresh cached credentials, no EC2 IMDS role found"}, {AWS, "Unable to locate credentials"},
		{AWS, "Missing credentials in config"}, {AWS, "To use web identity tokens, the 'sts' service module must be on the class path"},
	}
	for _, text := range wrappers() {
		all = append(all, Answer{AWS, text})
	}
	return all
}

// noTokenFile is what SDKs say of a token file that is not there or that they may not read. Where they print what the operating system
// says and nothing else, the path tells: those of projected tokens are below /var/run/secrets.
//
// Sources: aws-sdk-go-v2 (credentials/stscreds/web_identity_provider.go), aws-sdk-go (the same words), aws-sdk-java
// (STSAssumeRoleWithWebIdentitySessionCredentialsProvider) and v2 (WebIdentityTokenFileCredentialsProvider), botocore (credentials.py,
// FileWebIdentityTokenLoader) with the errors of Python, Node.js (fs).
func noTokenFile() []Answer {
	const path = "/var/run/secrets/"
	var all []Answer
	for _, text := range []string{
		"unable to read file at", "Unable to locate specified web identity token file", "Unable to read web identity token from file",
		"java.io.UncheckedIOException: java.nio.file.NoSuchFileException: " + path, "java.io.UncheckedIOException: java.nio.file.AccessDeniedException: " + path,
		"[Errno 13] Permission denied: '" + path, "[Errno 2] No such file or directory: '" + path,
		"permission denied, open '" + path, "no such file or directory, open '" + path,
	} {
		all = append(all, Answer{AWS, text})
	}
	return all
}

// wrappers are what programs print before the errors of others.
func wrappers() []string {
	return []string{"Unable to load AWS credentials from any provider in the chain", "Unable to load credentials from any of the providers in the chain", "Could not load credentials from any providers", timedOut, notConnected}
}

// Wraps reports whether an answer is what a program prints for many reasons, perhaps with the error of another: where both are
// printed, the other says more.
func (a Answer) Wraps() bool { return a.Text == invalidBearer || slices.Contains(wrappers(), a.Text) }

const invalidBearer = "invalid bearer token"

// The time-outs of the SDKs for JavaScript, which do not say of whom: of STS, or of the EC2 metadata that they ask last.
const (
	timedOut     = "TimeoutError: Connection timed out after"
	notConnected = "TimeoutError: @smithy/node-http-handler - the request socket did not establish a connection with the server within the configured timeout"
)

// noSTS is what SDKs say when they cannot reach STS.
//
// Sources: smithy-go (transport/http) and aws-sdk-go-v2 (aws/retry), aws-sdk-go (aws/request), botocore (exceptions.py),
// RetryableStage and AmazonHttpClient of the SDKs for Java, Node.js (dns, tls), aws-sdk-js (lib/event_listeners.js).
func noSTS() []Answer {
	return []Answer{
		{AWS, "operation error STS: AssumeRoleWithWebIdentity, https response error StatusCode: 0"}, {AWS, `request send failed, Post "https://sts.`},
		{AWS, `caused by: Post "https://sts.`}, {AWS, "caused by: Post https://sts."},
		{AWS, `Could not connect to the endpoint URL: "https://sts.`}, {AWS, `Connect timeout on endpoint URL: "https://sts.`}, {AWS, `Read timeout on endpoint URL: "https://sts.`},
		{AWS, `Failed to connect to proxy URL`}, {AWS, `SSL validation failed for https://sts.`},
		{AWS, "Unable to execute HTTP request: sts."}, {AWS, "Unable to execute HTTP request: Connect to sts."},
		{AWS, "getaddrinfo ENOTFOUND sts."}, {AWS, "getaddrinfo EAI_AGAIN sts."}, {AWS, "Inaccessible host: `sts."}, {AWS, timedOut}, {AWS, notConnected},
	}
}

func providerCauses() []Cause {
	const create = "aws iam create-open-id-connect-provider --url URL --client-id-list sts.amazonaws.com, or keypost aws create-identity-provider"
	none := aws("InvalidIdentityToken: No OpenIDConnect provider found in your account for")
	return []Cause{
		{"aws-account-other", "aws-provider", "the provider is in another account than the role", none, "STS looks in the role's account only", "with credentials of the role's account: " + create},
		{"aws-provider-other", "aws-provider", "the account has a provider for another issuer URL", none, "", create},
		{"aws-provider-missing", "aws-provider", "the account has no IAM OIDC provider for the issuer", none, "", create},
		{
			"aws-audience-wrong", "aws-client-id", "the token has another audience than the role and its provider ask for",
			aws("InvalidIdentityToken: Incorrect token audience"), "", "ask for the audience that they ask for: audience in the projected volume, kubectl create token SERVICEACCOUNT --audience AUDIENCE",
		},
		{
			"aws-client-id-missing", "aws-client-id", "the token's audience is no client ID of the provider",
			aws("InvalidIdentityToken: Incorrect token audience"), "", "aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn ARN --client-id AUDIENCE",
		},
		{
			"aws-thumbprint-stale", "aws-thumbprint", "the provider has no thumbprint of the issuer's private CA",
			aws(awsThumbprint), "", "aws iam update-open-id-connect-provider-thumbprint --open-id-connect-provider-arn ARN --thumbprint-list SHA1",
		},
	}
}

func trustCauses() []Cause {
	const put = "aws iam update-assume-role-policy --role-name ROLE --policy-document POLICY"
	denied := aws(awsDenied)
	return []Cause{
		{"aws-role-missing", "aws-role", "there is no such role", denied, "", "give the pods the ARN of a role that is there, or make it: keypost aws create-role"},
		{"aws-role-path", "aws-role", "the role has another path", denied, "", "give the pods the role's whole ARN: aws iam get-role --role-name ROLE"},
		{"aws-trust-provider", "aws-trust", "the trust policy does not name the issuer's provider", denied, "", put},
		{"aws-trust-action", "aws-trust", "the trust policy is for another action than sts:AssumeRoleWithWebIdentity", denied, "", put},
		{"aws-trust-deny", "aws-trust", "a statement of the trust policy denies it", denied, "a denial goes before everything that allows", put},
		{"aws-trust-key", "aws-trust", "the trust policy compares claims of another issuer", denied, "a token has no value for the key", put},
		{"aws-trust-claim", "aws-trust", "the trust policy compares a claim that AWS does not take", denied, "of a Kubernetes token AWS takes aud and sub alone", put},
		{"aws-trust-audience", "aws-trust", "the trust policy asks for another audience", denied, "", put},
		{"aws-trust-wildcard", "aws-trust", "the trust policy compares letter for letter with a pattern", denied, "StringEquals takes * and ? as they are, StringLike does not", put},
		{"aws-trust-pattern", "aws-trust", "the trust policy asks for a sub that no service account has", denied, "it is always system:serviceaccount:NAMESPACE:NAME", put},
		{"aws-trust-subject", "aws-trust", "the trust policy asks for another service account", denied, "", put},
		{"aws-trust-unclear", "aws-trust", "the trust policy has a condition that depends on more than the token", denied, "it may keep the token out", "try it with --role-arn, --token-file and --assume: keypost verify ISSUER"},
		{"aws-trust-open-all", "aws-trust", "the trust policy lets everybody in", nil, "a token of any other provider of the account is good for the role, and by sts:* any AWS account", put},
		{"aws-trust-open-sub", "aws-trust", "the trust policy lets every service account in", nil, "whoever may make a pod in the cluster has the role", put},
		{"aws-trust-open-aud", "aws-trust", "the trust policy takes a token for any audience", nil, "a token that a pod hands to any other service is good for the role", put},
		{"aws-trust-open-absent", "aws-trust", "the trust policy asks nothing of a token without sub, or without aud", nil, "ForAllValues and IfExists hold where the claim is absent; the tokens of Kubernetes have both claims", put},
	}
}

func stsCauses() []Cause {
	return []Cause{
		{"aws-sts-unreachable", "aws-assume", "AWS STS cannot be reached", noSTS(), "", "let HTTPS to STS through, set AWS_REGION, or HTTPS_PROXY"},
		{
			"aws-sts-region", "aws-assume", "STS is not active in the region", aws("RegionDisabledException"), "", "activate STS for the region in the account's settings (IAM), or set AWS_REGION to another",
		},
		{
			"aws-session", "aws-assume", "the session that is asked for is not allowed", []Answer{{AWS, "ValidationError"}, {AWS, "MalformedPolicyDocument"}, {AWS, "PackedPolicyTooLarge"}}, "",
			"ask for a shorter session than the role's maximum (aws iam update-role --role-name ROLE --max-session-duration SECONDS), and check the ARN and the session policy",
		},
		{
			"aws-transient", "aws-assume", "AWS could not reach the issuer this time", []Answer{{AWS, "IDPCommunicationError"}}, "", "try again; SDKs do; then look for a slow address of the issuer (keypost verify ISSUER)",
		},
		{
			"aws-rejected-claim", "aws-assume", "AWS takes the token for revoked or invalid", []Answer{{AWS, "IDPRejectedClaim"}}, "", "make a new token; then look at it (keypost verify ISSUER --token-file FILE)",
		},
		{
			"aws-refused", "aws-assume", "AWS STS refuses the token", aws(awsDenied), "",
			"if nothing else fails: a policy of the organisation (SCP, RCP) may deny it, or the role or the provider was made within the last minute; try again",
		},
		{
			"aws-action-denied", "aws-permissions", "the role has been assumed, and its permissions lack the action: no matter of tokens", aws("is not authorized to perform"), "",
			"add a policy with the action and the resource of the message to the role after assumed-role/; if that is the node's role, the pod has none of its own: set AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE",
		},
	}
}
