package azure

import (
	"crypto/elliptic"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/azure/arm"
	"github.com/keypost/keypost/test/keys"
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
		t.Errorf("%s is no UUID of version 5", id)
	}
	if id != guid("/SUBSCRIPTIONS/s/resourcegroups/g", "R", "P") || id == guid("/subscriptions/S/resourceGroups/G", "r", "q") || guid("ab", "c") == guid("a", "bc") {
		t.Error("a name is made of what it binds, whatever its letter case, and of nothing else")
	}
}

// Assignments are compared without letter case, and ours are known by their names.
func TestAssignmentsAreComparedWithoutCase(t *testing.T) {
	t.Parallel()
	a := assignmentState{scope: "/subscriptions/S/resourceGroups/G", role: "/subscriptions/S/providers/Microsoft.Authorization/roleDefinitions/AB-CD", principal: "P"}
	b := assignmentState{scope: "/SUBSCRIPTIONS/s/RESOURCEGROUPS/g", role: "/providers/microsoft.authorization/roledefinitions/ab-cd", principal: "p"}
	a.name = strings.ToUpper(assignmentName(b))
	if a.key() != b.key() || !a.ours() {
		t.Errorf("%q, %q, %t", a.key(), b.key(), a.ours())
	}
	b.principal, b.name = "other", assignmentName(a)
	if a.key() == b.key() || b.ours() {
		t.Error("another principal is the same")
	}
}

// What nobody asks for and a run may take away: whatever is at the installation's own scopes, and elsewhere in the subscription what
// keypost assigned once. Outside of it nothing goes, under whatever name.
func TestSurplusAssignments(t *testing.T) {
	t.Parallel()
	const s = "11111111-2222-3333-4444-555555555555"
	c := &client{Client: &arm.Client{Subscription: s}}
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
			for _, q := range []taking{{scopes: scopes, prune: true}, {scopes: scopes}} {
				lost, extra := c.surplus(identity{name: "i"}, []assignmentState{a}, q)
				if goes := tt.goes && q.prune; (len(lost) == 1) != goes || (len(extra) == 1) != (tt.goes && !goes) {
					t.Errorf("%+v: lost %v, extra %q", q, lost, extra)
				}
			}
		})
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
		others         int
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
			put: second, others: 1},
		{name: "another issuer under both names stays", have: []credential{c("a", other, "s-a", "openshift"), c(strings.TrimSuffix(second, "=s-a"), other, "s-b", "openshift")},
			want: []credential{c("a", ours, "s-a", "openshift")}, put: suffixed(strings.TrimSuffix(second, "=s-a"), strings.TrimSuffix(second, "=s-a")+" "+ours+" s-a") + "=s-a", others: 1},
		{name: "one that nobody wants", have: []credential{c("a", ours, "s-a", "openshift"), c("gone", ours, "s-gone", "openshift")},
			want: []credential{c("a", ours, "s-a", "openshift")}, kept: "gone", lost: "s-gone"},
		{name: "the two under each other's names", have: []credential{c("a", ours, "s-b", "openshift"), c("b", ours, "s-a", "openshift")},
			want: []credential{c("a", ours, "s-a", "openshift"), c("b", ours, "s-b", "openshift")}},
		{name: "its name is that of another one that is wanted", have: []credential{c("a", ours, "s-b", "openshift")},
			want: []credential{c("a", ours, "s-a", "openshift"), c("b", ours, "s-b", "openshift")}, put: second},
		{name: "as many as Azure allows", have: full[1:], want: []credential{c("a", ours, "s-a", "openshift")}, put: "a=s-a", others: 1},
		{name: "more than Azure allows", have: full, want: []credential{c("a", ours, "s-a", "openshift")}, put: "a=s-a", others: 1, err: "21 federated credentials"},
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
				var put []string
				for _, p := range got.put {
					put = append(put, p.name+"="+p.subject)
				}
				wantPut, wantKept, wantGone, wantLost := tt.put, tt.kept, "", ""
				if prune {
					wantPut, wantKept, wantGone, wantLost = tt.put+tt.audiences, "", tt.kept, tt.lost
				}
				if p := strings.Join(put, " "); p != wantPut || names(got.kept) != wantKept || names(got.remove) != wantGone ||
					strings.Join(got.lost, " ") != wantLost || len(got.others) != tt.others {
					t.Errorf("put %q, kept %v, remove %v, lost %q, others %q", p, got.kept, got.remove, got.lost, got.others)
				}
			})
		}
	}
}

