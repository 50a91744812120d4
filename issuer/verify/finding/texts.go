package finding

import "slices"

// What AWS STS answers to AssumeRoleWithWebIdentity. It does not say more than this, whatever the cause.
//
// Source: https://repost.aws/knowledge-center/iam-sts-invalididentitytoken
const (
	awsNoKey      = `InvalidIdentityToken: Couldn't retrieve verification key from your identity provider`
	awsThumbprint = `InvalidIdentityToken: OpenIDConnect provider's HTTPS certificate doesn't match configured thumbprint`
	awsNoJWT      = `InvalidIdentityToken: The ID Token provided is not a valid JWT`
	awsAudience   = `InvalidIdentityToken: Incorrect token audience`
	awsNoProvider = `InvalidIdentityToken: No OpenIDConnect provider found in your account for`
	awsDenied     = `AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity` // also where there is no such role
)

// What IAM answers when a provider is made whose discovery document it cannot get, or does not take: the code, and the message,
// which the console prints without it.
//
// Sources: https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateOpenIDConnectProvider.html (the code),
// https://github.com/hashicorp/vault/issues/7533 (a member is missing) and https://github.com/OctopusDeploy/Issues/issues/8759 (jwks_uri
// is on another host) with the message.
const (
	iamNoDocument    = `OpenIdIdpCommunicationError`
	iamCheckDocument = `Please check .well-known/openid-configuration of provider`
)

// More than one cause has these.
const (
	gcpNoIssuer   = "invalid_grant: Error connecting to the given credential's issuer."
	badSignature  = "failed to verify id token signature"                     // of go-oidc, which Vault and kube-apiserver use
	vaultNoKey    = "no known key successfully validated the token signature" // where keys were uploaded to it
	invalidBearer = "invalid bearer token"
)

func aws(texts ...string) []Answer {
	var all []Answer
	for _, text := range texts {
		all = append(all, Answer{AWS, text})
	}
	return all
}

// unreadable is what relying parties answer when they cannot get or understand the discovery document.
func unreadable() []Answer {
	return append(aws(awsNoKey, iamNoDocument, iamCheckDocument, "IDPCommunicationError"), []Answer{
		{GCP, gcpNoIssuer}, {Entra, "AADSTS90061"}, {Entra, "AADSTS50166"}, {Entra, "AADSTS501661"},
		{Vault, "error checking oidc discovery URL"}, {KubeAPIServer, "oidc: authenticator not initialized"},
	}...)
}

// noJWKS is what they answer when the discovery document is sound and the JWKS cannot be had.
func noJWKS() []Answer {
	return []Answer{
		{AWS, awsNoKey}, {GCP, gcpNoIssuer}, {Entra, "AADSTS90061"}, {Entra, "AADSTS50166"}, {Entra, "AADSTS501661"},
		{Vault, "fetching keys"}, {KubeAPIServer, "failed to verify signature: fetching keys"},
	}
}

// damagedKey is what they answer to a JWKS with a key that they cannot read, or cannot find by its kid.
func damagedKey() []Answer {
	return []Answer{
		{AWS, awsNoKey}, {GCP, gcpNoIssuer}, {Entra, "AADSTS7000272"}, {Vault, "oidc: failed to decode keys"}, {Vault, badSignature},
		{KubeAPIServer, "oidc: failed to decode keys"}, {KubeAPIServer, badSignature},
	}
}

// untrusted is what they answer when the certificate does not convince them. AWS then goes by the thumbprints, and one may
// match, and does not document what it says of a certificate that would be good for another time or host.
func untrusted() []Answer { return append(aws(awsThumbprint), unreadable()...) }

// mismatch is what they answer to a discovery document of another issuer.
func mismatch() []Answer {
	return append(aws(awsNoKey, iamNoDocument, iamCheckDocument), []Answer{
		{GCP, "`issuer` claim in OIDC discovery document does not match the issuer specified in the request"}, {Entra, "AADSTS90061"},
		{KubeAPIServer, "oidc: issuer did not match the issuer returned by provider"},
		{Vault, "oidc: issuer did not match the issuer returned by provider"}, {Vault, "oidc: issuer URL provided to client"},
	}...)
}

func otherIssuer() []Answer {
	return []Answer{
		{AWS, awsNoProvider}, {GCP, "invalid_grant: The issuer in ID Token"}, {Entra, "AADSTS700211"}, {Entra, "AADSTS7002138"},
		{Vault, "invalid issuer (iss) claim"}, {KubeAPIServer, "oidc: id token issued by a different provider"}, {KubeAPIServer, invalidBearer},
	}
}

func keyUnknown() []Answer {
	return []Answer{{AWS, awsNoKey}, {GCP, "invalid_grant"}, {Entra, "AADSTS7000272"}, {Vault, badSignature}, {KubeAPIServer, badSignature}}
}

// signatureWrong is what they answer to a signature that does not verify. AWS does not document which of the two it is.
func signatureWrong() []Answer {
	return []Answer{
		{AWS, awsNoJWT}, {AWS, awsNoKey}, {GCP, "invalid_grant"}, {Entra, "AADSTS700027"}, {Vault, badSignature}, {Vault, vaultNoKey},
		{KubeAPIServer, badSignature},
	}
}

func expired() []Answer {
	return append([]Answer{
		{AWS, "ExpiredTokenException"}, {GCP, "invalid_grant: ID Token issued at"}, {Entra, "AADSTS700024"},
		{Vault, "token is expired"}, {KubeAPIServer, "oidc: token is expired"}, {KubeAPIServer, "service account token has expired"},
	}, unauthorized()...)
}

