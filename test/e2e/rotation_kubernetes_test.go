//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/keys"
)

// withKubernetes are terms by which kube-apiserver keeps a copy: it takes 30 s off max-age (coreos/go-oidc v2, keysExpiryDelta), and
// asks again for a kid that it does not know only when what is left is over. A token that it has let in it lets in for 10 s more
// without a look at the key, so tokens live for longer than that.
func withKubernetes() terms {
	return terms{36 * time.Second, 2 * time.Second, 14 * time.Second, 15 * time.Second, time.Second, 11 * time.Second}
}

// discovery returns the location of a cache at which an issuer's discovery document leads to the JWKS of the same cache. A
// kube-apiserver is told to read it there (discoveryURL), as where the issuer's own address cannot be reached.
func (p *proof) discovery(id string) string {
	return fmt.Sprintf(`location = /%[1]s/.well-known/openid-configuration {
			default_type application/json;
			return 200 '{"issuer":"https://%[2]s/%[1]s","jwks_uri":"https://$http_host/%[1]s/keys.json","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["RS256","ES256"]}';
		}`, id, p.origin)
}

// startKubernetes starts a real kube-apiserver for each path by which the JWKS can be read, which lets in the service accounts of
// the published issuers that say so, and waits until it knows their keys.
func (p *proof) startKubernetes(t *testing.T, all []*rotating) {
	t.Helper()
	client := &http.Client{Timeout: patienceOfParties, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.ca.Pool()}, MaxIdleConnsPerHost: atOnce}}
	port := 6543
	var ready []func()
	for path, host := range p.paths() {
		port++
		c := &cluster{name: strings.ReplaceAll("relies-"+path, " ", "-"), issuer: "https://relies.keypost.test", key: keys.NewEC()}
		running := startCluster(t, p.ca, c, port, "--authentication-config="+p.relyOn(t, all, host))
		turn := make(turns, atOnce)
		ready = append(ready, func() {
			c.awaitReady(t, running)
			for _, r := range all {
				if !r.kubernetes {
					continue
				}
				verify := reviewed(client, c.address)
				running.await(t, "reading the keys of "+r.url, func(ctx context.Context) error {
					token, err := r.signers[0].mint(r.url, r.lifetime)
					if err != nil {
						return err
					}
					return verify(ctx, token.text)
				})
				r.parties = append(r.parties, party{"kube-apiserver", path, turn.take(verify)})
			}
		})
	}
	for _, r := range ready {
		r()
	}
}

// relyOn returns the file that makes a kube-apiserver rely on issuers by a host.
func (p *proof) relyOn(t *testing.T, all []*rotating, host string) string {
	t.Helper()
	var trusted []any
	for _, r := range all {
		if !r.kubernetes {
			continue
		}
		discovery := ""
		if host != p.origin {
			discovery = "https://" + host + "/" + r.id + "/.well-known/openid-configuration"
		}
		trusted = append(trusted, trustedIssuer(t, p.caFiles, r.id+":", r.url, discovery))
	}
	return writeAuthentication(t, trusted)
}

// reviewed returns how a kube-apiserver verifies a token: it is asked who the bearer is. It says no more than 401 where it has no
// JWKS, so that counts as a refusal.
func reviewed(client *http.Client, address string) func(context.Context, string) error {
	url := "https://" + address + "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	return func(ctx context.Context, token string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("%w: %w", errNoJWKS, err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", errNoJWKS, err)
		case res.StatusCode == http.StatusCreated && strings.Contains(string(body), ":system:serviceaccount:default:sa1"):
			return nil
		case res.StatusCode == http.StatusUnauthorized:
			return fmt.Errorf("%s answers %s", address, res.Status)
		}
		return fmt.Errorf("%w: %s: %s", errNoJWKS, res.Status, body)
	}
}
