package credrequest

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/keypost/keypost/internal/dnsname"
)

const (
	apiGroup   = "cloudcredential.openshift.io"
	apiVersion = apiGroup + "/v1"
	kind       = "CredentialsRequest"
	awsKind    = "AWSProviderSpec"
)

// Annotations that decide whether a manifest counts; the cluster-version operator knows them all.
const (
	deletion    = "release.openshift.io/delete"
	featureSet  = "release.openshift.io/feature-set"  // comma-separated: any of them
	featureGate = "release.openshift.io/feature-gate" // up to 4.11: the name of a set

	defaultSet = "Default"
	previewSet = "TechPreviewNoUpgrade"
)

// manifest is a document while it is read: its place, for errors, and the first error. Once err is set, the results of its
// methods mean nothing.
type manifest struct {
	place string
	err   error
}

// value is a part of a document, as package yaml decodes it, and the path that leads to it; name is its last step.
type value struct {
	path, name string
	raw        any
}

func (m *manifest) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf("%s: %s", m.place, fmt.Sprintf(format, args...))
	}
}

// request reads a document. If the document is skipped, why is the line that reports it.
func (m *manifest) request(root value, techPreview bool) (r Request, why string) {
	if why = m.foreign(root); why != "" || m.err != nil {
		return Request{}, why
	}
	metadata := m.at(root, "metadata")
	r.Namespace, r.Name = m.text(m.at(metadata, "namespace")), m.name(m.at(metadata, "name"))
	if r.Namespace != "" {
		r.Namespace = m.label(m.at(metadata, "namespace"))
	}
	m.place += ", CredentialsRequest " + r.String()
	if why = m.unwanted(m.at(metadata, "annotations"), r, techPreview); why != "" || m.err != nil {
		return Request{}, why
	}
	spec := m.at(root, "spec")
	provider := m.at(spec, "providerSpec")
	if why = m.otherCloud(m.at(provider, "kind"), r); why != "" || m.err != nil {
		return Request{}, why
	}
	if v := m.at(provider, "apiVersion"); m.text(v) != "" && m.text(v) != apiVersion {
		m.fail("%s: %q is a version that this program does not know; it knows %s", v.path, m.text(v), apiVersion)
	}
	m.fill(&r, spec, provider)
	return r, ""
}

// foreign returns why a document is skipped that is no CredentialsRequest, or "". The kind counts only together with its
// group; ccoctl looks at neither and makes a role for whatever has the right shape.
func (m *manifest) foreign(root value) string {
	if root.raw == nil {
		return fmt.Sprintf("Ignoring %s: it is empty or holds only comments", m.place)
	}
	if _, ok := root.raw.(map[any]any); !ok {
		m.fail("it is no manifest: it has no apiVersion and kind")
		return ""
	}
	k, v := m.text(m.at(root, "kind")), m.text(m.at(root, "apiVersion"))
	group, _, _ := strings.Cut(v, "/")
	switch {
	case m.err != nil:
		return ""
	case k == "List" || k == kind+"List":
		m.fail("it is a %s: write each item that it holds as a document of its own", k)
	case k != kind || group != apiGroup:
		return fmt.Sprintf("Ignoring %s: it is a %s of %s, not a %s of %s", m.place, orNothing(k), orNothing(v), kind, apiVersion)
	case v != apiVersion:
		m.fail("apiVersion: %q is a version that this program does not know; it knows %s", printable(v), apiVersion)
	}
	return ""
}

func orNothing(s string) string {
	if s == "" {
		return "(nothing)"
	}
	return printable(s)
}

// unwanted returns why a request is skipped because of its annotations, or "".
func (m *manifest) unwanted(annotations value, r Request, techPreview bool) string {
	if m.annotation(annotations, deletion) == "true" {
		return fmt.Sprintf("Ignoring CredentialsRequest %s as it is marked for in-cluster deletion", r)
	}
	sets, wanted := m.annotation(annotations, featureSet), defaultSet
	if m.annotation(annotations, featureGate) == previewSet {
		sets = previewSet
	}
	if techPreview {
		wanted = previewSet
	}
	named := func(set string) bool { return strings.TrimSpace(set) == wanted }
	switch {
	case sets == "" || slices.ContainsFunc(strings.Split(sets, ","), named):
		return ""
	case techPreview:
		return fmt.Sprintf("Ignoring CredentialsRequest %s with tech-preview value %s", r, printable(sets))
	}
	return fmt.Sprintf("Ignoring CredentialsRequest %s with tech-preview annotation", r)
}

