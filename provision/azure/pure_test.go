package azure

import (
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/azure/iam"
)

const ours = "https://oidc.example.com/prod-a"

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
		if !strings.HasPrefix(got, want) || !credentialForm.MatchString(got) || got == account && want != account {
			t.Errorf("credentialName(%q) = %q, want %q…", account, got, want)
		}
	}
	if a, b := credentialName("a.b"), credentialName("a-b"); a == b {
		t.Errorf("two accounts have the name %s", a)
	}
	if long := credentialName(strings.Repeat("a.", 120) + "z"); !credentialForm.MatchString(long) || len(long) != 120 {
		t.Errorf("%s (%d characters)", long, len(long))
	}
	if long := strings.Repeat("a", 120); credentialName(long) != long || credentialName(long+"a") == long+"a" || len(credentialName(long+"a")) != 120 {
		t.Errorf("%s and %s", credentialName(long), credentialName(long+"a"))
	}
	if got := identityName("a", "ns", strings.Repeat("s", 200)); len(got) != 128 || !strings.HasPrefix(got, "a-ns-sss") {
		t.Errorf("identityName cuts to %q", got)
	}
}

// What Azure would take for something else is told before the first call.
func TestCheck(t *testing.T) {
	t.Parallel()
	const s = "11111111-2222-3333-4444-555555555555"
	for _, tt := range []struct {
		change func(o *Options, i *iam.Identity)
		want   string
	}{
		{func(*Options, *iam.Identity) {}, ""},
		{func(o *Options, _ *iam.Identity) { o.OIDCGroup = "A" }, "cannot be both"},
		{func(_ *Options, i *iam.Identity) { i.Name = "a.b" }, `request r: the identity "a.b"`},
		{func(_ *Options, i *iam.Identity) { i.Scopes = []string{"my-group"} }, `the scope "my-group"`},
		{func(_ *Options, i *iam.Identity) { i.Scopes = []string{"/subscriptions/" + s + "/../" + s} }, "is not the ID of"},
		{func(o *Options, _ *iam.Identity) { o.Subscription = "0" + s[1:] }, "is not in subscription 0"},
	} {
		o := Options{Subscription: s, Region: "westeurope", OIDCGroup: "a-oidc", InstallGroup: "a"}
		i := iam.Identity{Name: "a-ns-creds", Request: "request r", Credentials: []iam.Credential{{Name: "sa1", Issuer: ours, Subject: "system:serviceaccount:ns:sa1", Audience: "openshift"}}, Scopes: []string{o.GroupID("a")}}
		tt.change(&o, &i)
		if err := check(o, []iam.Identity{i}); (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q is not in %v", tt.want, err)
		}
	}
	o, twins := Options{Subscription: s}, []iam.Identity{{Name: "a-ns-creds", Request: "request r"}, {Name: "A-NS-CREDS", Request: "request q"}}
	if err := check(o, twins); err == nil || !strings.Contains(err.Error(), "request r and request q lead to the same identity") {
		t.Errorf("two of one name: %v", err)
	}
}
