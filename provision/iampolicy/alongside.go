package iampolicy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A cluster that moves from one issuer to another needs, in every trust policy, for each statement about the old issuer a
// second one that means the same for the new. Statements are copied whole, whatever their form. One that cannot be copied
// stops the move: a role that trusts the new issuer less, or refuses it, is an outage.

// Alongside returns d with, for each statement that names from's provider (also a Deny, also one with other principals),
// the same for to, unless it is there. Nothing is removed. added are the lines of those that are new. A statement that mentions from
// in another way is described in uncopied, unless it mentions to as well: then somebody has adapted it by hand.
func (d Document) Alongside(from, to Trust) (both Document, added, uncopied []string) {
	have := lines(d.statements)
	both = d
	both.statements = slices.Clone(d.statements)
	for i, s := range d.statements {
		if !s.names(from.ProviderARN) {
			if s.mentions(from, to) && !s.mentions(to, from) {
				uncopied = append(uncopied, fmt.Sprintf("statement %d mentions it elsewhere than among the principals whom it trusts or denies", i+1))
			}
			continue
		}
		second, err := s.moved(from, to)
		if err != nil || second.mentions(from, to) {
			uncopied = append(uncopied, fmt.Sprintf("statement %d mentions it in a condition of a form that cannot be copied", i+1))
			continue
		}
		if line := second.line(); !slices.Contains(have, line) {
			have, added = append(have, line), append(added, line)
			both.statements = append(both.statements, second)
		}
	}
	return both, added, uncopied
}

// moved returns a statement for to's provider with the effect, actions and conditions of one for from's. A statement that
// lets tokens in without a condition on the audience gets to's audiences: without one, a token that a pod has handed to
// any other service would do.
func (s statement) moved(from, to Trust) (statement, error) {
	v, err := decode(s.raw)
	if err != nil {
		return statement{}, err
	}
	members := renamed(v, from, to).(map[string]any)
	delete(members, "Sid") // unique within a policy
	members["Principal"] = principals{"Federated": {to.ProviderARN}}
	second, err := parseStatement(asJSON(members))
	audience := HostPath(to.Issuer) + ":aud"
	for _, keys := range second.Condition {
		if keys[audience] != nil {
			return second, err
		}
	}
	if err != nil || !second.lets(to.ProviderARN) {
		return second, err
	}
	if second.Condition == nil {
		second.Condition = map[string]map[string]values{}
	}
	equal := map[string]values{audience: set(to.Audiences)}
	maps.Copy(equal, second.Condition["StringEquals"])
	second.Condition["StringEquals"] = equal
	members["Condition"] = second.Condition
	return parseStatement(asJSON(members))
}

// renamed returns JSON with to's provider and to's claims in the place of from's.
func renamed(v any, from, to Trust) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			if claim, ok := strings.CutPrefix(key, HostPath(from.Issuer)+":"); ok {
				key = HostPath(to.Issuer) + ":" + claim
			}
			out[key] = renamed(value, from, to)
		}
		return out
	case []any:
		for i, e := range v {
			v[i] = renamed(e, from, to)
		}
	case string:
		if v == from.ProviderARN {
			return to.ProviderARN
		}
		return strings.ReplaceAll(v, "${"+HostPath(from.Issuer)+":", "${"+HostPath(to.Issuer)+":")
	}
	return v
}

// Mentions reports whether any statement is about an issuer, as a principal or otherwise.
func (d Document) Mentions(t Trust) bool {
	return slices.ContainsFunc(d.statements, func(s statement) bool { return s.mentions(t, Trust{}) })
}

// mentions reports whether a statement is about an issuer anywhere: as a principal, in the key of a condition, or in a
// value, also by a pattern that matches its provider and not that of other.
func (s statement) mentions(t, other Trust) bool {
	v, err := decode(s.raw)
	return err == nil && mentions(v, t, other)
}

func mentions(v any, t, other Trust) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			// IAM ignores the case of its own keys. For an issuer's, AWS does not document it: they count here, and are not copied.
			if i := strings.LastIndex(key, ":"); i >= 0 && strings.EqualFold(key[:i], HostPath(t.Issuer)) || mentions(value, t, other) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return mentions(e, t, other) })
	case string:
		return matches(v, t.ProviderARN) && !matches(v, other.ProviderARN) && strings.Trim(v, "*?") != "" ||
			strings.Contains(strings.ToLower(v), "${"+strings.ToLower(HostPath(t.Issuer))+":")
	}
	return false
}

// matches applies IAM's wildcards, * and ?.
func matches(pattern, s string) bool {
	if !strings.ContainsAny(pattern, "*?") {
		return pattern == s
	}
	re := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(pattern))
	matched, err := regexp.MatchString("^(?s:"+re+")$", s)
	return err == nil && matched
}
