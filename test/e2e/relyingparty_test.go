//go:build e2e

package e2e

import (
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/test/keys"
)

// audience is what AWS asks for; every token of these tests carries it.
const audience = "sts.amazonaws.com"

// verifyGo verifies a token as a Go service would, with coreos/go-oidc: discovery, keys, signature, iss, aud, exp.
func verifyGo(ctx context.Context, client *http.Client, issuer, token string) error {
	_, err := parseGo(ctx, client, issuer, token, false)
	return err
}

// signedBy asks go-oidc only about the signature: whether one of the issuer's published keys made it, whatever `iss` says.
func signedBy(ctx context.Context, client *http.Client, issuer, token string) error {
	_, err := parseGo(ctx, client, issuer, token, true)
	return err
}

func parseGo(ctx context.Context, client *http.Client, issuer, token string, skipIssuerCheck bool) (*oidc.IDToken, error) {
	ctx = oidc.ClientContext(ctx, client)
	provider, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return nil, fmt.Errorf("discovery: %w", err)
	}
	return provider.Verifier(&oidc.Config{ClientID: audience, SkipIssuerCheck: skipIssuerCheck}).Verify(ctx, token)
}

// refusedByJose is verify.mjs's exit code for a token that it has checked and refused.
const refusedByJose = 3

// verifyNode verifies a token as a Node service would, with npm jose and createRemoteJWKSet.
func verifyNode(t *testing.T, ca *authority, issuer, token string) result {
	t.Helper()
	script := filepath.Join(os.Getenv("KEYPOST_E2E_NPM"), "verify.mjs")
	return command(t, []string{"NODE_EXTRA_CA_CERTS=" + ca.file}, token, "node", script, issuer, audience)
}

// exchangeInNode runs a script that prints the access token which a cloud's library for Node gets, told everything by its
// environment. The error is what the cloud answered: exit code 3.
func exchangeInNode(t *testing.T, env []string, script string) (string, error) {
	t.Helper()
	r := command(t, env, "", "node", filepath.Join(os.Getenv("KEYPOST_E2E_NPM"), script))
	switch r.code {
	case 0:
		return strings.TrimSpace(r.stdout), nil
	case 3:
		return "", errors.New(r.stderr)
	}
	t.Fatalf("%s: exit code %d: %s", script, r.code, r.stderr)
	return "", nil
}

// expectAnswer fails the test unless err has a cloud's words; none are a token that was accepted.
func expectAnswer(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// presented are tokens, by what they are, for a cloud that takes those of default/sa1 in cluster a for the audience "openshift": good
// ones, and those that come near. b is another cluster that the cloud knows.
func presented(t *testing.T, a, b *cluster) map[string]string {
	t.Helper()
	right, unpublished := mint(t, a, "default", "sa1", "openshift"), newRSAKey(t, 2048)
	return map[string]string{
		"the right service account":                         right,
		"another namespace":                                 mint(t, a, "other", "sa1", "openshift"),
		"another audience":                                  mint(t, a, "default", "sa1", "vault"),
		"another cluster":                                   mint(t, b, "default", "sa1", "openshift"),
		"signed by an unpublished key":                      resign(t, right, unpublished, jose.RS256, "unpublished"),
		"signed by an unpublished key with a published kid": resign(t, right, unpublished, jose.RS256, kidOf(t, right)),
	}
}

// expectAnswers has with show a cloud each of the tokens, and expects the answer of the same name.
func expectAnswers(t *testing.T, tokens, answers map[string]string, with func(t *testing.T, token string) error) {
	t.Helper()
	for name := range answers {
		if tokens[name] == "" {
			t.Errorf("there is no token %q", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tokens)) {
		want, answered := answers[name]
		if !answered {
			t.Errorf("nothing says what is answered to %q", name)
			continue
		}
		t.Run(name, func(t *testing.T) { expectAnswer(t, with(t, tokens[name]), want) })
	}
}

// authenticationConfig is the file that makes a kube-apiserver rely on foreign issuers; it puts prefix before their subjects.
func authenticationConfig(t *testing.T, ca *authority, prefix string, issuers ...string) string {
	t.Helper()
	var trusted []any
	for _, issuer := range issuers {
		trusted = append(trusted, trustedIssuer(t, ca.file, prefix, issuer, ""))
	}
	return writeAuthentication(t, trusted)
}

// trustedIssuer is one of the issuers of such a file. Where its discovery document is may be said; empty is the usual place.
func trustedIssuer(t *testing.T, caFile, prefix, issuer, discovery string) any {
	t.Helper()
	at := map[string]any{"url": issuer, "audiences": []string{audience}, "certificateAuthority": string(read(t, caFile))}
	if discovery != "" {
		at["discoveryURL"] = discovery
	}
	return map[string]any{"issuer": at, "claimMappings": map[string]any{"username": map[string]any{"claim": "sub", "prefix": prefix}}}
}

func writeAuthentication(t *testing.T, trusted []any) string {
	t.Helper()
	config, err := json.Marshal(map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": trusted})
	must(t, err)
	file := filepath.Join(t.TempDir(), "authentication.json")
	must(t, os.WriteFile(file, config, 0o600))
	return file
}

// resign puts the payload of a real token under another signature and kid: what the holder of that key could forge.
func resign(t *testing.T, token string, key crypto.Signer, alg jose.SignatureAlgorithm, kid string) string {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	must(t, err)
	return keys.JWS(key, alg, kid, json.RawMessage(payload))
}

// kidOf reads the kid of a token's header.
func kidOf(t *testing.T, token string) string {
	t.Helper()
	kid, err := headerKid(token)
	must(t, err)
	return kid
}

func headerKid(token string) (string, error) {
	var header struct{ Kid string }
	segment, _, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(segment)
	return header.Kid, errors.Join(err, json.Unmarshal(text, &header))
}