// annotation returns an annotation's value. A boolean is accepted: quotes around true are easily forgotten.
func (m *manifest) annotation(annotations value, key string) string {
	v := m.at(annotations, key)
	if b, ok := v.raw.(bool); ok {
		return fmt.Sprint(b)
	}
	return m.text(v)
}

func (m *manifest) otherCloud(provider value, r Request) string {
	switch k := m.text(provider); {
	case k == "":
		m.fail("%s: it is missing; a request for AWS has %s", provider.path, awsKind)
	case strings.EqualFold(k, awsKind) && k != awsKind: // else a slip of the keyboard passes for another cloud
		m.fail("%s: it is %s; write %s", provider.path, printable(k), awsKind)
	case k != awsKind:
		return fmt.Sprintf("Ignoring CredentialsRequest %s: it is for another cloud (%s)", r, printable(k))
	}
	return ""
}

func (m *manifest) fill(r *Request, spec, provider value) {
	secret := m.at(spec, "secretRef")
	r.SecretNamespace, r.SecretName = m.label(m.at(secret, "namespace")), m.name(m.at(secret, "name"))
	r.CloudTokenPath = m.matching(m.at(spec, "cloudTokenPath"), absolutePath.MatchString, "the absolute path of a file")
	r.RoleARN = m.matching(m.at(provider, "stsIAMRoleARN"), roleARN.MatchString, "the ARN of an IAM role (arn:aws:iam::ACCOUNT:role/NAME)")
	accounts, statements := m.at(spec, "serviceAccountNames"), m.at(provider, "statementEntries")
	for _, v := range m.items(accounts) {
		r.ServiceAccounts = append(r.ServiceAccounts, m.name(v))
	}
	for _, v := range m.items(statements) {
		r.Statements = append(r.Statements, m.statement(v))
	}
	switch {
	case r.RoleARN != "": // made by hand, with a trust and permissions that are none of our business
	case len(r.ServiceAccounts) == 0:
		m.fail("%s: it is empty; name the service accounts in %s that may assume the role", accounts.path, r.SecretNamespace)
	case len(r.Statements) == 0:
		m.fail("%s: it is empty; AWS refuses a policy without a statement", statements.path)
	}
}

// statement reads a statement. Unknown fields are an error here and nowhere else: to ignore a misspelt policyCondition
// would grant more than was asked for.
func (m *manifest) statement(v value) Statement {
	for _, field := range m.members(v) {
		known := func(name string) bool { return strings.EqualFold(name, field.name) }
		if !slices.ContainsFunc([]string{"effect", "action", "resource", "policyCondition"}, known) {
			m.fail("%s: a statement has no such field, but effect, action, resource and policyCondition", field.path)
		}
	}
	s := Statement{
		Effect:    m.text(m.field(v, "effect")),
		Action:    m.actions(m.field(v, "action")),
		Resource:  m.text(m.field(v, "resource")),
		Condition: m.condition(m.field(v, "policyCondition")),
	}
	if s.Effect != "Allow" && s.Effect != "Deny" {
		m.fail("%s.effect: it is %q; write Allow or Deny", v.path, shorten(s.Effect))
	}
	if s.Resource != "*" && !strings.HasPrefix(s.Resource, "arn:") {
		m.fail("%s.resource: it is %q; write one ARN, or * for every resource", v.path, shorten(s.Resource))
	}
	return s
}

// field returns a member of a statement, whatever its case: IAM's own policies, from which statements are copied, write
// Effect and Action.
func (m *manifest) field(v value, name string) value {
	var found []value
	for _, member := range m.members(v) {
		if strings.EqualFold(member.name, name) {
			found = append(found, member)
		}
	}
	switch len(found) {
	case 0:
		return m.at(v, name)
	case 1:
		return found[0]
	}
	m.fail("%s and %s: both are the statement's %s; write one", found[0].path, found[1].path, name)
	return found[0]
}

// actions reads a list of actions, or a single one, as IAM does.
func (m *manifest) actions(v value) []string {
	items := []value{v}
	if _, one := v.raw.(string); !one {
		items = m.items(v)
	}
	var actions []string
	for _, item := range items {
		actions = append(actions, m.matching(item, action.MatchString, "an action (SERVICE:NAME); several go into a list"))
	}
	if len(actions) == 0 || slices.Contains(actions, "") {
		m.fail("%s: it is empty; name the actions as a list", v.path)
	}
	return actions
}

