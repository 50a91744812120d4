package azure

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/keypost/keypost/provision/azure/arm"
)

const (
	ours  = "https://oidc.example.com/prod-a"
	other = "https://oidc.example.com/old"
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
	id := guid("/subscriptions/S/resourceGroups/G", "r", "p")
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(id) {
		t.Errorf("%s is not a UUID of version 5", id)
	}
	if id != guid("/SUBSCRIPTIONS/s/resourcegroups/g", "R", "P") || id == guid("/subscriptions/S/resourceGroups/G", "r", "q") || guid("ab", "c") == guid("a", "bc") {
		t.Error("a name is made of what it binds, whatever its letter case, and of nothing else")
	}
}

// What nobody asks for and a run may take away: whatever is at the installation's own scopes, and elsewhere in the subscription what
// keypost assigned once. Outside of it nothing goes, under whatever name.
func TestSurplusAssignments(t *testing.T) {
	t.Parallel()
	const s = "11111111-2222-3333-4444-555555555555"
	for _, tt := range []struct {
		scope      string
		made, goes bool // made by keypost
	}{
		{"/subscriptions/" + s + "/resourceGroups/A", false, true},
		{"/subscriptions/" + s + "/resourcegroups/a", true, true},
		{"/subscriptions/" + s + "/resourceGroups/dns", true, true},
		{"/subscriptions/" + s + "/resourceGroups/dns", false, false},
		{"/subscriptions/" + s, true, true},
		{"/subscriptions/" + s, false, false},
		{"/subscriptions/" + s + "6/resourceGroups/a", true, false},
		{"/subscriptions/00000000-2222-3333-4444-555555555555/resourceGroups/a", true, false},
		{"/providers/Microsoft.Management/managementGroups/all", true, false},
		{"/", true, false},
	} {
		a := assignmentState{scope: tt.scope, role: "/r/1", principal: "p", name: "aaaaaaaa-0000-4000-8000-000000000001"}
		if tt.made {
			a.name = assignmentName(a)
		}
		t.Run(fmt.Sprint(tt.scope, tt.made), func(t *testing.T) {
			scopes := []string{"/subscriptions/" + s + "/resourceGroups/a"}
			b := bindings{run: &run{Client: &arm.Client{Subscription: s}}, scopes: scopes}
			if surplus := b.surplus([]assignmentState{a}); (len(surplus) == 1) != tt.goes {
				t.Errorf("surplus %v", surplus)
			}
		})
	}
}

// What a management group assigns to an identity stays when the identity goes.
func TestInheritedAssignmentsStay(t *testing.T) {
	t.Parallel()
	const s, above = "11111111-2222-3333-4444-555555555555", "/providers/Microsoft.Management/managementGroups/all"
	b := bindings{run: &run{Client: &arm.Client{Subscription: s}}, identity: "i"}
	stage := b.planDelete([]assignmentState{{id: "x", scope: "/subscriptions/" + s, role: "/r/1"}, {id: above + "/y", scope: above, role: "/r/2"}})
	if len(stage) != 1 || strings.Join(stage[0].Diff, "\n") != "- role 1 at /subscriptions/"+s {
		t.Errorf("stage %+v", stage)
	}
}

