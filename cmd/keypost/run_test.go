package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
)

// One computed key ID in 64 begins with a hyphen.
func TestDashedKids(t *testing.T) {
	full := "--" + strings.Repeat("x", 41)
	for _, tt := range []struct{ args, want string }{
		{"key promote prod-a -3oPKmtE", "key promote prod-a -- -3oPKmtE"},
		{"key promote prod-a -3oPKmtE --force --why -x", "key promote prod-a --force --why -x -- -3oPKmtE"},
		{"key retire prod-a " + full + " --why x", "key retire prod-a --why x -- " + full},
		{"key retire prod-a -3oPKmtE-_ --why -abcdefgh", "key retire prod-a --why -abcdefgh -- -3oPKmtE-_"},
		{"issuer accept prod-a --keep -3oPKmtE --gone=-3oPKmtE", "issuer accept prod-a --keep -3oPKmtE --gone=-3oPKmtE"},
		{"key list prod-a -ojson", "key list prod-a -ojson"},
		{"key list prod-a -otable", "key list prod-a -otable"},
		{"key remove prod-a --never-signed -3oPKmtE", "key remove prod-a --never-signed -- -3oPKmtE"},
		{"key remove prod-a -never-signed 3oPKmtEx", "key remove prod-a -never-signed 3oPKmtEx"},
		{"issuer show -3oPKmtE", "issuer show -3oPKmtE"},
		{"key remove prod-a -- -3oPKmtE", "key remove prod-a -- -3oPKmtE"},
		{"key promote prod-a 3oPKmtEx", "key promote prod-a 3oPKmtEx"},
		{"", ""},
	} {
		a := &app{}
		got := dashedKids(a.root(), strings.Fields(tt.args))
		if want := strings.Fields(tt.want); !slices.Equal(got, want) {
			t.Errorf("dashedKids(%q) = %q, want %q", tt.args, got, want)
		}
	}
}

// Every command says what it does, and every one that does work takes a fixed form of arguments.
func TestCommandsAreDescribed(t *testing.T) {
	a := &app{}
	for _, group := range a.root().Commands() {
		for _, c := range append(group.Commands(), group) {
			if c.Short == "" || strings.HasSuffix(c.Short, ".") || c.Use == "" {
				t.Errorf("%s: Short is %q", c.CommandPath(), c.Short)
			}
		}
	}
}

func TestReadFileIsBounded(t *testing.T) {
	a := &app{streams: streams{in: strings.NewReader("12345")}}
	if data, err := a.readFile("-", 4); err == nil || !strings.Contains(err.Error(), "larger than 4 bytes") {
		t.Errorf("readFile = %q, %v", data, err)
	}
	a.in = strings.NewReader("1234")
	if data, err := a.readFile("-", 4); err != nil || string(data) != "1234" {
		t.Errorf("readFile = %q, %v", data, err)
	}
}

func TestServingProblem(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stored listRow
		served issuer.Status
		known  bool
		want   string
	}{
		{"as it should be", listRow{Generation: 2}, issuer.Status{Generation: 2, Served: true}, true, ""},
		{"withdrawn", listRow{Generation: 2, Withdrawn: true}, issuer.Status{Generation: 2}, true, ""},
		{"never read", listRow{Generation: 1}, issuer.Status{}, false, "has not read it"},
		{"rejected", listRow{Generation: 1}, issuer.Status{Generation: 2, Served: true, Rejected: "older_generation", Message: "m"}, true, "rejected (older_generation): m"},
		{"behind", listRow{Generation: 3}, issuer.Status{Generation: 2, Served: true}, true, "serves generation 2"},
		{"not served", listRow{Generation: 2}, issuer.Status{Generation: 2}, true, "does not serve it"},
	} {
		if got := servingProblem(tt.stored, tt.served, tt.known); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// How long a revoked key may still be trusted is what the promotion gate counts on for a new one: convergence, the
// edge, and the slowest relying party.
func TestCopiesUntil(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := keystore.NewPublic(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	for name, tt := range map[string]struct {
		relyingParties []string
		tokenLifetime  time.Duration // lowered to one hour just now
		want           time.Duration
	}{
		"aws":           {[]string{"aws"}, time.Hour, 75*time.Second + 24*time.Hour + 10*time.Minute + time.Hour},
		"long tokens":   {[]string{"aws"}, 1000 * time.Hour, 75*time.Second + 24*time.Hour + 10*time.Minute + time.Hour},
		"none declared": {nil, time.Hour, 75*time.Second + 24*time.Hour + 10*time.Minute + 24*time.Hour},
	} {
		policy := newPolicy()
		policy.RelyingParties, policy.TokenLifetime = tt.relyingParties, keystore.D(tt.tokenLifetime)
		s, err := keystore.New(keystore.Change{At: now.Add(-time.Hour)}, keystore.Spec{
			Name: "prod-a", Issuers: []string{"https://oidc.example.com/prod-a"}, Keys: []keystore.Public{public}, Policy: policy,
		})
		if err != nil {
			t.Fatal(err)
		}
		policy.TokenLifetime = keystore.D(time.Hour)
		if s, err = s.SetPolicy(keystore.Change{At: now}, policy); err != nil {
			t.Fatal(err)
		}
		if got := copiesUntil(s, now).Sub(now); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}