func (m *manifest) condition(v value) map[string]map[string]any {
	if v.raw == nil {
		return nil
	}
	c := map[string]map[string]any{}
	for _, operator := range m.members(v) {
		keys := m.members(operator)
		if len(keys) == 0 {
			m.fail("%s: it is empty; write it as KEY: VALUE", operator.path)
		}
		c[operator.name] = map[string]any{}
		for _, key := range keys {
			m.conditionValue(key)
			c[operator.name][key.name] = key.raw
		}
	}
	return c
}

// conditionValue accepts what IAM accepts: text, booleans, numbers, and lists of these.
func (m *manifest) conditionValue(v value) {
	switch raw := v.raw.(type) {
	case string, bool, int, int64, uint64:
		return
	case float64:
		if !math.IsNaN(raw) && !math.IsInf(raw, 0) {
			return
		}
	case []any:
		for _, item := range m.items(v) {
			if _, nested := item.raw.([]any); nested {
				m.fail("%s: it is a list in a list", item.path)
			}
			m.conditionValue(item)
		}
		return
	}
	m.fail("%s: it is %s; write text, a number, true, false, or a list of these", v.path, describe(v.raw))
}

var (
	absolutePath = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`) // goes into an ini file
	roleARN      = regexp.MustCompile(`^arn:[a-z0-9-]+:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+$`)
	action       = regexp.MustCompile(`^(\*|[^\s:,]+:[^\s,]+)$`)
)

// label reads the name of a namespace.
func (m *manifest) label(v value) string {
	return m.required(v, m.matching(v, dnsname.IsLabel, "the name of a namespace"))
}

// name reads the name of anything else.
func (m *manifest) name(v value) string {
	return m.required(v, m.matching(v, dnsname.IsSubdomain, "a name that Kubernetes allows, of at most 253 characters"))
}

func (m *manifest) required(v value, s string) string {
	if s == "" {
		m.fail("%s: it is missing", v.path)
	}
	return s
}

// matching reads text that is empty or valid; wanted describes valid text, for the error.
func (m *manifest) matching(v value, has func(string) bool, wanted string) string {
	s := m.text(v)
	if s != "" && !has(s) {
		m.fail("%s: it is %q, which is not %s", v.path, shorten(s), wanted)
	}
	return s
}

// text reads text. An absent value is empty text.
func (m *manifest) text(v value) string {
	s, ok := v.raw.(string)
	if !ok && v.raw != nil {
		m.fail("%s: it is %s; write text, in quotes if need be", v.path, describe(v.raw))
	}
	return s
}

// at returns a member of a mapping. An absent mapping has none.
func (m *manifest) at(v value, field string) value {
	members, ok := v.raw.(map[any]any)
	if !ok && v.raw != nil {
		m.fail("%s: it is %s; write it as a mapping", v.path, describe(v.raw))
	}
	return v.member(field, members[field])
}

// members returns the members of a mapping with keys of text, in the order of their names. An absent mapping has none.
func (m *manifest) members(v value) []value {
	fields, ok := v.raw.(map[any]any)
	if !ok && v.raw != nil {
		m.fail("%s: it is %s; write it as KEY: VALUE", v.path, describe(v.raw))
	}
	var members []value
	for key, raw := range fields {
		name, ok := key.(string)
		if !ok {
			m.fail("%s: it has a key that is %s; write text, in quotes if need be", v.path, describe(key))
		}
		members = append(members, v.member(name, raw))
	}
	slices.SortFunc(members, func(a, b value) int { return strings.Compare(a.name, b.name) })
	return members
}

func (v value) member(name string, raw any) value {
	return value{path: strings.TrimPrefix(v.path+"."+printable(name), "."), name: name, raw: raw}
}

func (m *manifest) items(v value) []value {
	list, ok := v.raw.([]any)
	if !ok && v.raw != nil {
		m.fail("%s: it is %s; write it as a list", v.path, describe(v.raw))
	}
	var items []value
	for i, raw := range list {
		items = append(items, value{path: fmt.Sprintf("%s[%d]", v.path, i), raw: raw})
	}
	return items
}

func describe(raw any) string {
	switch raw := raw.(type) {
	case nil:
		return "empty"
	case map[any]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("the text %q", printable(raw))
	case bool:
		return fmt.Sprintf("the truth value %t", raw)
	}
	return fmt.Sprintf("the number %v", raw)
}
