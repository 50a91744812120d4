package answers

import (
	"slices"
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// What programs print, in full, as their SDKs wrap it.
//
// Sources: constraints of the AWS SDKs' error formats (aws-sdk-go-v2, boto3, AWS SDK for JavaScript and Java), Google's
// sts.googleapis.com, Microsoft's Entra error codes, vault-plugin-auth-jwt, go-oidc.
func TestCauses(t *testing.T) {
	const awsNoRight = "Not authorized to perform sts:AssumeRoleWithWebIdentity"
	trust := []string{"aws-role-missing", "aws-trust-provider", "aws-trust-audience", "aws-trust-wildcard", "aws-trust-subject", "aws-refused"}
	noProvider := []string{"token-issuer-other", "token-issuer-other", "aws-provider-missing", "aws-provider-missing"}
	noKey := []string{"discovery-not-found", "tls-order", "cluster-key-unpublished", "token-kid-gone", "token-kid-unknown"}
	unread := []string{"aws-pod-token-unread"}
	unset, unreached := []string{"aws-pod-unset"}, []string{"aws-sts-unreachable"}
	for _, tt := range []struct {
		name, text string
		want       []string // codes that are among the causes
		first      string   // the first of them; empty: any
		without    []string // codes that are not
	}{
		{"aws-sdk-go-v2", `panic: operation error S3: ListBuckets, get identity: get credentials: failed to refresh cached credentials, failed to retrieve credentials, operation error STS: AssumeRoleWithWebIdentity, https response error StatusCode: 403, RequestID: 3f2b5a51-8d5f-4b67-9e32-0d7b2f1e9c10, api error AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity`,
			trust, "aws-trust-subject", noProvider},
		{"boto3", `botocore.errorfactory.InvalidIdentityTokenException: An error occurred (InvalidIdentityToken) when calling the AssumeRoleWithWebIdentity operation: No OpenIDConnect provider found in your account for https://oidc.example.com/prod-a`,
			noProvider, "", append([]string{"token-expired", "token-not-yet"}, trust...)},
		{"the AWS CLI", "\nAn error occurred (InvalidIdentityToken) when calling the AssumeRoleWithWebIdentity operation: Incorrect token audience\n",
			[]string{"aws-client-id-missing", "aws-client-id-missing", "token-aud-unusual"}, "", []string{"token-malformed", "aws-provider-missing"}},
		{"JavaScript", `{"level":"error","msg":"CredentialsProviderError: InvalidIdentityToken: Couldn\u0027t retrieve verification key from your identity provider,  please reference AssumeRoleWithWebIdentity documentation for requirements","$metadata":{"httpStatusCode":400}}`,
			noKey, "discovery-forbidden", trust},
		{"Java", `Caused by: software.amazon.awssdk.services.sts.model.InvalidIdentityTokenException: Couldn't retrieve verification key from your identity provider,  please reference AssumeRoleWithWebIdentity documentation for requirements (Service: Sts, Status Code: 400, Request ID: 5d0e2f0c-0000-0000-0000-000000000000)`, noKey, "", trust},
		{"XML", `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>InvalidIdentityToken</Code><Message>Couldn&apos;t retrieve verification key from your identity provider</Message></Error></ErrorResponse>`, noKey, "", nil},
		{"a broken line", "time=\"2026\" level=error msg=\"WebIdentityErr: failed to retrieve credentials\\ncaused by: InvalidIdentityToken: OpenIDConnect provider's HTTPS certificate\n doesn't match configured thumbprint\\n\\tstatus code: 400, request id: 1234\"",
			[]string{"tls-13-only", "tls-untrusted", "aws-thumbprint-stale"}, "", noProvider},
		{"expired", `ExpiredTokenException: Token expired: current date/time 1795334400 must be before the expiration date/time1795330800`, []string{"token-expired"}, "token-expired", []string{"token-malformed"}},
		{"no retry", "\x1b[31mERROR\x1b[0m failed: WebIdentityErr: failed to retrieve credentials\ncaused by: AccessDenied: " + awsNoRight + "\n\tstatus code: 403, request id: 0d7b2f1e\n", trust, "", noProvider},

		{"GCP: audience", `google.auth.exceptions.OAuthError: ('Error code invalid_grant: The audience in ID Token [sts.amazonaws.com] does not match the expected audience.', '{"error":"invalid_grant","error_description":"The audience in ID Token [sts.amazonaws.com] does not match the expected audience."}')`,
			[]string{"token-aud-unusual"}, "", []string{"token-expired", "token-kid-unknown", "token-malformed"}},
		{"GCP: issuer unreachable", "oauth2/google: status code 400: {\n  \"error\": \"invalid_grant\",\n  \"error_description\": \"Error connecting to the given credential's issuer.\"\n}",
			[]string{"dns-none", "connection-refused", "tls-untrusted", "discovery-not-found"}, "", []string{"token-expired"}},
		{"GCP: issuer", `{"error":"invalid_grant","error_description":"The issuer in ID Token https://kubernetes.default.svc does not match the expected one in config: https://oidc.example.com/prod-a."}`,
			[]string{"cluster-issuer-other", "token-issuer-other"}, "", []string{"token-expired"}},
		{"GCP: stale", `{"error":"invalid_grant","error_description":"ID Token issued at 1795330800 is stale to sign-in."}`, []string{"token-expired", "token-lifetime", "cluster-audience-cloud"}, "", []string{"token-malformed"}},
		{"GCP: issuer in the document", "{\"error\":\"invalid_grant\",\"error_description\":\"`issuer` claim in OIDC discovery document does not match the issuer specified in the request\"}", []string{"issuer-other"}, "", []string{"token-expired"}},

		{"Entra: no such issuer", `AADSTS700211: No matching federated identity record found for presented assertion issuer 'https://oidc.example.com/prod-a/'. Please check your federated identity credential Subject, Audience and Issuer against the presented assertion. Trace ID: 8d8e2d1f-7002-1370-b0c2-5d9b54cb0400 Correlation ID: 00000000-0000-0000-0000-000000000000 Timestamp: 2026-11-22 08:00:00Z`,
			[]string{"token-issuer-other", "token-issuer-other"}, "", []string{"token-aud-unusual", "token-malformed"}},
		{"Entra: audience", `azidentity: WorkloadIdentityCredential authentication failed\nPOST https://login.microsoftonline.com/t/oauth2/v2.0/token\n--------\nRESPONSE 401 Unauthorized\n--------\n{\n  "error": "invalid_client",\n  "error_description": "AADSTS700212: No matching federated identity record found for presented assertion audience 'openshift'. Trace ID: 700213\r\n",\n "error_codes": [700212]}`,
			[]string{"token-aud-unusual"}, "", []string{"token-issuer-other", "token-kid-unknown"}},
		{"Entra: key", `{"error":"invalid_client","error_description":"AADSTS7000272: The key was not found in the metadata of the identity provider.","error_codes":[7000272]}`, []string{"token-kid-unknown", "cluster-key-unpublished"}, "", []string{"token-signature-wrong"}},

		{"Vault", `{"errors":["error validating token: invalid audience (aud) claim: audience claim does not match any bound audience"]}`, []string{"token-aud-unusual"}, "", []string{"token-malformed"}},
		{"Vault: uploaded keys", `{"errors":["error validating token: error verifying token signature: no known key successfully validated the token signature"]}`, []string{"upload-behind", "token-signature-wrong"}, "", []string{"token-malformed", "jwks-empty"}},
		{"kube-apiserver's log", `E1122 08:00:00.000000       1 authentication.go:75] "Unable to authenticate the request" err="[invalid bearer token, oidc: verify token: oidc: id token issued by a different provider, expected \"https://oidc.example.com/prod-a\" got \"https://kubernetes.default.svc\"]"`,
			[]string{"token-issuer-other", "cluster-issuer-other"}, "", nil},
		{"kube-apiserver's log: expired", `err="[invalid bearer token, oidc: verify token: oidc: token is expired (Token Expiry: 2026-11-22 07:00:00 +0000 UTC)]"`, []string{"token-expired"}, "", nil},
		{"kubectl", "error: You must be logged in to the server (Unauthorized)", []string{"cluster-unreachable", "cluster-audience-lacking", "token-malformed", "token-expired"}, "", nil},
		{"client-go", "Failed to list *v1.Pod: Unauthorized", []string{"cluster-unreachable", "cluster-audience-lacking", "token-malformed", "token-expired"}, "", nil},
		{"kube-apiserver's log: nothing else", `E1122 13:05:00.000000       1 authentication.go:75] "Unable to authenticate the request" err="invalid bearer token"`,
			[]string{"cluster-key-lacking", "token-issuer-other", "token-kid-gone", "token-malformed"}, "", []string{"token-expired", "cluster-audience-lacking", "aws-refused"}},
		{"kube-apiserver's log: of its own and expired", `err="[invalid bearer token, service account token has expired]"`, []string{"token-expired"}, "", []string{"cluster-key-lacking"}},
		{"kube-apiserver's log: audience", `E1122 08:00:00.000000       1 authentication.go:75] "Unable to authenticate the request" err="[invalid bearer token, token audiences [\"https://kubernetes.default.svc.cluster.local\"] is invalid for the target audiences [\"https://oidc.example.com/prod-a\"]]"`,
			[]string{"cluster-audience-lacking"}, "cluster-audience-lacking", []string{"cluster-unreachable", "token-malformed"}},

		{"no credentials, aws-sdk-go", "NoCredentialProviders: no valid providers in chain. Deprecated.\n\tFor verbose messaging see aws.Config.CredentialsChainVerboseErrors", unset, "aws-pod-unset", trust},
		{"no credentials, aws-sdk-go-v2", "operation error S3: ListBuckets, get identity: get credentials: failed to refresh cached credentials, no EC2 IMDS role found, operation error ec2imds: GetMetadata, exceeded maximum number of attempts, 3, request send failed, Get \"http://169.254.169.254/latest/meta-data/iam/security-credentials/\": dial tcp 169.254.169.254:80: connect: no route to host",
			unset, "aws-pod-unset", unreached},
		{"no token file, aws-sdk-go", "WebIdentityErr: failed fetching WebIdentity token: \ncaused by: WebIdentityErr: unable to read file at /var/run/secrets/eks.amazonaws.com/serviceaccount/token\ncaused by: open /var/run/secrets/eks.amazonaws.com/serviceaccount/token: permission denied", unread, unread[0], append(trust, unset...)},
		{"no token file, aws-sdk-go-v2", "get credentials: failed to refresh cached credentials, failed to retrieve jwt from provide source, unable to read file at /token: open /token: no such file or directory", unread, unread[0], unset},
		{"no token file, boto3", "FileNotFoundError: [Errno 2] No such file or directory: '/var/run/secrets/eks.amazonaws.com/serviceaccount/token'", unread, unread[0], unset},
		{"a token file of root's, Java v2", "Unable to load credentials from any of the providers in the chain AwsCredentialsProviderChain() : [WebIdentityTokenCredentialsProvider(): java.io.UncheckedIOException: java.nio.file.AccessDeniedException: /var/run/secrets/eks.amazonaws.com/serviceaccount/token]", unread, unread[0], unset},
		{"a token file of root's, JavaScript", "Error: EACCES: permission denied, open '/var/run/secrets/eks.amazonaws.com/serviceaccount/token'", unread, unread[0], unset},
		{"the role's permissions", "An error occurred (AccessDenied) when calling the ListBuckets operation: User: arn:aws:sts::123456789012:assumed-role/app/botocore-session-1 is not authorized to perform: s3:ListAllMyBuckets because no identity-based policy allows the s3:ListAllMyBuckets action", []string{"aws-action-denied"}, "aws-action-denied", append([]string{"aws-refused"}, trust...)},
		{"no credentials, the AWS CLI", `Unable to locate credentials. You can configure credentials by running "aws configure".`, unset, "aws-pod-unset", nil},
		{"no credentials, Java v1", "com.amazonaws.SdkClientException: Unable to load AWS credentials from any provider in the chain: [EnvironmentVariableCredentialsProvider: Unable to load AWS credentials from environment variables]", unset, "aws-pod-unset", unreached},
		{"no credentials, Java v2", "software.amazon.awssdk.core.exception.SdkClientException: Unable to load credentials from any of the providers in the chain AwsCredentialsProviderChain(credentialsProviders=[SystemPropertyCredentialsProvider()]) : [WebIdentityTokenCredentialsProvider(): To use web identity tokens, the 'sts' service module must be on the class path.]", unset, "aws-pod-unset", nil},
		{"Java v2 with what STS said", "Unable to load credentials from any of the providers in the chain AwsCredentialsProviderChain(credentialsProviders=[WebIdentityTokenCredentialsProvider()]) : [WebIdentityTokenCredentialsProvider(): " + awsNoRight + " (Service: Sts, Status Code: 403)]", trust, "aws-trust-subject", unset},
		{"no credentials, JavaScript v3", "CredentialsProviderError: Could not load credentials from any providers", unset, "aws-pod-unset", unreached},

		{"STS unreachable, aws-sdk-go", "time=\"2021-08-18T10:30:02Z\" level=error msg=\"WebIdentityErr: failed to retrieve credentials\\ncaused by: RequestError: send request failed\\ncaused by: Post \\\"https://sts.amazonaws.com/\\\": dial tcp 54.239.29.25:443: i/o timeout\"", unreached, "aws-sts-unreachable", unset},
		{"STS unreachable, aws-sdk-go-v2", `operation error S3: ListBuckets, get identity: get credentials: failed to refresh cached credentials, failed to retrieve credentials, operation error STS: AssumeRoleWithWebIdentity, exceeded maximum number of attempts, 5, https response error StatusCode: 0, RequestID: , request send failed, Post "https://sts.us-east-1.amazonaws.com/": dial tcp: lookup sts.us-east-1.amazonaws.com on 10.96.0.10:53: no such host`, unreached, "aws-sts-unreachable", unset},
		{"STS unreachable, boto3", `botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://sts.eu-west-1.amazonaws.com/"`, unreached, "aws-sts-unreachable", unset},
		{"STS unreachable, Java v2", "Unable to load credentials from any of the providers in the chain AwsCredentialsProviderChain() : [WebIdentityTokenCredentialsProvider(): Unable to execute HTTP request: sts.us-east-1.amazonaws.com: Name or service not known]", unreached, "aws-sts-unreachable", unset},
		{"STS unreachable, JavaScript v2", "UnknownEndpoint: Inaccessible host: `sts.us-east-9.amazonaws.com' at port `undefined'. This service may not be available in the `us-east-9' region.", unreached, "aws-sts-unreachable", unset},
		{"a time-out, JavaScript", "TimeoutError: Connection timed out after 1000ms", append(unreached, unset...), "", trust},
		{"another service unreachable", `operation error S3: ListBuckets, https response error StatusCode: 0, RequestID: , request send failed, Get "https://s3.amazonaws.com/": dial tcp: i/o timeout`, nil, "", nil},

		{"IAM makes no provider, the AWS CLI", "An error occurred (OpenIdIdpCommunicationError) when calling the CreateOpenIDConnectProvider operation: Please check .well-known/openid-configuration of provider: https://oidc.example.com/prod-e is valid.",
			[]string{"dns-none", "discovery-not-found", "issuer-other", "document-members", "jwks-uri-host"}, "discovery-forbidden", []string{"jwks-form", "token-malformed"}},
		{"the IAM console", "Please check .well-known/openid-configuration of provider: https://oidc.example.com/prod-e is valid", []string{"discovery-not-found", "jwks-uri-host", "document-members"}, "", noProvider},
		{"nothing that is known", "dial tcp: lookup s3.amazonaws.com: no such host", nil, "", nil},
		{"a number that only looks like a code", "AADSTS7002119: something new", nil, "", nil},
		{"nothing", "", nil, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range Causes(tt.text) {
				got = append(got, c.Code)
			}
			for _, code := range tt.want {
				if finding.CauseOf(code); !slices.Contains(got, code) {
					t.Errorf("%s is not among %q", code, got)
				}
			}
			for _, code := range tt.without {
				if finding.CauseOf(code); slices.Contains(got, code) {
					t.Errorf("%s is among %q", code, got)
				}
			}
			if tt.first != "" && (len(got) == 0 || got[0] != tt.first) || tt.want == nil && got != nil {
				t.Errorf("causes %q", got)
			}
		})
	}
}