// A role is written only if it allows something else.
func TestRolesAreComparedByWhatTheyAllow(t *testing.T) {
	t.Parallel()
	want := roleState{scopes: []string{"/subscriptions/S"}, actions: []string{"A/b/read", "A/c/write"}}
	for _, tt := range []struct {
		name string
		have roleState
		diff string
	}{
		{"the same, in another case and order, and twice", roleState{scopes: []string{"/SUBSCRIPTIONS/s"}, actions: []string{"a/C/write", "A/B/READ", "a/b/read"}}, ""},
		{"an action more", roleState{scopes: want.scopes, actions: append([]string{"A/d/delete"}, want.actions...)}, "- action A/d/delete"},
		{"an action less", roleState{scopes: want.scopes, actions: want.actions[:1]}, "+ action A/c/write"},
		{"a data action", roleState{scopes: want.scopes, actions: want.actions, dataActions: []string{"A/e/read"}}, "- data action A/e/read"},
		{"an exception", roleState{scopes: want.scopes, actions: want.actions, denied: []string{"A/b/read"}}, "- exception A/b/read"},
		{"not assignable here", roleState{actions: want.actions}, "+ assignable scope /subscriptions/S"},
	} {
		if got := strings.Join(roleDiff(tt.have, want), "\n"); got != tt.diff {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

// Whatever breaks a rule of Azure's is told before the first call.
func TestCheck(t *testing.T) {
	t.Parallel()
	good := func() (Options, identity) {
		o := Options{Subscription: "11111111-2222-3333-4444-555555555555", Region: "westeurope", OIDCGroup: "a-oidc", InstallGroup: "a", Audience: DefaultAudience}
		o.Name, o.IssuerURL = "a", ours
		return o, identity{name: "a-ns-creds", request: "request r", credentials: []credential{{"sa1", ours, "system:serviceaccount:ns:sa1", "openshift"}}, scopes: []string{o.groupID("a")}}
	}
	o, i := good()
	if err := o.check([]identity{i}); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 601)
	for _, tt := range []struct {
		change func(o *Options, i *identity)
		want   string
	}{
		{func(o *Options, _ *identity) { o.Subscription = "mine" }, `subscription ID "mine"`},
		{func(o *Options, _ *identity) { o.Tenant = "contoso" }, `tenant ID "contoso"`},
		{func(o *Options, _ *identity) { o.Region = "West Europe" }, `region "West Europe"`},
		{func(o *Options, _ *identity) { o.OIDCGroup = "a." }, `resource group "a."`},
		{func(o *Options, _ *identity) { o.OIDCGroup = "A" }, "cannot be both"},
		{func(o *Options, _ *identity) { o.IssuerURL = ours + "/" + long }, "Entra takes 1 to 600"},
		{func(o *Options, _ *identity) { o.Audience = "open shift" }, "a blank in it"},
		{func(o *Options, _ *identity) { o.Audience = "" }, `audience ""`},
		{func(o *Options, _ *identity) { o.Tags = map[string]string{"a/b": "c"} }, `the tag "a/b"`},
		{func(o *Options, _ *identity) { o.Tags = map[string]string{"a": strings.Repeat("c", 257)} }, "257 characters"},
		{func(o *Options, _ *identity) { o.Name = "a/b" }, "openshift.io_cloud-credential-operator_a/b"},
		{func(_ *Options, i *identity) { i.name = "a.b" }, `request r: the identity "a.b"`},
		{func(_ *Options, i *identity) { i.credentials[0].subject = long }, "the subject"},
		{func(_ *Options, i *identity) { i.credentials[0].name = "-" }, "no name for a federated credential"},
		{func(_ *Options, i *identity) { i.credentials = append(i.credentials, i.credentials[0]) }, "would both be named sa1"},
		{func(_ *Options, i *identity) { i.credentials = make([]credential, 21) }, "21 service accounts"},
		{func(_ *Options, i *identity) { i.scopes = []string{"my-group"} }, `the scope "my-group"`},
	} {
		o, i := good()
		tt.change(&o, &i)
		if err := o.check([]identity{i}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q is not in %v", tt.want, err)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(o *Options, i *identity, n int)
		limit  int // the longest, or the most
	}{
		{"characters of the issuer URL", func(o *Options, _ *identity, n int) { o.IssuerURL = padded("https://ö/", n) }, 600},
		{"characters of the audience", func(o *Options, _ *identity, n int) { o.Audience = padded("ö", n) }, 600},
		{"characters of a subject", func(_ *Options, i *identity, n int) { i.credentials[0].subject = padded("ö", n) }, 600},
		{"federated credentials", func(_ *Options, i *identity, n int) {
			c := i.credentials[0]
			for i.credentials = nil; len(i.credentials) < n; c.name += "x" {
				i.credentials = append(i.credentials, c)
			}
		}, 20},
		{"tags, with the owner's", func(o *Options, _ *identity, n int) {
			for o.Tags = map[string]string{}; len(o.Tags) < n-1; {
				o.Tags[fmt.Sprint("tag", len(o.Tags))] = ""
			}
		}, 50},
		{"characters of a tag's name", func(o *Options, _ *identity, n int) { o.Tags = map[string]string{padded("ö", n): ""} }, 512},
		{"characters of a tag's value", func(o *Options, _ *identity, n int) { o.Tags = map[string]string{"a": padded("ö", n)} }, 256},
		{"characters of an identity's name", func(_ *Options, i *identity, n int) { i.name = padded("a", n) }, 128},
		{"characters of a credential's name", func(_ *Options, i *identity, n int) { i.credentials[0].name = padded("a", n) }, 120},
		{"characters of a resource group's name", func(o *Options, _ *identity, n int) { o.NetworkGroup = padded("ö", n) }, 90},
	} {
		for n := tt.limit; n <= tt.limit+1; n++ {
			o, i := good()
			tt.change(&o, &i, n)
			if err := o.check([]identity{i}); (err != nil) != (n > tt.limit) {
				t.Errorf("%d %s: %v", n, tt.name, err)
			}
		}
	}
	for _, n := range []int{2, 3} { // the shortest names
		o, i := good()
		i.name = padded("a", n)
		o2, j := good()
		j.credentials[0].name = padded("a", n)
		if a, b := o.check([]identity{i}), o2.check([]identity{j}); (a != nil) != (n < 3) || (b != nil) != (n < 3) {
			t.Errorf("names of %d characters: %v, %v", n, a, b)
		}
	}
	_, twin := good()
	twin.name, twin.request = "A-NS-CREDS", "request q"
	if err := o.check([]identity{i, twin}); err == nil || !strings.Contains(err.Error(), "request r and request q lead to the same identity") {
		t.Errorf("two of one name: %v", err)
	}
}

// padded returns s with as many letters after it that it has n characters.
func padded(s string, n int) string { return s + strings.Repeat("x", n-utf8.RuneCountInString(s)) }

// Entra takes RS256 alone.
func TestKeysThatEntraRefuses(t *testing.T) {
	t.Parallel()
	ec, err := keystore.NewPublic(keys.EC(elliptic.P256(), 1).Public())
	if err != nil {
		t.Fatal(err)
	}
	if err := checkKey(ec); err == nil || !strings.Contains(err.Error(), "ES256") || !strings.Contains(err.Error(), "RS256 alone") {
		t.Errorf("an EC key: %v", err)
	}
	if err := checkKey(keystore.VerificationKey{}); err != nil {
		t.Errorf("a key that is still to be generated: %v", err)
	}
}

// Only our tags are written, whatever their letter case is there.
func TestMissingTags(t *testing.T) {
	t.Parallel()
	o := installation("a")
	if !o.owns(map[string]string{"OpenShift.io_Cloud-Credential-Operator_A": "owned"}) || o.owns(map[string]string{o.tag.Key: "shared"}) || o.owns(map[string]string{o.tag.Key + "b": "owned"}) {
		t.Error("a tag's name has no case, and its value has")
	}
	missing, diff := missingTags(map[string]string{"Team": "x", "kept": "y", "Same": "s"}, map[string]string{"team": "z", "same": "s", "new": ""})
	if !maps.Equal(missing, map[string]string{"team": "z", "new": ""}) || strings.Join(diff, "\n") != "+ tag new=\n- tag team=x\n+ tag team=z" {
		t.Errorf("%v, %q", missing, diff)
	}
	if err := o.refuse("group g", map[string]string{ownerTagPrefix + "b": "owned"}); !strings.Contains(err.Error(), "group g belongs to b") {
		t.Error(err)
	}
}
