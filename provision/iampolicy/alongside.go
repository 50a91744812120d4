package iampolicy

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A cluster that moves from one issuer to another needs, in every trust policy, for each statement about the old issuer a
// second one that means the same for the new. Statements are copied whole, whatever their form. One that cannot be copied
// stops the move: a role that trusts the new issuer less, or refuses it, is an outage.

// Uncopied is a statement about the old issuer that has no counterpart for the new one.
type Uncopied struct {
	Number int // from 1, as a reader of the policy counts
	Reason string
}

// String returns the statement's number and the reason.
func (u Uncopied) String() string { return fmt.Sprintf("statement %d %s", u.Number, u.Reason) }

// Alongside returns d with, for each statement that names from's provider (also a Deny, also one with other principals),
// the same for to, unless it is there. Nothing is removed. A statement that mentions from in another way is uncopied,
// unless it mentions to as well: then somebody has adapted it by hand.
func (d Document) Alongside(from, to Trust) (both Document, diff []string, rest []Uncopied, err error) {
	have := map[string]bool{}
	for _, s := range d.statements {
		have[s.key()] = true
	}
	var added []statement
	for i, s := range d.statements {
		if !s.names(from.ProviderARN) {
			if s.mentions(from, to) && !s.mentions(to, from) {
				rest = append(rest, Uncopied{i + 1, "mentions it elsewhere than among the principals whom it trusts or denies"})
			}
			continue
		}
		second, err := s.moved(from, to)
		if err != nil {
			return Document{}, nil, nil, err
		}
		if second.mentions(from, to) {
			rest = append(rest, Uncopied{i + 1, "mentions it in a condition of a form that cannot be copied"})
			continue
		}
		if !have[second.key()] {
			have[second.key()] = true
			added = append(added, second)
		}
	}
	both = d
	both.statements = slices.Concat(d.statements, added)
	return both, diffLines(nil, trustLines(added)), rest, nil
}

// moved returns a statement for to's provider with the effect, actions and conditions of one for from's. A statement that
// lets tokens in without a condition on the audience gets to's audiences: without one, a token that a pod has handed to
// any other service would do.
func (s statement) moved(from, to Trust) (statement, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(s.raw, &members); err != nil {
		return statement{}, err
	}
	delete(members, "Sid") // unique within a policy
	conditions := map[string]map[string]json.RawMessage{}
	if c, ok := members["Condition"]; ok {
		if err := json.Unmarshal(c, &conditions); err != nil {
			return statement{}, err
		}
	}
	hasAudience := false
	for operator, keys := range conditions {
		renamed := make(map[string]json.RawMessage, len(keys))
		for key, v := range keys {
			if claim, ok := strings.CutPrefix(key, HostPath(from.Issuer)+":"); ok {
				hasAudience = hasAudience || claim == "aud"
				key = HostPath(to.Issuer) + ":" + claim
			}
			var err error
			if renamed[key], err = movedValues(v, from, to); err != nil {
				return statement{}, err
			}
		}
		conditions[operator] = renamed
	}
	if !hasAudience && s.lets(from.ProviderARN) {
		requireAudience(conditions, to)
	}
	members["Principal"] = asJSON(map[string]string{"Federated": to.ProviderARN})
	if len(conditions) > 0 {
		members["Condition"] = asJSON(conditions)
	}
	return parseStatement(asJSON(members))
}

// movedValues returns the values of a condition with to's provider and to's claims in the place of from's.
func movedValues(raw json.RawMessage, from, to Trust) (json.RawMessage, error) {
	v, err := decode(raw)
	if err != nil {
		return nil, err
	}
	one := func(v any) any {
		s, ok := v.(string)
		if !ok {
			return v
		}
		if s == from.ProviderARN {
			return to.ProviderARN
		}
		return strings.ReplaceAll(s, "${"+HostPath(from.Issuer)+":", "${"+HostPath(to.Issuer)+":")
	}
	list, isList := v.([]any)
	if !isList {
		return asJSON(one(v)), nil
	}
	for i, e := range list {
		list[i] = one(e)
	}
	return asJSON(list), nil
}

func requireAudience(conditions map[string]map[string]json.RawMessage, to Trust) {
	if conditions["StringEquals"] == nil {
		conditions["StringEquals"] = map[string]json.RawMessage{}
	}
	conditions["StringEquals"][HostPath(to.Issuer)+":aud"] = asJSON(slices.Sorted(slices.Values(to.Audiences)))
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