func otherAudience() []Answer {
	return []Answer{
		{AWS, awsAudience}, {AWS, "InvalidIdentityToken: Missing a required claim: aud"}, {GCP, "invalid_grant: The audience in ID Token"}, {Entra, "AADSTS700212"},
		{Vault, "invalid audience (aud) claim"}, {KubeAPIServer, "oidc: expected audience"},
	}
}

// unauthorized is all that kube-apiserver tells a client, and what kubectl and client-go make of it; its log has the reason.
//
// Sources: k8s.io/kubectl pkg/cmd/util/helpers.go, k8s.io/apimachinery pkg/api/errors/errors.go.
func unauthorized() []Answer {
	return []Answer{{KubeAPIServer, "Unauthorized"}, {KubeAPIServer, "You must be logged in to the server"}, {KubeAPIServer, "the server has asked for the client to provide credentials"}}
}

// unknownBearer is what kube-apiserver's log has, and nothing else, of a token whose issuer or key it does not know; before the
// reasons that it knows it puts the same words.
//
// Source: k8s.io/apiserver pkg/authentication/request/bearertoken/bearertoken.go, k8s.io/kubernetes pkg/serviceaccount/jwt.go.
func unknownBearer() []Answer {
	return append([]Answer{{KubeAPIServer, invalidBearer}}, unauthorized()...)
}

// noCredentials is what SDKs say when nothing gives them credentials. The last of them go on with what each provider said.
//
// Sources: aws-sdk-go (credentials/chain_provider.go), aws-sdk-go-v2 (aws/credential_cache.go, credentials/ec2rolecreds), botocore
// (exceptions.py), aws-sdk-js (lib/config.js), @aws-sdk/credential-provider-node, AwsCredentialsProviderChain of both SDKs for Java.
func noCredentials() []Answer {
	return append(aws(
		"NoCredentialProviders: no valid providers in chain", "failed to refresh cached credentials, no EC2 IMDS role found", "Unable to locate credentials",
		"Missing credentials in config", "To use web identity tokens, the 'sts' service module must be on the class path",
	), aws(wrappers()...)...)
}

// noTokenFile is what SDKs say of a token file that is not there or that they may not read. Where they print what the operating system
// says and nothing else, the path tells: those of projected tokens are below /var/run/secrets.
//
// Sources: aws-sdk-go-v2 (credentials/stscreds/web_identity_provider.go), aws-sdk-go (the same words), aws-sdk-java
// (STSAssumeRoleWithWebIdentitySessionCredentialsProvider) and v2 (WebIdentityTokenFileCredentialsProvider), botocore (credentials.py,
// FileWebIdentityTokenLoader) with the errors of Python, Node.js (fs).
func noTokenFile() []Answer {
	const path = "/var/run/secrets/"
	return aws(
		"unable to read file at", "Unable to locate specified web identity token file", "Unable to read web identity token from file",
		"java.io.UncheckedIOException: java.nio.file.NoSuchFileException: "+path, "java.io.UncheckedIOException: java.nio.file.AccessDeniedException: "+path,
		"[Errno 13] Permission denied: '"+path, "[Errno 2] No such file or directory: '"+path,
		"permission denied, open '"+path, "no such file or directory, open '"+path,
	)
}

// noSTS is what SDKs say when they cannot reach STS, and what STS says in a region where the account has not activated it.
//
// Sources: smithy-go (transport/http) and aws-sdk-go-v2 (aws/retry), aws-sdk-go (aws/request), botocore (exceptions.py),
// RetryableStage and AmazonHttpClient of the SDKs for Java, Node.js (dns, tls), aws-sdk-js (lib/event_listeners.js).
func noSTS() []Answer {
	return aws(
		"operation error STS: AssumeRoleWithWebIdentity, https response error StatusCode: 0", `request send failed, Post "https://sts.`,
		`caused by: Post "https://sts.`, "caused by: Post https://sts.",
		`Could not connect to the endpoint URL: "https://sts.`, `Connect timeout on endpoint URL: "https://sts.`, `Read timeout on endpoint URL: "https://sts.`,
		"Failed to connect to proxy URL", "SSL validation failed for https://sts.",
		"Unable to execute HTTP request: sts.", "Unable to execute HTTP request: Connect to sts.",
		"getaddrinfo ENOTFOUND sts.", "getaddrinfo EAI_AGAIN sts.", "Inaccessible host: `sts.", timedOut, notConnected, "RegionDisabledException",
	)
}

// wrappers are what programs print before the errors of others.
func wrappers() []string {
	return []string{"Unable to load AWS credentials from any provider in the chain", "Unable to load credentials from any of the providers in the chain", "Could not load credentials from any providers", timedOut, notConnected}
}

// Wraps reports whether an answer is what a program prints for many reasons, perhaps with the error of another: where both are
// printed, the other says more.
func (a Answer) Wraps() bool { return a.Text == invalidBearer || slices.Contains(wrappers(), a.Text) }

// The time-outs of the SDKs for JavaScript, which do not say of whom: of STS, or of the EC2 metadata that they ask last.
const (
	timedOut     = "TimeoutError: Connection timed out after"
	notConnected = "TimeoutError: @smithy/node-http-handler - the request socket did not establish a connection with the server within the configured timeout"
)
