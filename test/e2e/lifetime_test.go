//go:build e2e

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/rotation"
	outside "github.com/keypost/keypost/provision/cluster"
)

// TestTokenLifetimes: what is measured before a key is retired is never less than how long a real kube-apiserver lets a token of
// the pod live, whatever its flags, and no more than that where a flag shortens it.
func TestTokenLifetimes(t *testing.T) {
	ca := newAuthority(t)
	startEtcd(t)
	p := newPlane(t, ca, "lifetimes", "10.99.0.31")
	const issuer = "https://oidc.example.com/lifetimes"
	p.serve(t, 0, issuer)
	p.createAccount(t)
	p.apply(t, fmt.Sprintf(podWithToken, "day", "vault", 86400))
	p.apply(t, fmt.Sprintf(podWithToken, "own", `""`, 3607))
	const cloud, short = "--api-audiences=" + issuer + "," + audience, "--service-account-max-token-expiration=2h"
	const year = 365 * 24 * time.Hour
	for _, tt := range []struct {
		name     string
		flags    []string
		want     rotation.Lifetime
		day, own time.Duration // how long tokens of the pods live
	}{
		{"as asked for", nil, rotation.Lifetime{Longest: 24 * time.Hour, For: "pod default/day"}, 24 * time.Hour, year},
		{"shortened", []string{short}, rotation.Lifetime{Longest: 2 * time.Hour, For: "pod default/day"}, 2 * time.Hour, year},
		{"a cloud takes the cluster's own tokens", []string{cloud}, rotation.Lifetime{Longest: year, For: "pod default/own"}, 24 * time.Hour, year},
		{"and the flag does not shorten those", []string{cloud, short}, rotation.Lifetime{Longest: year, For: "pod default/own"}, 2 * time.Hour, year},
		{"not extended: they count as if they were", []string{cloud, "--service-account-extend-token-expiration=false"},
			rotation.Lifetime{Longest: year, For: "pod default/own"}, 24 * time.Hour, 3607 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.extra = tt.flags
			p.serve(t, 0, issuer)
			p.listed(t, p.hosts...)
			got, err := (outside.Signing{Access: outside.Access{Kubeconfig: p.kubeconfig, ServiceAccount: "default/sa1"}}).Lifetime(t.Context())
			if err != nil || got != tt.want {
				t.Errorf("Lifetime = %+v, %v, want %+v", got, err, tt.want)
			}
			bound := []string{"create", "token", "sa1", "--bound-object-kind", "Pod", "--bound-object-name"}
			if d := livesFor(t, p.kubectl(t, append(bound, "day", "--audience", "vault", "--duration", "24h")...)); d != tt.day {
				t.Errorf("a token of the pod day lives for %v, want %v", d, tt.day)
			}
			if d := livesFor(t, p.kubectl(t, append(bound, "own", "--duration", "3607s")...)); d != tt.own {
				t.Errorf("a token of the pod own lives for %v, want %v", d, tt.own)
			}
		})
	}
}

// livesFor returns exp - iat of a token.
func livesFor(t *testing.T, token string) time.Duration {
	t.Helper()
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(strings.TrimSpace(token), ".")[1])
	must(t, err)
	var claims struct{ Iat, Exp int64 }
	must(t, json.Unmarshal(payload, &claims))
	return time.Duration(claims.Exp-claims.Iat) * time.Second
}
