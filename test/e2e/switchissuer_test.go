//go:build e2e

package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/keypost/keypost/test/keys"
)

// defaultIssuer is the issuer of a cluster that kubeadm has made.
const defaultIssuer = "https://kubernetes.default.svc.cluster.local"

// TestSwitchIssuer restarts kube-apiservers with the flags that README.md gives in step 4, word for word, and shows
// that no token which was accepted before the change is refused after it.
func TestSwitchIssuer(t *testing.T) {
	s := &switching{ca: newAuthority(t), flags: readmeFlags(t)}
	startEtcd(t)
	c := s.cluster(t, "switch")
	s.restart(t, c, "--service-account-issuer="+defaultIssuer)
	c.createAccount(t)
	before := c.apiToken(t)
	c.admits(t, before, true)

	s.restart(t, c, s.flags...)
	c.admits(t, before, true)
	after := c.apiToken(t)
	c.admits(t, after, true)
	if iss := issuerOf(t, after); iss != "https://oidc.example.com/prod-a" {
		t.Errorf("a new token's issuer is %s", iss)
	}

	s.restart(t, c, oldIssuerFirst(s.flags)...) // the way back
	c.admits(t, before, true)
	c.admits(t, after, true)
	if iss := issuerOf(t, c.apiToken(t)); iss != defaultIssuer {
		t.Errorf("a new token's issuer is %s", iss)
	}
}

// TestSwitchIssuerOfSeveralServers shows why the README adds the new issuer to every API server before any of them
// signs with it: a pod's token is signed by one of them and presented to another.
func TestSwitchIssuerOfSeveralServers(t *testing.T) {
	s := &switching{ca: newAuthority(t), flags: readmeFlags(t)}
	startEtcd(t)
	first, second := s.cluster(t, "several"), s.cluster(t, "several")
	second.key, second.port = first.key, first.port+1 // one cluster: the same keys, the same etcd
	s.restart(t, first, s.flags...)
	first.createAccount(t)
	token := first.apiToken(t)

	s.restart(t, second, "--service-account-issuer="+defaultIssuer)
	second.admits(t, token, false)
	s.restart(t, second, oldIssuerFirst(s.flags)...)
	second.admits(t, token, true)
	first.admits(t, second.apiToken(t), true)
}

// switching is what these tests share.
type switching struct {
	ca    *authority
	flags []string // of README.md, step 4
}

// switched is a cluster whose API server is restarted with other flags.
type switched struct {
	*cluster
	running *process
	port    int
}

func (s *switching) cluster(t *testing.T, name string) *switched {
	t.Helper()
	return &switched{cluster: &cluster{name: name, issuer: defaultIssuer, key: keys.NewEC()}, port: 6443}
}

func (s *switching) restart(t *testing.T, c *switched, flags ...string) {
	t.Helper()
	if c.running != nil {
		c.running.stop(t, patience)
	}
	c.issuerFlags = flags
	c.running = startCluster(t, s.ca, c.cluster, c.port)
	c.awaitReady(t, c.running)
}

// apiToken is a token for the API server itself: with the audience that it gives when none is asked for, as the token
// that is mounted into every pod has.
func (c *switched) apiToken(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(c.kubectl(t, "create", "token", "sa1"))
}

// admits tests whether the API server accepts a token. It reads its keys and its issuers at start, so its first answer
// is its last.
func (c *switched) admits(t *testing.T, token string, want bool) {
	t.Helper()
	r := c.whoami(t, token)
	if got := r.code == 0 && r.stdout == "system:serviceaccount:default:sa1"; got != want {
		t.Errorf("token accepted: %v, want %v; %s%s", got, want, r.stdout, r.stderr)
	}
	if !want && !strings.Contains(r.stderr, "Unauthorized") && !strings.Contains(r.stderr, "must be logged in") {
		t.Errorf("refused for another reason than 401: %s", r.stderr)
	}
}

// readmeFlags are the flags of the README's step 4.
func readmeFlags(t *testing.T) []string {
	t.Helper()
	text := read(t, "../../README.md")
	block := regexp.MustCompile("(?m)^```text\n((?:--.*\n)+)```$").FindSubmatch(text)
	if block == nil {
		t.Fatal("README.md has no block of kube-apiserver flags")
	}
	var flags []string
	for line := range strings.Lines(string(block[1])) {
		flag, _, _ := strings.Cut(line, "#")
		flags = append(flags, strings.TrimSpace(flag))
	}
	if !slices.Contains(flags, "--service-account-issuer=https://oidc.example.com/prod-a") || !slices.Contains(flags, "--service-account-issuer="+defaultIssuer) {
		t.Fatalf("the README's flags do not name both issuers: %q", flags)
	}
	return flags
}

// oldIssuerFirst is the order in which the new issuer is accepted and the old one signs.
func oldIssuerFirst(flags []string) []string {
	old := "--service-account-issuer=" + defaultIssuer
	return append([]string{old}, slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return f == old })...)
}

func issuerOf(t *testing.T, token string) string {
	t.Helper()
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES256})
	must(t, err)
	var claims jwt.Claims
	must(t, parsed.UnsafeClaimsWithoutVerification(&claims))
	return claims.Issuer
}