// What is there leads to what is wanted: by issuer and subject, letter by letter. Nothing goes unless it is to be pruned.
func TestCompareCredentials(t *testing.T) {
	t.Parallel()
	c := func(name, issuer, subject, audience string) credential {
		return credential{name, issuer, subject, audience}
	}
	var full []credential
	for i := range 20 { // what Azure allows
		full = append(full, c(fmt.Sprint("c", i), other, fmt.Sprint("s", i), "openshift"))
	}
	second := suffixed("a", "a "+ours+" s-a") + "=s-a"
	for _, tt := range []struct {
		name           string
		have, want     []credential
		put            string // NAME=SUBJECT
		kept           string // what stays and nobody asked for, or what goes with Prune
		lost           string // with Prune
		audiences, err string // audiences that change with Prune, as put
	}{
		{name: "nothing", want: []credential{c("a", ours, "s-a", "openshift"), c("b", ours, "s-b", "openshift")}, put: "a=s-a b=s-b"},
		{name: "all is there", have: []credential{c("a", ours, "s-a", "openshift")}, want: []credential{c("a", ours, "s-a", "openshift")}},
		{name: "under another name", have: []credential{c("z", ours, "s-a", "openshift")}, want: []credential{c("a", ours, "s-a", "openshift")}},
		{name: "another audience", have: []credential{c("z", ours, "s-a", "other")}, want: []credential{c("a", ours, "s-a", "openshift")}, audiences: "z=s-a"},
		{name: "a subject in another letter case", have: []credential{c("a", ours, "S-A", "openshift")}, want: []credential{c("a", ours, "s-a", "openshift")},
			put: second, kept: "a", lost: "S-A"},
		{name: "a slash after the issuer", have: []credential{c("a", ours+"/", "s-a", "openshift")}, want: []credential{c("a", ours, "s-a", "openshift")},
			put: second, kept: "a", lost: "s-a of " + ours + "/"},
		{name: "another issuer under the name stays", have: []credential{c("a", other, "s-a", "openshift")}, want: []credential{c("a", ours, "s-a", "openshift")},
			put: second},
		{name: "another issuer under both names stays", have: []credential{c("a", other, "s-a", "openshift"), c(strings.TrimSuffix(second, "=s-a"), other, "s-b", "openshift")},
			want: []credential{c("a", ours, "s-a", "openshift")}, put: suffixed(strings.TrimSuffix(second, "=s-a"), strings.TrimSuffix(second, "=s-a")+" "+ours+" s-a") + "=s-a"},
		{name: "one that nobody wants", have: []credential{c("a", ours, "s-a", "openshift"), c("gone", ours, "s-gone", "openshift")},
			want: []credential{c("a", ours, "s-a", "openshift")}, kept: "gone", lost: "s-gone"},
		{name: "the two under each other's names", have: []credential{c("a", ours, "s-b", "openshift"), c("b", ours, "s-a", "openshift")},
			want: []credential{c("a", ours, "s-a", "openshift"), c("b", ours, "s-b", "openshift")}},
		{name: "its name is that of another one that is wanted", have: []credential{c("a", ours, "s-b", "openshift")},
			want: []credential{c("a", ours, "s-a", "openshift"), c("b", ours, "s-b", "openshift")}, put: second},
		{name: "as many as Azure allows", have: full[1:], want: []credential{c("a", ours, "s-a", "openshift")}, put: "a=s-a"},
		{name: "more than Azure allows", have: full, want: []credential{c("a", ours, "s-a", "openshift")}, put: "a=s-a", err: "21 federated credentials"},
	} {
		for _, prune := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, prune %v", tt.name, prune), func(t *testing.T) {
				o := Options{Prune: prune}
				o.IssuerURL = ours
				got, err := newRun(o).compare(tt.have, tt.want, false)
				if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v", err)
				}
				names := func(list []credential) string {
					var all []string
					for _, c := range list {
						all = append(all, c.name)
					}
					return strings.Join(all, " ")
				}
				lost := func(list []credential) string {
					var all []string
					for _, c := range list {
						all = append(all, tokensOf(c, ours))
					}
					return strings.Join(all, " ")
				}
				var put []string
				for _, p := range got.put {
					put = append(put, p.name+"="+p.subject)
				}
				wantPut, wantKept, wantGone, wantLost := tt.put, tt.kept, "", ""
				if prune {
					wantPut, wantKept, wantGone, wantLost = tt.put+tt.audiences, "", tt.kept, tt.lost
				}
				if p := strings.Join(put, " "); p != wantPut || names(got.kept) != wantKept || names(got.remove) != wantGone ||
					lost(got.remove) != wantLost {
					t.Errorf("put %q, kept %v, remove %v", p, got.kept, got.remove)
				}
			})
		}
	}
}

// What Azure would take for something else is told before the first call.
func TestCheck(t *testing.T) {
	t.Parallel()
	const s = "11111111-2222-3333-4444-555555555555"
	for _, tt := range []struct {
		change func(o *Options, i *identity)
		want   string
	}{
		{func(*Options, *identity) {}, ""},
		{func(o *Options, _ *identity) { o.OIDCGroup = "A" }, "cannot be both"},
		{func(_ *Options, i *identity) { i.name = "a.b" }, `request r: the identity "a.b"`},
		{func(_ *Options, i *identity) { i.credentials = append(i.credentials, i.credentials[0]) }, "would both be named sa1"},
		{func(_ *Options, i *identity) { i.scopes = []string{"my-group"} }, `the scope "my-group"`},
		{func(_ *Options, i *identity) { i.scopes = []string{"/subscriptions/" + s + "/../" + s} }, "is not the ID of"},
		{func(o *Options, _ *identity) { o.Subscription = "0" + s[1:] }, "is not in subscription 0"},
	} {
		o := Options{Subscription: s, Region: "westeurope", OIDCGroup: "a-oidc", InstallGroup: "a"}
		i := identity{name: "a-ns-creds", request: "request r", credentials: []credential{{"sa1", ours, "system:serviceaccount:ns:sa1", "openshift"}}, scopes: []string{o.groupID("a")}}
		tt.change(&o, &i)
		if err := o.check([]identity{i}); (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q is not in %v", tt.want, err)
		}
	}
	o, twins := Options{Subscription: s}, []identity{{name: "a-ns-creds", request: "request r"}, {name: "A-NS-CREDS", request: "request q"}}
	if err := o.check(twins); err == nil || !strings.Contains(err.Error(), "request r and request q lead to the same identity") {
		t.Errorf("two of one name: %v", err)
	}
}
