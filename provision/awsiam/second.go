package awsiam

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A cluster that moves from one issuer to another needs, in every trust policy, for each statement that concerns the
// old issuer a second one that says the same of the new. Statements are copied whole, whatever their form. What cannot
// be copied is named, and stops the move: a role that trusts the new issuer less, or refuses it, is an outage.

// stuck is a statement that concerns the old issuer and has no second.
type stuck struct {
	number int // from 1, as a reader of the policy counts
	why    string
}

func (s stuck) String() string { return fmt.Sprintf("statement %d %s", s.number, s.why) }

// alongside gives d, for each statement that names From's provider (also a Deny, also one with others beside From), the
// same for To, unless it is there. Nothing goes. What concerns From otherwise is stuck, unless it speaks of To as well:
// then somebody has seen to it by hand.
func (d document) alongside(from, to Trust) (both document, diff []string, rest []stuck, err error) {
	have, err := d.keys()
	if err != nil {
		return document{}, nil, nil, err
	}
	var added []statement
	both = d
	for i, raw := range d.Statement {
		s, err := parseStatement(raw)
		if err != nil {
			return document{}, nil, nil, err
		}
		if !slices.Contains(s.Principal["Federated"], from.ProviderARN) {
			if mentions(raw, from, to) && !mentions(raw, to, from) {
				rest = append(rest, stuck{i + 1, "speaks of it elsewhere than among the principals whom it trusts or denies"})
			}
			continue
		}
		second, err := moved(raw, from, to)
		if err != nil {
			return document{}, nil, nil, err
		}
		if mentions(second, from, to) {
			rest = append(rest, stuck{i + 1, "speaks of it in a condition of a form that cannot be copied"})
			continue
		}
		if s, err = parseStatement(second); err != nil {
			return document{}, nil, nil, err
		}
		if !have[s.key()] {
			have[s.key()] = true
			added = append(added, s)
			both.Statement = append(slices.Clip(both.Statement), second)
		}
	}
	return both, diffLines(nil, trustLines(added)), rest, nil
}

// moved rewrites a statement for From's provider into one for To's: the same effect, actions and conditions, under To's
// name. Conditions on an audience stay what they are. A statement that lets tokens in and has none gets To's: without
// one, a token that a pod has handed to any other service would do.
func moved(raw json.RawMessage, from, to Trust) (json.RawMessage, error) {
	s, err := parseStatement(raw)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, err
	}
	delete(members, "Sid") // unique within a policy
	conditions := map[string]map[string]json.RawMessage{}
	if c, ok := members["Condition"]; ok {
		if err := json.Unmarshal(c, &conditions); err != nil {
			return nil, err
		}
	}
	aud := false
	for operator, keys := range conditions {
		renamed := make(map[string]json.RawMessage, len(keys))
		for key, v := range keys {
			if claim, ok := strings.CutPrefix(key, hostPath(from.Issuer)+":"); ok {
				aud = aud || claim == "aud"
				key = hostPath(to.Issuer) + ":" + claim
			}
			if renamed[key], err = movedValues(v, from, to); err != nil {
				return nil, err
			}
		}
		conditions[operator] = renamed
	}
	if !aud && s.lets(from.ProviderARN) {
		requireAudience(conditions, to)
	}
	members["Principal"] = asJSON(map[string]string{"Federated": to.ProviderARN})
	if len(conditions) > 0 {
		members["Condition"] = asJSON(conditions)
	}
	return asJSON(members), nil
}

// movedValues are the values of a condition with To's provider, and To's claims as variables, in the place of From's.
func movedValues(raw json.RawMessage, from, to Trust) (json.RawMessage, error) {
	v, err := decoded(raw)
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
		return strings.ReplaceAll(s, "${"+hostPath(from.Issuer)+":", "${"+hostPath(to.Issuer)+":")
	}
	if list, is := v.([]any); is {
		for i, e := range list {
			list[i] = one(e)
		}
		return asJSON(list), nil
	}
	return asJSON(one(v)), nil
}

func requireAudience(conditions map[string]map[string]json.RawMessage, to Trust) {
	if conditions["StringEquals"] == nil {
		conditions["StringEquals"] = map[string]json.RawMessage{}
	}
	conditions["StringEquals"][hostPath(to.Issuer)+":aud"] = asJSON(slices.Sorted(slices.Values(to.Audiences)))
}

// mentions reports whether a statement speaks of an issuer anywhere: as a principal, in the name of a condition's key, or
// in a value, also by a pattern that fits its provider and not other's.
func mentions(raw json.RawMessage, t, other Trust) bool {
	v, err := decoded(raw)
	if err != nil {
		return false // parseStatement has refused it before
	}
	return speaks(v, t, other)
}

func speaks(v any, t, other Trust) bool {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			// IAM's own keys have no case. Whether an issuer's have, AWS does not say: they count here, and are not copied.
			if i := strings.LastIndex(key, ":"); i >= 0 && strings.EqualFold(key[:i], hostPath(t.Issuer)) || speaks(value, t, other) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return speaks(e, t, other) })
	case string:
		return matches(v, t.ProviderARN) && !matches(v, other.ProviderARN) && strings.Trim(v, "*?") != "" ||
			strings.Contains(strings.ToLower(v), "${"+strings.ToLower(hostPath(t.Issuer))+":")
	}
	return false
}

// decoded is JSON as Go values, numbers with their digits.
func decoded(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// matches applies IAM's wildcards, * and ?.
func matches(pattern, s string) bool {
	if !strings.ContainsAny(pattern, "*?") {
		return pattern == s
	}
	re := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(pattern))
	is, err := regexp.MatchString("^(?s:"+re+")$", s)
	return err == nil && is
}
