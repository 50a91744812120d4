package credrequest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// AzureSpec is what a request asks of Azure. Lists are in the manifest's order, in which some name a permission twice, and in
// varying letter case.
type AzureSpec struct {
	Roles           []string `json:"-"`               // names of roles that exist, from roleBindings
	Permissions     []string `json:"permissions"`     // actions of a custom role; * may stand for any part
	DataPermissions []string `json:"dataPermissions"` // its data actions

	// An identity that exists, so that only the Secret is to be made. All four are given or none is.
	ClientID       string `json:"azureClientID"` // GUIDs
	TenantID       string `json:"azureTenantID"`
	SubscriptionID string `json:"azureSubscriptionID"`
	Region         string `json:"azureRegion"`
}

var (
	azureAction = regexp.MustCompile(`^(\*|[A-Za-z0-9.*-]+(/[A-Za-z0-9.*_$-]+)+)$`)
	guid        = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
	azureRegion = regexp.MustCompile(`^[A-Za-z0-9]+$`)
)

func (r *reader) azure(provider json.RawMessage) AzureSpec {
	var in struct {
		AzureSpec
		RoleBindings []map[string]string `json:"roleBindings"`
	}
	r.decode(inProvider, provider, &in)
	s := in.AzureSpec
	for i, binding := range in.RoleBindings {
		at := fmt.Sprintf("%s.roleBindings[%d]", inProvider, i)
		for name := range binding {
			if name != "role" { // to ignore a scope would grant more than was asked for
				r.fail("%s.%s: a role binding has no such field, but role", at, printable(name))
			}
		}
		r.needs(at+".role", binding["role"], isRoleName, "the name of a role, of at most 512 characters")
		s.Roles = append(s.Roles, binding["role"])
	}
	const anAction = "an action (PROVIDER/RESOURCE/VERB)"
	r.each(inProvider+".permissions", s.Permissions, azureAction.MatchString, anAction)
	r.each(inProvider+".dataPermissions", s.DataPermissions, azureAction.MatchString, anAction)
	for name, id := range map[string]string{"azureClientID": s.ClientID, "azureTenantID": s.TenantID, "azureSubscriptionID": s.SubscriptionID} {
		r.has(inProvider+"."+name, id, guid.MatchString, "a GUID")
	}
	r.has(inProvider+".azureRegion", s.Region, azureRegion.MatchString, "the name of a region, such as westeurope")
	identity := []string{s.ClientID, s.TenantID, s.SubscriptionID, s.Region}
	switch missing := slices.Contains(identity, ""); {
	case missing && strings.Join(identity, "") != "":
		r.fail("%s: an identity needs all of azureClientID, azureTenantID, azureSubscriptionID and azureRegion", inProvider)
	case missing && len(s.Roles)+len(s.Permissions)+len(s.DataPermissions) == 0:
		r.fail("%s: roleBindings, permissions and dataPermissions are empty, so that the identity would be allowed nothing", inProvider)
	}
	return s
}

// isRoleName reports whether s can be the name of a role: built-in ones have spaces, brackets and slashes.
func isRoleName(s string) bool {
	control := func(r rune) bool { return !unicode.IsPrint(r) }
	return strings.TrimSpace(s) == s && len(s) <= 512 && !slices.ContainsFunc([]rune(s), control)
}
