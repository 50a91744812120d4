package verify

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam" //nolint:depguard // this test asks what its answers are compared with
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/keypost/keypost/issuer/verify/answers"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/test/fakeaws"
)

// unpredicted are causes whose answer of AWS that STS does not show, by the reason.
func unpredicted() map[string]string {
	const (
		sometimes = "AWS meets it now and then, or with tokens of that key alone"
		load      = "AWS answers so under load"
		creation  = "IAM answers so when the provider is made, in other words"
		waits     = "it waits for five seconds, which one of these may show: jwks-silent"
	)
	return map[string]string{
		"replica-stale": sometimes, "replica-broken": sometimes, "etag-stuck": sometimes, "cache-stale": sometimes, "addresses-differ": sometimes,
		"origin-silent": sometimes, "origin-unreachable": sometimes, "key-missing": sometimes, "key-not-published": sometimes,
		"key-type": sometimes, "key-weak": sometimes, "key-form": sometimes, "kid-changed": sometimes, "alg-changed": sometimes,
		"jwks-no-store": load, "jwks-max-age-0": load, "discovery-no-store": load, "discovery-max-age-0": load,
		"url-port": creation, "url-form": creation, "url-slash": creation, "url-case": creation,
		"connection-dropped": waits, "server-silent": waits, "discovery-silent": waits,
		"jwks-uri-host":      "the console answers so",
		"tls-13-only":        "it speaks TLS 1.3, and AWS goes by the thumbprints then",
		"algorithms-missing": "it does not mind which algorithms are named",
		"dns-none":           "it looks no name up",
		"dns-unanswered":     "it looks no name up",
		"token-too-long":     "it prints the token, and AWS does not",
		"token-not-yet":      "it does not look at nbf, and AWS does not document it",
	}
}

// TestPredictions: what the first finding of a set-up says that AWS answers is what an STS, written by itself, answers to a token
// of that issuer.
func TestPredictions(t *testing.T) {
	compared := 0
	var mu sync.Mutex
	t.Run("each", func(t *testing.T) {
		for _, s := range setups() {
			c := finding.CauseOf(s.cause)
			if s.severity != "" || len(answersOf(c.Answers, finding.AWS)) == 0 || unpredicted()[s.cause] != "" {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				s.build(t, w)
				token := cmp.Or(w.options.Token, w.token(t))
				found := trouble(w.visit(t), s.cause)
				answer, predicted := w.askSTS(t, token), answersOf(found[0].Answers, finding.AWS)
				if found[0].Code != s.cause || !slices.ContainsFunc(predicted, func(text string) bool { return strings.Contains(answer, text) }) {
					t.Errorf("%s predicts %q, and STS answers %q", found[0].Code, predicted, answer)
				}
				mu.Lock()
				defer mu.Unlock()
				compared++
			})
		}
	})
	if compared < 40 && !t.Failed() {
		t.Errorf("only %d set-ups were compared", compared)
	}
}

// TestPredictionsOfCreation: where an IAM, written by itself, makes no provider for the issuer of a set-up, the first finding has what it
// answers, the code and the message, and the message leads back to that cause.
func TestPredictionsOfCreation(t *testing.T) {
	const message = "Please check .well-known/openid-configuration of provider"
	refused := map[string]bool{}
	var mu sync.Mutex
	t.Run("each", func(t *testing.T) {
		for _, s := range setups() {
			if s.severity != "" || strings.HasPrefix(s.cause, "token-") || unpredicted()[s.cause] != "" {
				continue
			}
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				s.build(t, w)
				found := trouble(w.visit(t), s.cause)
				account := fakeaws.Start(t, fakeaws.Options{Dial: w.options.Dial, AllowPorts: true})
				var keys sdk.Credentials
				for _, v := range account.Env() {
					switch name, value, _ := strings.Cut(v, "="); name {
					case "AWS_ACCESS_KEY_ID":
						keys.AccessKeyID = value
					case "AWS_SECRET_ACCESS_KEY":
						keys.SecretAccessKey = value
					}
				}
				client := iam.New(iam.Options{Region: "us-east-1", BaseEndpoint: sdk.String(account.URL), Retryer: sdk.NopRetryer{}, Credentials: sdk.CredentialsProviderFunc(func(context.Context) (sdk.Credentials, error) { return keys, nil })})
				_, err := client.CreateOpenIDConnectProvider(t.Context(), &iam.CreateOpenIDConnectProviderInput{Url: sdk.String(w.options.URL)})
				if err == nil || !strings.Contains(errorOf(err), message) {
					return
				}
				predicted := answersOf(found[0].Answers, finding.AWS)
				known := slices.ContainsFunc(answers.Causes(err.Error()), func(c finding.Cause) bool { return c.Code == s.cause })
				if found[0].Code != s.cause || !slices.Contains(predicted, "OpenIdIdpCommunicationError") || !slices.Contains(predicted, message) || !known {
					t.Errorf("%s predicts %q, and IAM answers %q; the cause is found by that: %t", found[0].Code, predicted, errorOf(err), known)
				}
				mu.Lock()
				defer mu.Unlock()
				refused[s.cause] = true
			})
		}
	})
	if len(refused) < 12 && !t.Failed() {
		t.Errorf("only %d causes keep a provider from being made: %v", len(refused), refused)
	}
}

func answersOf(answers []finding.Answer, party string) []string {
	var all []string
	for _, a := range answers {
		if a.Party == party {
			all = append(all, a.Text)
		}
	}
	return all
}

// askSTS returns what an STS that has never seen the issuer answers to a token; empty if it lets it in. Its role trusts whatever
// the token says.
func (w *world) askSTS(t *testing.T, token string) string {
	t.Helper()
	roots := w.options.RootCAs
	if roots == nil {
		roots = x509.NewCertPool()
	}
	account := fakeaws.Start(t, fakeaws.Options{Dial: w.options.Dial, Roots: roots, AllowPorts: true})
	role := account.Trust(w.options.URL, "sts.amazonaws.com")
	client := sts.New(sts.Options{Region: "us-east-1", BaseEndpoint: sdk.String(account.URL), Retryer: sdk.NopRetryer{}})
	_, err := client.AssumeRoleWithWebIdentity(t.Context(), &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: sdk.String(role), RoleSessionName: sdk.String("app"), WebIdentityToken: sdk.String(token),
	})
	if err != nil {
		return errorOf(err)
	}
	return ""
}

// errorOf returns an answer as SDKs print it, "CODE: MESSAGE".
func errorOf(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode() + ": " + api.ErrorMessage()
	}
	return err.Error()
}