// Whatever answer the catalogue has, a program's own words around it do not hide it.
func TestCausesOfEveryAnswer(t *testing.T) {
	t.Parallel()
	seen := map[finding.Answer]bool{}
	for _, c := range finding.Causes() {
		for _, a := range c.Answers {
			if seen[a] {
				continue
			}
			seen[a] = true
			for _, noise := range []string{"%", "request failed: % (request id: 1234)", `{"msg":"% [x]"}`, "a line\n\t%\nanother"} {
				found := Causes(strings.Replace(noise, "%", a.Text, 1))
				if !slices.ContainsFunc(found, func(f finding.Cause) bool { return f.Code == c.Code }) {
					t.Errorf("%q in %q: %s is not found", a.Text, noise, c.Code)
				}
			}
		}
	}
}

// Logs and people cut errors off: three words of an answer still lead to its causes, with a program's own words before it or without.
func TestCausesOfAClippedAnswer(t *testing.T) {
	t.Parallel()
	causes := map[string][]finding.Cause{}
	for _, c := range finding.Causes() {
		for _, a := range c.Answers {
			causes[a.Text] = append(causes[a.Text], c)
		}
	}
	for answer, want := range causes {
		words := strings.Fields(answer)
		if len(words) < fewest {
			continue
		}
		for _, n := range []int{fewest, len(words) - 1} {
			cut := strings.Join(words[:max(n, fewest)], " ")
			for _, text := range []string{cut, "request failed: " + cut + "…"} {
				found := Causes(text)
				for _, c := range want {
					if !slices.ContainsFunc(found, func(f finding.Cause) bool { return f.Code == c.Code }) {
						t.Errorf("%q of %q: %s is not found", text, answer, c.Code)
					}
				}
				if !slices.IsSortedFunc(found, finding.ByLikelihood) {
					t.Errorf("%q: the likeliest is not first", text)
				}
			}
		}
	}
	const whole = "No OpenIDConnect provider found in your account for https://oidc.example.com/a"
	for _, text := range []string{
		"No OpenIDConnect provider found in your account", "No OpenIDConnect provider found in your accou", "InvalidIdentityToken: No OpenIDConnect provider found",
		"OpenIDConnect provider found", "provider found in your account for https://oidc.example.com/a",
		"An error occurred (InvalidIdentityToken) when calling the AssumeRoleWithWebIdentity operation: No OpenIDConnect provider…",
	} {
		if got, want := Causes(text), Causes(whole); !slices.EqualFunc(got, want, func(a, b finding.Cause) bool { return a.Code == b.Code }) || got[0].Code != "aws-provider-missing" {
			t.Errorf("%q: %d causes, the first %v", text, len(got), got[:min(len(got), 1)])
		}
	}
}

func FuzzCauses(f *testing.F) {
	f.Add("InvalidIdentityToken: Incorrect token audience")
	f.Add("\\u0027\\\\n\x1b[")
	f.Fuzz(func(t *testing.T, s string) { Causes(s) })
}
