package credrequest

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// AzureSpec is what a request asks of Azure. Lists are in the manifest's order, in which some name a permission twice, and in
// varying letter case.
type AzureSpec struct {
	Roles           []string // names of roles that exist, from roleBindings
	Permissions     []string // actions of a custom role; * may stand for any part
	DataPermissions []string // its data actions

	// An identity that exists, so that only the Secret is to be made. All four are given or none is.
	ClientID, TenantID, SubscriptionID string // GUIDs
	Region                             string
}

var (
	azureAction = regexp.MustCompile(`^(\*|[A-Za-z0-9.*-]+(/[A-Za-z0-9.*_$-]+)+)$`)
	guid        = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
	azureRegion = regexp.MustCompile(`^[A-Za-z0-9]+$`)
)

func (m *manifest) azure(provider value) AzureSpec {
	const anAction = "an action (PROVIDER/RESOURCE/VERB)"
	bindings, permissions, data := m.at(provider, "roleBindings"), m.at(provider, "permissions"), m.at(provider, "dataPermissions")
	s := AzureSpec{
		Permissions:     m.each(permissions, azureAction.MatchString, anAction),
		DataPermissions: m.each(data, azureAction.MatchString, anAction),
	}
	for _, v := range m.items(bindings) {
		s.Roles = append(s.Roles, m.roleBinding(v))
	}
	fields := []struct {
		name string
		to   *string
		has  func(string) bool
		is   string
	}{
		{"azureClientID", &s.ClientID, guid.MatchString, "a GUID"},
		{"azureTenantID", &s.TenantID, guid.MatchString, "a GUID"},
		{"azureSubscriptionID", &s.SubscriptionID, guid.MatchString, "a GUID"},
		{"azureRegion", &s.Region, azureRegion.MatchString, "the name of a region, such as westeurope"},
	}
	var given, missing []string
	for _, f := range fields {
		if *f.to = m.matching(m.at(provider, f.name), f.has, f.is); *f.to == "" {
			missing = append(missing, f.name)
		} else {
			given = append(given, f.name)
		}
	}
	switch {
	case len(given) > 0 && len(missing) > 0:
		m.fail("%s.%s: it is missing; a request with %s needs all four of the identity's values", provider.path, missing[0], given[0])
	case len(given) == 0 && len(s.Roles)+len(s.Permissions)+len(s.DataPermissions) == 0:
		m.fail("%s, %s and %s: all are empty, so that the identity would be allowed nothing", bindings.path, permissions.path, data.path)
	}
	return s
}

// roleBinding returns the role of a binding. Unknown fields are an error: to ignore a scope would grant more than was asked for.
func (m *manifest) roleBinding(v value) string {
	for _, field := range m.members(v) {
		if field.name != "role" {
			m.fail("%s: a role binding has no such field, but role", field.path)
		}
	}
	role := m.at(v, "role")
	return m.required(role, m.matching(role, isRoleName, "the name of a role, of at most 512 characters"))
}

// isRoleName reports whether s can be the name of a role: built-in ones have spaces, brackets and slashes.
func isRoleName(s string) bool {
	control := func(r rune) bool { return !unicode.IsPrint(r) }
	return strings.TrimSpace(s) == s && len(s) <= 512 && !slices.ContainsFunc([]rune(s), control)
}
