package iampolicy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// rolePolicyLength is how many characters all inline policies of a role may have together. No quota raises it.
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
const rolePolicyLength = 10240

// Change is a policy to put. It is unnecessary if Diff is empty.
type Change struct {
	Text string
	Diff []string // "+ …" is added, "- …" is removed
	Lost []string // by Replace: permissions that go, which are grants that go and denials that come
	Kept []string // by Extend: what stays and is not asked for
}

// Replace returns the change from old to now.
func Replace(old, now Document) (Change, error) {
	gone, added := without(old.grants(), now.grants()), without(now.grants(), old.grants())
	text, err := now.Fit(rolePolicyLength)
	return Change{Text: text, Diff: diffLines(grantLines(gone), grantLines(added)), Lost: lost(gone, added)}, err
}

// Extend returns the change that adds to old what now has more. Nothing goes. The error reports that both do not fit into one
// policy, or that now has a Deny which old does not: it would take away.
func Extend(old, now Document) (Change, error) {
	kept, more := without(old.grants(), now.grants()), without(now.grants(), old.grants())
	if denials := sorted(grantLines(ofEffect("Deny", more))); len(denials) > 0 && !old.Empty() {
		return Change{}, fmt.Errorf("it would get the statement %s, which takes permissions away", denials[0])
	}
	if len(kept) == 0 {
		return Replace(old, now)
	}
	text, err := old.union(now).Fit(rolePolicyLength)
	if err != nil {
		return Change{}, fmt.Errorf("with what it has and what it needs, it %w", err)
	}
	return Change{Text: text, Diff: diffLines(nil, grantLines(more)), Kept: sorted(grantLines(kept))}, nil
}

// lost describes what is no longer permitted: an Allow that goes, a Deny that comes.
func lost(gone, added map[grant]bool) []string {
	return slices.Concat(sorted(grantLines(ofEffect("Allow", gone))), sorted(grantLines(ofEffect("Deny", added))))
}

func ofEffect(effect string, grants map[grant]bool) map[grant]bool {
	out := maps.Clone(grants)
	maps.DeleteFunc(out, func(g grant, _ bool) bool { return g.Effect != effect })
	return out
}

// without returns what a has and b does not.
func without[K comparable](a, b map[K]bool) map[K]bool {
	out := maps.Clone(a)
	maps.DeleteFunc(out, func(k K, _ bool) bool { return b[k] })
	return out
}

func sorted(lines map[string]bool) []string { return slices.Sorted(maps.Keys(lines)) }

// diffLines lists what goes, then what comes.
func diffLines(before, after map[string]bool) []string {
	var out []string
	for _, l := range sorted(without(before, after)) {
		out = append(out, "- "+l)
	}
	for _, l := range sorted(without(after, before)) {
		out = append(out, "+ "+l)
	}
	return out
}

// union has the statements of both documents, once each.
func (d Document) union(e Document) Document {
	out := Document{version: e.version}
	seen := map[string]bool{}
	for _, s := range slices.Concat(d.statements, e.statements) {
		if k := s.key(); !seen[k] {
			seen[k] = true
			out.statements = append(out.statements, s)
		}
	}
	return out
}

// Readable lines of what statements mean. Two policies of different meaning never have the same lines: what stands together in
// a statement stands on one line, and a value that could be read as anything else is quoted.

// grant is an action that a permissions policy allows or denies, with all that restricts it. Permissions are compared by grants.
type grant struct {
	Effect, Action string
	On             string // resource and conditions
	AllBut         bool   // Action lists the actions that it is not about
}

// grants returns a document's permissions one by one. Documents with the same grants permit the same, however they group them
// into statements.
func (d Document) grants() map[grant]bool {
	out := map[grant]bool{}
	for _, s := range d.statements {
		actions, resources := quoted(s.Elements["Action"]), quoted(s.Elements["Resource"])
		allBut := actions == nil // a negated list cannot be split without changing its meaning
		if allBut {
			actions = []string{join(s.Elements["NotAction"])}
		}
		if resources == nil {
			resources = []string{"all but " + join(s.Elements["NotResource"])}
		}
		for _, a := range actions {
			for _, r := range resources {
				out[grant{s.Effect, a, r + s.when(""), allBut}] = true
			}
		}
	}
	return out
}

