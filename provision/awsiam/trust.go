package awsiam

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	trustLimit  = 2048  // characters, the account's quota L-C07B4B0D unless raised
	inlineLimit = 10240 // characters, no quota raises it
	assumeRole  = "sts:AssumeRoleWithWebIdentity"
)

func (t Trust) limit() int {
	if t.MaxLength > 0 {
		return t.MaxLength
	}
	return trustLimit
}

// statement is our own: these subjects, with a token for one of these audiences. Without :aud, any token that the
// cluster issues for the service account would do, also one that a pod handed to another service.
func (t Trust) statement(subjects []string) json.RawMessage {
	type conditions map[string][]string
	return asJSON(struct {
		Effect    string
		Principal map[string]string
		Action    string
		Condition map[string]conditions
	}{
		Effect:    "Allow",
		Principal: map[string]string{"Federated": t.ProviderARN},
		Action:    assumeRole,
		Condition: map[string]conditions{"StringEquals": {
			hostPath(t.Issuer) + ":aud": slices.Compact(slices.Sorted(slices.Values(t.Audiences))),
			hostPath(t.Issuer) + ":sub": slices.Compact(slices.Sorted(slices.Values(subjects))),
		}},
	})
}

// document is a trust policy of our own statement alone.
func (t Trust) document(subjects []string) document {
	return document{Version: policyVersion, Statement: []json.RawMessage{t.statement(subjects)}}
}

// isOurs tells whether a statement lets this provider's tokens in, and nobody else. A Deny, another action or a
// second principal is somebody's own work: replacing it could let more in than they meant.
func (s statement) isOurs(providerARN string) bool {
	actions := s.Elements["Action"]
	return s.Effect == "Allow" && len(s.Elements) == 1 && len(actions) == 1 && strings.EqualFold(actions[0], assumeRole) &&
		len(s.Principal) == 1 && slices.Equal(s.Principal["Federated"], []string{providerARN})
}

// split is a trust policy seen from one provider.
type split struct {
	ours    []statement
	foreign []statement
	rest    []json.RawMessage // the foreign ones as they are written
	at      int               // how many foreign ones stand before our first
}

func (d document) split(providerARN string) (split, error) {
	sp := split{at: -1}
	for _, raw := range d.Statement {
		s, err := parseStatement(raw)
		if err != nil {
			return split{}, err
		}
		if s.isOurs(providerARN) {
			if sp.at < 0 {
				sp.at = len(sp.rest)
			}
			sp.ours = append(sp.ours, s)
			continue
		}
		sp.foreign = append(sp.foreign, s)
		sp.rest = append(sp.rest, raw)
	}
	if sp.at < 0 {
		sp.at = len(sp.rest)
	}
	return sp, nil
}

// with sets our statement and leaves the foreign ones as and where they are. The diff is empty if d means that already.
func (d document) with(t Trust, subjects []string) (document, []string, error) {
	sp, err := d.split(t.ProviderARN)
	if err != nil {
		return document{}, nil, err
	}
	raw := t.statement(subjects)
	want, err := parseStatement(raw)
	if err != nil {
		return document{}, nil, err
	}
	if len(sp.ours) == 1 && sp.ours[0].key() == want.key() {
		return d, nil, nil
	}
	diff := diffLines(trustLines(sp.ours), trustLines([]statement{want}))
	if len(diff) == 0 {
		diff = []string{"- a second statement for " + t.ProviderARN + ", or one in another spelling"}
	}
	d.Statement = slices.Insert(slices.Clone(sp.rest), sp.at, raw)
	return d, diff, nil
}

// without takes our statements away. A document without any statement left is one that IAM refuses.
func (d document) without(providerARN string) (document, []string, error) {
	sp, err := d.split(providerARN)
	if err != nil {
		return document{}, nil, err
	}
	d.Statement = sp.rest
	return d, diffLines(trustLines(sp.ours), nil), nil
}

// trustLines are what statements of a trust policy say, readable: who, and under which conditions each.
func trustLines(statements []statement) map[string]bool {
	out := map[string]bool{}
	for _, s := range statements {
		who := "trust " + strings.Join(s.principals(), ", ")
		out[who] = true
		for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
			for key, values := range s.Condition[operator] {
				for _, v := range values {
					out[fmt.Sprintf("%s if %s %s %s", who, operator, key, v)] = true
				}
			}
		}
	}
	return out
}

// diffLines lists what goes, then what comes.
func diffLines(was, is map[string]bool) []string {
	var out []string
	for _, l := range without(was, is) {
		out = append(out, "- "+l)
	}
	for _, l := range without(is, was) {
		out = append(out, "+ "+l)
	}
	return out
}

// others names whom else a trust policy lets in, or shuts out.
func (sp split) others() []string {
	var out []string
	for _, s := range sp.foreign {
		out = append(out, strings.Join(s.principals(), ", "))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// moved rewrites a statement for From's provider into one for To's: the same subjects, the same conditions, under
// To's name. Conditions on an audience stay what they are; where there is none, To's audiences are required.
func moved(raw json.RawMessage, from, to Trust) (json.RawMessage, error) {
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
			renamed[key] = v
		}
		conditions[operator] = renamed
	}
	if !aud && !denies(members["Effect"]) {
		requireAudience(conditions, to)
	}
	members["Principal"] = asJSON(map[string]string{"Federated": to.ProviderARN})
	members["Condition"] = asJSON(conditions)
	return asJSON(members), nil
}

// denies: a Deny for tokens of one audience only would let the others in.
func denies(effect json.RawMessage) bool { return string(bytes.TrimSpace(effect)) == `"Deny"` }

func requireAudience(conditions map[string]map[string]json.RawMessage, to Trust) {
	if conditions["StringEquals"] == nil {
		conditions["StringEquals"] = map[string]json.RawMessage{}
	}
	conditions["StringEquals"][hostPath(to.Issuer)+":aud"] = asJSON(slices.Sorted(slices.Values(to.Audiences)))
}

// alongside gives d, for each statement that names From (also a Deny, also one with others beside From), the same for
// To, unless it is there. Nothing goes.
func (d document) alongside(from, to Trust) (document, []string, error) {
	have, err := d.keys()
	if err != nil {
		return document{}, nil, err
	}
	var added []statement
	for _, raw := range d.Statement {
		s, err := parseStatement(raw)
		if err != nil {
			return document{}, nil, err
		}
		if !slices.Contains(s.Principal["Federated"], from.ProviderARN) {
			continue
		}
		second, err := moved(raw, from, to)
		if err != nil {
			return document{}, nil, err
		}
		if s, err = parseStatement(second); err != nil {
			return document{}, nil, err
		}
		if !have[s.key()] {
			have[s.key()] = true
			added = append(added, s)
			d.Statement = append(slices.Clip(d.Statement), second)
		}
	}
	return d, diffLines(nil, trustLines(added)), nil
}
