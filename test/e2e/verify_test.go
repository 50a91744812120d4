//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/test/golden"
	"github.com/keypost/keypost/test/keys"
)

// varying is what differs from run to run: key IDs, times, ports, and temporary files.
var varying = regexp.MustCompile(`[A-Za-z0-9_-]{43}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|127\.0\.0\.1:\d+|/\S*/ca\.crt`)

// TestKubeAPIServerAsIssuer: what keypost verify makes of kube-apiserver's own documents, and of its tokens. The findings were
// read by eye and are kept in testdata; KEYPOST_UPDATE=1 writes them anew.
func TestKubeAPIServerAsIssuer(t *testing.T) {
	const issuer = "https://kube.keypost.test"
	ca := newAuthority(t)
	startEtcd(t)
	for _, c := range []*cluster{{name: "rsa", key: newRSAKey(t, 2048)}, {name: "ec", key: keys.NewEC()}} {
		t.Run(c.name, func(t *testing.T) {
			c.issuer = issuer
			c.issuerFlags = []string{"--service-account-issuer=" + issuer, "--service-account-jwks-uri=" + issuer + "/openid/v1/jwks", "--api-audiences=" + issuer}
			cert, key := ca.issue(t, "own-"+c.name, "127.0.0.1", "kube.keypost.test")
			p := startCluster(t, ca, c, 6743, "--tls-cert-file="+cert, "--tls-private-key-file="+key)
			c.awaitReady(t, p)
			c.createAccount(t)
			file := filepath.Join(t.TempDir(), "token")
			must(t, os.WriteFile(file, []byte(c.token(t)), 0o600))
			look := func() string {
				return command(t, nil, "", binary("keypost"), "verify", issuer, "--ca-file", ca.file, "--connect", c.address, "--token-file", file).stdout
			}
			sameFindings(t, "kube-apiserver-"+c.name+"-closed.txt", look())
			c.kubectl(t, "create", "clusterrolebinding", "issuer-discovery", "--clusterrole=system:service-account-issuer-discovery", "--group=system:unauthenticated")
			sameFindings(t, "kube-apiserver-"+c.name+".txt", look())
			p.stop(t, 5*time.Second)
		})
	}
}

// sameFindings compares what keypost verify printed with a file in testdata.
func sameFindings(t *testing.T, name, stdout string) {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(stdout) {
		words := strings.Fields(varying.ReplaceAllString(line, "…"))
		b.WriteString(strings.Join(words, " ") + "\n")
	}
	golden.Same(t, filepath.Join("testdata", name), b.String())
}

// TestKubeAPIServerAnswers: a kube-apiserver that relies on issuers refuses tokens in the words that verify's catalogue has for
// it. It tells clients nothing but Unauthorized; the words are in its log.
func TestKubeAPIServerAnswers(t *testing.T) {
	const absent = "https://oidc.keypost.test/absent"
	ca := newAuthority(t)
	server := newStore(t, ca)
	c := &cluster{name: "prod-a", issuer: "https://oidc.keypost.test/prod-a", key: newRSAKey(t, 2048)}
	startClusters(t, ca, c)
	relies := &cluster{name: "relies", issuer: "https://relies.keypost.test", key: newRSAKey(t, 2048)}
	server.keypost(t, "issuer", "add", c.name, "--url", c.issuer, "--kubeconfig", c.kubeconfig).ok(t)
	server.run(t)
	p := startCluster(t, ca, relies, 6543, "--authentication-config="+authenticationConfig(t, ca, "prod-a:", c.issuer, absent))
	relies.awaitReady(t, p)
	good := c.token(t)
	await(t, "the token is let in", func(context.Context) error {
		if r := relies.whoami(t, good); r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
	kid, now := kidOf(t, good), time.Now().Unix()
	claims := func(change map[string]any) map[string]any {
		all := map[string]any{"iss": c.issuer, "sub": "system:serviceaccount:default:sa1", "aud": audience, "iat": now, "nbf": now, "exp": now + 600}
		maps.Copy(all, change)
		return all
	}
	stranger := newRSAKey(t, 2048)
	for code, token := range map[string]string{
		"token-aud-unusual":     keys.JWS(c.key, jose.RS256, kid, claims(map[string]any{"aud": "another"})),
		"token-kid-unknown":     keys.JWS(stranger, jose.RS256, "another", claims(nil)),
		"token-signature-wrong": keys.JWS(stranger, jose.RS256, kid, claims(nil)),
		"token-expired":         keys.JWS(c.key, jose.RS256, kid, claims(map[string]any{"exp": now - 600})),
		"token-malformed":       keys.JWS(c.key, jose.RS256, kid, claims(map[string]any{"exp": 0})),
		"token-not-yet":         keys.JWS(c.key, jose.RS256, kid, claims(map[string]any{"nbf": now + 600})),
		"token-alg":             keys.JWS(make([]byte, 32), jose.HS256, kid, claims(nil)),
		"discovery-not-found":   keys.JWS(c.key, jose.RS256, kid, claims(map[string]any{"iss": absent})),
	} {
		before := read(t, p.log)
		if r := relies.whoami(t, token); r.code == 0 || !strings.Contains(r.stderr, "Unauthorized") {
			t.Errorf("%s: exit code %d: %s%s", code, r.code, r.stdout, r.stderr)
		}
		answers := finding.CauseOf(code).Answers
		i := slices.IndexFunc(answers, func(a finding.Answer) bool { return a.Party == finding.KubeAPIServer })
		if i < 0 {
			t.Errorf("the catalogue has no answer of kube-apiserver to %s", code)
			continue
		}
		await(t, code+": the log has "+answers[i].Text, func(context.Context) error {
			after, err := os.ReadFile(p.log)
			if err == nil && !strings.Contains(string(after[len(before):]), answers[i].Text) {
				err = fmt.Errorf("it has %s", after[len(before):])
			}
			return err
		})
	}
}
