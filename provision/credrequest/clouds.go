package credrequest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// AWSSpec is what a request asks of AWS.
type AWSSpec struct {
	Statements []Statement // empty only if RoleARN is given
	RoleARN    string      // stsIAMRoleARN: a role that exists, so that only the Secret is to be made
}

// Statement is one statement of a permissions policy. Effect is Allow or Deny. Condition is operator → key → value: text, a
// boolean, a number or a list of these, as in the manifest.
type Statement struct {
	Effect    string
	Action    []string
	Resource  string
	Condition map[string]map[string]json.RawMessage `json:",omitempty"`
}

// Policy renders statements as the permissions policy of a role, byte for byte as ccoctl does: compact, conditions
// sorted, <, > and & escaped. It fails only on a condition value that JSON has no form for.
//
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html
func Policy(statements []Statement) ([]byte, error) {
	if statements == nil {
		statements = []Statement{}
	}
	return json.Marshal(struct {
		Version   string
		Statement []Statement
	}{"2012-10-17", statements})
}

var (
	roleARN = regexp.MustCompile(`^arn:[a-z0-9-]+:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+$`)
	action  = regexp.MustCompile(`^(\*|[^\s:,]+:[^\s,]+)$`)
)

func (r *reader) aws(provider json.RawMessage) AWSSpec {
	var in struct {
		RoleARN    string                       `json:"stsIAMRoleARN"`
		Statements []map[string]json.RawMessage `json:"statementEntries"`
	}
	r.decode(inProvider, provider, &in)
	r.has(inProvider+".stsIAMRoleARN", in.RoleARN, roleARN.MatchString, "the ARN of an IAM role (arn:aws:iam::ACCOUNT:role/NAME)")
	s := AWSSpec{RoleARN: in.RoleARN}
	for i, members := range in.Statements {
		s.Statements = append(s.Statements, r.statement(fmt.Sprintf("%s.statementEntries[%d]", inProvider, i), members))
	}
	if s.RoleARN == "" && len(s.Statements) == 0 {
		r.fail("%s.statementEntries: it is empty; AWS refuses a policy without a statement", inProvider)
	}
	return s
}

// statement reads a statement, whatever the case of its fields: IAM's own policies, from which statements are copied, write
// Effect and Action. Unknown fields are an error here and nowhere else: to ignore a misspelt policyCondition would grant more
// than was asked for.
func (r *reader) statement(path string, members map[string]json.RawMessage) (s Statement) {
	fields := map[string]any{"effect": &s.Effect, "action": &s.Action, "resource": &s.Resource, "policycondition": &s.Condition}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		lower, value := strings.ToLower(name), members[name]
		if lower == "action" && strings.HasPrefix(string(value), `"`) { // a single one is not in a list, as with IAM
			value = slices.Concat([]byte("["), value, []byte("]"))
		}
		if fields[lower] == nil {
			r.fail("%s.%s: a statement has no such field, or has it already; it has effect, action, resource and policyCondition", path, printable(name))
			return s
		}
		r.decode(path+"."+name, value, fields[lower])
		delete(fields, lower)
	}
	r.each(path+".action", s.Action, action.MatchString, "an action (SERVICE:NAME); several go into a list")
	switch {
	case len(s.Action) == 0:
		r.fail("%s.action: it is empty; name the actions as a list", path)
	case s.Effect != "Allow" && s.Effect != "Deny":
		r.fail("%s.effect: it is %q; write Allow or Deny", path, shorten(s.Effect))
	case s.Resource != "*" && !strings.HasPrefix(s.Resource, "arn:"):
		r.fail("%s.resource: it is %q; write one ARN, or * for every resource", path, shorten(s.Resource))
	}
	for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
		at := path + ".policyCondition." + printable(operator)
		if len(s.Condition[operator]) == 0 {
			r.fail("%s: it is empty; write it as KEY: VALUE", at)
		}
		for _, key := range slices.Sorted(maps.Keys(s.Condition[operator])) {
			if !isConditionValue(s.Condition[operator][key]) {
				r.fail("%s.%s: write text, a number, true, false, or a list of these", at, printable(key))
			}
		}
	}
	return s
}

// isConditionValue reports whether IAM accepts a value.
func isConditionValue(raw json.RawMessage) bool {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || list == nil {
		list = []json.RawMessage{raw}
	}
	return !slices.ContainsFunc(list, func(v json.RawMessage) bool {
		return strings.HasPrefix(string(v), "{") || strings.HasPrefix(string(v), "[") || string(v) == "null"
	})
}

// GCPSpec is what a request asks of Google Cloud. Lists are in the manifest's order.
type GCPSpec struct {
	PredefinedRoles  []string `json:"predefinedRoles"`  // such as roles/storage.admin; also custom ones by their full names
	Permissions      []string `json:"permissions"`      // of a custom role
	SkipServiceCheck bool     `json:"skipServiceCheck"` // only for the operator in the cluster, which can look whether services are enabled

	// A Google service account that exists, so that only the Secret is to be made, and the resource name of the workload
	// identity provider through which it is reached (//iam.googleapis.com/projects/…). Both are given or neither is.
	ServiceAccountEmail string `json:"serviceAccountEmail"`
	Audience            string `json:"audience"`
}

// https://cloud.google.com/iam/docs/roles-overview, …/docs/permissions-reference and …/docs/service-accounts-create have the forms
// of names.
var (
	gcpRole       = regexp.MustCompile(`^(roles|projects/[a-z0-9:.-]+/roles|organizations/[0-9]+/roles)/[A-Za-z0-9_.]+$`)
	gcpPermission = regexp.MustCompile(`^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+){2,}$`)
	gcpAccount    = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*@([a-z0-9-]+\.)+gserviceaccount\.com$`)
	gcpProvider   = regexp.MustCompile(`^//iam\.googleapis\.com/projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+$`)
)

func (r *reader) gcp(provider json.RawMessage) (s GCPSpec) {
	r.decode(inProvider, provider, &s)
	r.each(inProvider+".predefinedRoles", s.PredefinedRoles, gcpRole.MatchString, "the name of a role (roles/NAME)")
	r.each(inProvider+".permissions", s.Permissions, gcpPermission.MatchString, "a permission (SERVICE.RESOURCE.VERB); a custom role has no wildcards")
	r.has(inProvider+".serviceAccountEmail", s.ServiceAccountEmail, gcpAccount.MatchString,
		"the address of a Google service account (NAME@PROJECT.iam.gserviceaccount.com)")
	r.has(inProvider+".audience", s.Audience, gcpProvider.MatchString, "the resource name of a workload identity provider "+
		"(//iam.googleapis.com/projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER)")
	switch {
	case (s.ServiceAccountEmail == "") != (s.Audience == ""):
		r.fail("%s: give both serviceAccountEmail and audience, which names the workload identity provider, or neither", inProvider)
	case s.ServiceAccountEmail == "" && len(s.PredefinedRoles)+len(s.Permissions) == 0:
		r.fail("%s: predefinedRoles and permissions are empty, so that the service account would be allowed nothing", inProvider)
	}
	return s
}

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
