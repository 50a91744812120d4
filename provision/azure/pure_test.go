package azure

import (
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/azure/iam"
)

// Names are those that Azure takes, and ccoctl's where Azure takes these.
func TestNames(t *testing.T) {
	t.Parallel()
	for account, want := range map[string]string{
		"ingress-operator": "ingress-operator",
		"abc":              "abc",
		"x":                "x-2d711642",
		"controller.sa":    "controller-sa-",
	} {
		got := credentialName(account)
		if !strings.HasPrefix(got, want) || !nameForm.MatchString(got) || got == account && want != account {
			t.Errorf("credentialName(%q) = %q, want %q…", account, got, want)
		}
	}
	if a, b := credentialName("a.b"), credentialName("a-b"); a == b {
		t.Errorf("two accounts have the name %s", a)
	}
	if long := credentialName(strings.Repeat("a.", 120) + "z"); !nameForm.MatchString(long) || len(long) != 120 {
		t.Errorf("%s (%d characters)", long, len(long))
	}
	if long := strings.Repeat("a", 120); credentialName(long) != long || credentialName(long+"a") == long+"a" || len(credentialName(long+"a")) != 120 {
		t.Errorf("%s and %s", credentialName(long), credentialName(long+"a"))
	}
	if got := identityName("a", "ns", strings.Repeat("s", 200)); len(got) != 128 || !strings.HasPrefix(got, "a-ns-sss") {
		t.Errorf("identityName cuts to %q", got)
	}
}

// Azure merges two identities of one name: each component would be permitted what the other is.
func TestTwoRequestsShareNoIdentity(t *testing.T) {
	t.Parallel()
	err := check(Options{}, []iam.Identity{{Name: "demo-ns-app", Request: "CredentialsRequest a"}, {Name: "demo-ns-App", Request: "CredentialsRequest b"}})
	if err == nil || !strings.Contains(err.Error(), "CredentialsRequest a and CredentialsRequest b lead to the same identity demo-ns-App") {
		t.Error(err)
	}
}
