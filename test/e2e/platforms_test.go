//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestKeyFilesOfPlatforms: a real kube-apiserver with the files that docs/platforms has platforms make of a pair from `keypost key
// generate`: it lists both keys in either round, signs with the one that it is to sign with, and accepts the tokens of both.
func TestKeyFilesOfPlatforms(t *testing.T) {
	ca := newAuthority(t)
	startEtcd(t)
	type files struct{ trusts, signs []string } // k3s splits off what signs: the first key of the file
	for _, platform := range []struct {
		name  string
		kind  string
		round [2]files
	}{
		{"k3s", "rsa2048", [2]files{{[]string{"old.key", "next.pub"}, []string{"old.key"}}, {[]string{"next.key", "old.key"}, []string{"next.key"}}}},
		{"kubeadm v1beta3", "p256", [2]files{{[]string{"old.pub", "next.pub"}, []string{"old.key"}}, {[]string{"old.pub", "next.pub"}, []string{"next.key"}}}},
	} {
		t.Run(platform.name, func(t *testing.T) {
			dir, keys := t.TempDir(), map[string]signingKey{"old": generateSigningKey(t, platform.kind), "next": generateSigningKey(t, platform.kind)}
			join := func(names []string) string {
				var all bytes.Buffer
				for _, n := range names {
					kind := filepath.Ext(n)
					data, err := os.ReadFile(strings.TrimSuffix(keys[strings.TrimSuffix(n, kind)].public, ".pub") + kind)
					must(t, err)
					all.Write(data)
				}
				file := filepath.Join(dir, strings.Join(names, "+"))
				must(t, os.WriteFile(file, all.Bytes(), 0o600))
				return file
			}
			var tokens []string
			for i, round := range platform.round {
				signs := keys[strings.TrimSuffix(round.signs[0], ".key")]
				c := &cluster{name: strings.ReplaceAll(platform.name, " ", "-"), issuer: "https://oidc.example.com/platform", key: signs.key, trusts: join(round.trusts)}
				running := startCluster(t, ca, c, 6443)
				c.awaitReady(t, running)
				c.createAccount(t)
				tokens = append(tokens, c.token(t))
				if got := kidOf(t, tokens[i]); got != signs.kid {
					t.Errorf("round %d: signs with %s, want %s", i+1, got, signs.kid)
				}
				c.lists(t, keys["old"].kid, keys["next"].kid)
				for from, token := range tokens {
					c.reviews(t, token, fmt.Sprintf("round %d: a token of round %d", i+1, from+1))
				}
				running.stop(t, 20*time.Second)
			}
		})
	}
}

// lists waits until the cluster's own JWKS has exactly these keys.
func (c *cluster) lists(t *testing.T, kids ...string) {
	t.Helper()
	await(t, "keys of "+c.name, func(context.Context) error {
		var jwks struct{ Keys []struct{ Kid string } }
		must(t, json.Unmarshal([]byte(c.kubectl(t, "get", "--raw", "/openid/v1/jwks")), &jwks))
		var got []string
		for _, k := range jwks.Keys {
			got = append(got, k.Kid)
		}
		slices.Sort(got)
		slices.Sort(kids)
		if !slices.Equal(got, kids) {
			return fmt.Errorf("keys %v, want %v", got, kids)
		}
		return nil
	})
}

// reviews has the cluster review a token with an audience of clouds, as a server does that another one's token is shown to.
func (c *cluster) reviews(t *testing.T, token, what string) {
	t.Helper()
	review := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":%q,"audiences":[%q]}}`, token, audience)
	out := command(t, nil, review, kubeBinary("kubectl"), "--kubeconfig", c.kubeconfig, "create", "-f", "-", "-o", "jsonpath={.status}").ok(t)
	if !strings.Contains(out, `"authenticated":true`) {
		t.Errorf("%s: %s", what, out)
	}
}