// grantLines describes grants: "Allow ACTION, ACTION on RESOURCE when …".
func grantLines(grants map[grant]bool) map[string]bool {
	actions := map[grant][]string{} // by what they have in common
	out := map[string]bool{}
	for g := range grants {
		if g.AllBut {
			out[g.Effect+" all but "+g.Action+" on "+g.On] = true
			continue
		}
		same := grant{Effect: g.Effect, On: g.On}
		actions[same] = append(actions[same], g.Action)
	}
	for g, names := range actions {
		slices.Sort(names)
		out[g.Effect+" "+strings.Join(names, ", ")+" on "+g.On] = true
	}
	return out
}

// trustLines describes statements of a trust policy.
func trustLines(statements []statement) map[string]bool {
	out := map[string]bool{}
	for _, s := range statements {
		out[s.trustLine()] = true
	}
	return out
}

// trustLine describes whom a statement trusts or denies, for which action unless it is that of our own statements, and when.
func (s statement) trustLine() string {
	line := strings.ToLower(s.Effect)
	if s.Effect == "Allow" {
		line = "trust"
	}
	line += " " + s.principals()
	actions := s.Elements["Action"]
	switch {
	case len(actions) == 1 && strings.EqualFold(actions[0], assumeRole):
	case len(actions) > 0:
		line += " for " + join(actions)
	default:
		line += " for all but " + join(s.Elements["NotAction"])
	}
	issuer := ""
	if providers := s.Principal["Federated"]; len(s.Principal) == 1 && len(providers) == 1 {
		_, issuer, _ = strings.Cut(providers[0], oidcProvider)
	}
	return line + s.when(issuer)
}

const oidcProvider = ":oidc-provider/"

// principals returns the principals for the reader, sorted: an OIDC provider as its ARN, another as KIND:NAME.
func (s statement) principals() string {
	var out []string
	allBut := ""
	for _, prefixed := range slices.Sorted(maps.Keys(s.Principal)) {
		kind, not := strings.CutPrefix(prefixed, "Not")
		if not {
			allBut = "all but "
		}
		for _, v := range quoted(s.Principal[prefixed]) {
			switch {
			case kind == "":
				v = "everybody"
			case kind != "Federated" || !strings.Contains(v, oidcProvider):
				v = kind + ":" + v
			}
			out = append(out, v)
		}
	}
	return allBut + strings.Join(out, ", ")
}

// when returns the conditions for the reader, sorted: " when KEY is VALUE or VALUE, and KEY OPERATOR VALUE, VALUE". Of the keys
// of an issuer (its URL without https://), it has only the claims.
func (s statement) when(issuer string) string {
	var conditions []string
	for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
		keys := s.Condition[operator]
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			name := join([]string{key})
			if claim, ok := strings.CutPrefix(key, issuer+":"); ok && issuer != "" && !strings.ContainsAny(join([]string{claim}), `":`) {
				name = claim
			} else if !strings.Contains(key, ":") {
				name = strconv.Quote(key)
			}
			if operator == "StringEquals" {
				conditions = append(conditions, name+" is "+strings.Join(quoted(keys[key]), " or "))
			} else {
				conditions = append(conditions, name+" "+join([]string{operator})+" "+join(keys[key]))
			}
		}
	}
	if len(conditions) == 0 {
		return ""
	}
	return " when " + strings.Join(conditions, ", and ")
}

// join lists values for the reader. Two different lists never look the same.
func join(values []string) string { return strings.Join(quoted(values), ", ") }

func quoted(values []string) []string {
	var out []string
	for _, v := range values {
		if v == "" || strings.ContainsAny(v, `", `) || strings.ContainsFunc(v, func(c rune) bool { return !strconv.IsPrint(c) }) {
			v = strconv.Quote(v)
		}
		out = append(out, v)
	}
	return out
}
