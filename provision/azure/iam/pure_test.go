package iam

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

func TestGUID(t *testing.T) {
	t.Parallel()
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
		a := assignmentState{Name: "aaaaaaaa-0000-4000-8000-000000000001", Properties: binding{tt.scope, "/r/1", "p"}}
		if tt.made {
			a.Name = a.Properties.name()
		}
		t.Run(fmt.Sprint(tt.scope, tt.made), func(t *testing.T) {
			scopes := []string{"/subscriptions/" + s + "/resourceGroups/a"}
			b := bindings{Run: &Run{Client: &arm.Client{Subscription: s}}, scopes: scopes}
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
	b := bindings{Run: &Run{Client: &arm.Client{Subscription: s}}, identity: "i"}
	stage := b.planDelete([]assignmentState{{"x", "", binding{"/subscriptions/" + s, "/r/1", ""}}, {above + "/y", "", binding{above, "/r/2", ""}}})
	if len(stage) != 1 || strings.Join(stage[0].Diff, "\n") != "- role 1 at /subscriptions/"+s {
		t.Errorf("stage %+v", stage)
	}
}

// What is there leads to what is wanted: by issuer and subject, letter by letter. Nothing goes unless it is to be pruned.
func TestCompareCredentials(t *testing.T) {
	t.Parallel()
	c := func(name, issuer, subject, audience string) Credential {
		return Credential{name, issuer, subject, audience}
	}
	second := Suffixed("a", "a "+ours+" s-a") + "=s-a"
	for _, tt := range []struct {
		name       string
		have, want []Credential
		put        string // NAME=SUBJECT
		kept       string // what stays and nobody asked for, or what goes with Prune
		lost       string // with Prune
		audiences  string // that change with Prune, as put
		usual      bool   // nobody asked for an audience
	}{
		{name: "nothing", want: []Credential{c("a", ours, "s-a", "openshift"), c("b", ours, "s-b", "openshift")}, put: "a=s-a b=s-b"},
		{name: "all is there", have: []Credential{c("a", ours, "s-a", "openshift")}, want: []Credential{c("a", ours, "s-a", "openshift")}},
		{name: "under another name", have: []Credential{c("z", ours, "s-a", "openshift")}, want: []Credential{c("a", ours, "s-a", "openshift")}},
		{name: "another audience", have: []Credential{c("z", ours, "s-a", "other")}, want: []Credential{c("a", ours, "s-a", "openshift")}, audiences: "z=s-a"},
		{name: "another audience, and none was asked for", have: []Credential{c("z", ours, "s-a", "other")}, want: []Credential{c("a", ours, "s-a", "openshift")}, usual: true},
		{name: "a subject in another letter case", have: []Credential{c("a", ours, "S-A", "openshift")}, want: []Credential{c("a", ours, "s-a", "openshift")},
			put: second, kept: "a", lost: "S-A"},
		{name: "a slash after the issuer", have: []Credential{c("a", ours+"/", "s-a", "openshift")}, want: []Credential{c("a", ours, "s-a", "openshift")},
			put: second, kept: "a", lost: "s-a of " + ours + "/"},
		{name: "another issuer under the name stays", have: []Credential{c("a", other, "s-a", "openshift")}, want: []Credential{c("a", ours, "s-a", "openshift")},
			put: second},
		{name: "another issuer under both names stays", have: []Credential{c("a", other, "s-a", "openshift"), c(strings.TrimSuffix(second, "=s-a"), other, "s-b", "openshift")},
			want: []Credential{c("a", ours, "s-a", "openshift")}, put: Suffixed(strings.TrimSuffix(second, "=s-a"), strings.TrimSuffix(second, "=s-a")+" "+ours+" s-a") + "=s-a"},
		{name: "one that nobody wants", have: []Credential{c("a", ours, "s-a", "openshift"), c("gone", ours, "s-gone", "openshift")},
			want: []Credential{c("a", ours, "s-a", "openshift")}, kept: "gone", lost: "s-gone"},
		{name: "the two under each other's names", have: []Credential{c("a", ours, "s-b", "openshift"), c("b", ours, "s-a", "openshift")},
			want: []Credential{c("a", ours, "s-a", "openshift"), c("b", ours, "s-b", "openshift")}},
		{name: "its name is that of another one that is wanted", have: []Credential{c("a", ours, "s-b", "openshift")},
			want: []Credential{c("a", ours, "s-a", "openshift"), c("b", ours, "s-b", "openshift")}, put: second},
	} {
		for _, prune := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, prune %v", tt.name, prune), func(t *testing.T) {
				o := Options{Prune: prune, Usual: tt.usual}
				o.IssuerURL = ours
				got := New(o).compare(tt.have, tt.want, false)
				names := func(list []Credential) string {
					var all []string
					for _, c := range list {
						all = append(all, c.Name)
					}
					return strings.Join(all, " ")
				}
				lost := func(list []Credential) string {
					var all []string
					for _, c := range list {
						all = append(all, tokensOf(c, ours))
					}
					return strings.Join(all, " ")
				}
				var put []string
				for _, p := range got.put {
					put = append(put, p.Name+"="+p.Subject)
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
