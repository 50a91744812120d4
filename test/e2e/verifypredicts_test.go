//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/test/keys"
)

// predictedOfMinIO: an STS that others wrote takes the right token, and makes of the others what is predicted. It has no trust policies, one
// client ID, and sentences of its own.
func (s *tokenScene) predictedOfMinIO(t *testing.T, w *workload) {
	attempts := s.attempts(t)
	delete(attempts, "nothing, another client ID")
	for name, token := range attempts {
		t.Run(name, func(t *testing.T) {
			refused := false
			for _, f := range s.verify(t, token) {
				refused = refused || f.Severity == "fail" && f.Check != "aws-trust"
			}
			status, err := w.minioBuckets(t, token)
			if name == "nothing" && err != nil || (err != nil) != refused || refused && !strings.Contains(err.Error(), "StatusCode: 400") {
				t.Errorf("predicted to be refused: %v; MinIO: %d, %v", refused, status, err)
			}
		})
	}
}

// repaired breaks the account, and has Amazon's own client run what keypost verify prints, word for word.
func (s *tokenScene) repaired(t *testing.T) {
	if _, err := exec.LookPath("aws"); err != nil {
		t.Skip("Amazon's client is not here: apt-get install awscli")
	}
	token := mint(t, s.a, "default", "sa1", audience)
	client := s.account.iam(t)
	provider, _ := s.account.provider(s.a.issuer)
	arn := aws.String(provider.ARN)
	name := aws.String(s.role[strings.LastIndex(s.role, "/")+1:])
	for _, tt := range []struct {
		code   string
		breaks func(context.Context) error
	}{
		{"aws-client-id-missing", func(ctx context.Context) error {
			_, err := client.RemoveClientIDFromOpenIDConnectProvider(ctx, &iam.RemoveClientIDFromOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: aws.String(audience)})
			return err
		}},
		{"aws-trust-wildcard", func(ctx context.Context) error {
			policy := strings.ReplaceAll(ccoctlTrust(s.a.issuer), "system:serviceaccount:default:sa1", "system:serviceaccount:default:*")
			_, err := client.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: name, PolicyDocument: aws.String(policy)})
			return err
		}},
		{"aws-provider-missing", func(ctx context.Context) error {
			_, err := client.DeleteOpenIDConnectProvider(ctx, &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn})
			return err
		}},
	} {
		t.Run(tt.code, func(t *testing.T) {
			must(t, tt.breaks(t.Context()))
			first := s.verify(t, token)[0]
			if first.Code != tt.code {
				t.Fatalf("first: %s: %s", first.Code, first.Message)
			}
			_, line, _ := strings.Cut(first.Repair, "aws iam ")
			// Older clients do not read AWS_ENDPOINT_URL.
			script := `aws() { command aws --endpoint-url "$AWS_ENDPOINT_URL" "$@"; }; aws iam ` + line
			command(t, append(s.account.Env(), "AWS_PAGER="), "", "sh", "-c", script).ok(t)
			if found := s.verify(t, token); found[0].Severity == "fail" {
				t.Errorf("after %q: %s: %s", first.Repair, found[0].Code, found[0].Message)
			}
			if _, err := newWorkload(t, s.account.URL, s.role).with(t, token); err != nil {
				t.Errorf("after %q: %v", first.Repair, err)
			}
		})
	}
}

// attempts are tokens for the role's account by what is wrong with them.
func (s *tokenScene) attempts(t *testing.T) map[string]string {
	t.Helper()
	right := mint(t, s.a, "default", "sa1", audience)
	return map[string]string{
		"nothing":                    right,
		"nothing, another client ID": mint(t, s.a, "default", "sa1", "openshift"),
		"another namespace":          mint(t, s.a, "other", "sa1", audience),
		"another service account":    mint(t, s.a, "default", "sa2", audience),
		"another audience":           mint(t, s.a, "default", "sa1", "vault"),
		"another issuer":             mint(t, s.stranger, "default", "sa1", audience),
		"an unpublished key":         resign(t, right, newRSAKey(t, 2048), jose.RS256, "unpublished"),
		"a wrong signature":          resign(t, right, newRSAKey(t, 2048), jose.RS256, kidOf(t, right)),
		"no kid":                     resign(t, right, s.a.key, jose.RS256, ""),
		"expired":                    s.expiredToken(t),
		"not a token":                "not-a-token",
	}
}

// expiredToken is signed by the right key and was good until ten minutes ago.
func (s *tokenScene) expiredToken(t *testing.T) string {
	t.Helper()
	now := time.Now().Unix()
	return keys.JWS(s.a.key, jose.RS256, kidOf(t, mint(t, s.a, "default", "sa1", audience)), map[string]any{"iss": s.a.issuer,
		"sub": "system:serviceaccount:default:sa1", "aud": []string{audience}, "iat": now - 4200, "nbf": now - 4200, "exp": now - 600})
}

// verify is what keypost verify finds about a token, the role and its provider.
func (s *tokenScene) verify(t *testing.T, token string) []named {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte(token), 0o600))
	env := append(s.account.Env(), "AWS_ENDPOINT_URL_STS="+s.account.URL, "SSL_CERT_FILE="+s.ca.file, "KEYPOST_STORE=file://"+s.server.store)
	return findings(t, command(t, env, "", binary("keypost"), "verify", s.a.issuer, "--connect", "127.0.0.1:443", "--token-file", file, "--role-arn", s.role, "-o", "json"))
}
