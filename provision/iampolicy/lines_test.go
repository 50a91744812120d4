package iampolicy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomly makes policies from few words, so that two of them are often alike in all but what a careless line would leave out.
type randomly struct{ *rand.Rand }

func (r randomly) one(words ...string) string { return words[r.IntN(len(words))] }

func (r randomly) some(words ...string) []string {
	r.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
	some := words[:1+r.IntN(2)]
	slices.Sort(some)
	return some
}

func (r randomly) conditions() map[string]map[string][]string {
	c := map[string]map[string][]string{}
	for range r.IntN(3) {
		c[r.one("StringEquals", "StringLike", "StringNotEquals")] = map[string][]string{
			r.one("i.example.com:aud", "i.example.com:sub", "j.example.com:sub", "aws:x", "i.example.com:is a"): r.some("a", "b", "a or b", "a, and sub is b", `"a"`, "or", "a\u200b", ""),
		}
	}
	return c
}

func (r randomly) trust() map[string]any {
	return map[string]any{
		"Effect": r.one("Allow", "Allow", "Deny"),
		r.one("Principal", "Principal", "NotPrincipal"): map[string][]string{
			r.one("Federated", "Federated", "AWS", "Service"): r.some("arn:aws:iam::111122223333:oidc-provider/i.example.com", "arn:aws:iam::111122223333:oidc-provider/j.example.com", "everybody", "*", "AWS:x", "x"),
		},
		r.one("Action", "Action", "NotAction"): r.some("sts:AssumeRoleWithWebIdentity", "sts:TagSession"),
		"Condition":                            r.conditions(),
	}
}

func (r randomly) permission() map[string]any {
	return map[string]any{
		"Effect":                               r.one("Allow", "Allow", "Deny"),
		r.one("Action", "Action", "NotAction"): r.some("s:A", "s:B", "all but s:A", "s:A, s:B"),
		r.one("Resource", "Resource", "NotResource"): r.some("*", "arn:aws:s3:::b", "all but *", "* when aws:x is a", "arn:aws:s3:::b, *"),
		"Condition": r.conditions(),
	}
}

// document writes statements as a policy, and its meaning in a form that other policies of the same meaning share.
func (r randomly) document(statement func() map[string]any, meaning func(map[string]any) []string) (Document, string) {
	var list []map[string]any
	var means []string
	for range 1 + r.IntN(2) {
		s := statement()
		list, means = append(list, s), append(means, meaning(s)...)
	}
	slices.Sort(means)
	text, err := json.Marshal(map[string]any{"Version": version, "Statement": list})
	if err != nil {
		panic(err)
	}
	d, err := Parse(string(text))
	if err != nil {
		panic(err)
	}
	return d, strings.Join(slices.Compact(means), "\n")
}

// Who approves a change reads its lines: no two policies that mean different things may have the same.
func TestDifferentPoliciesHaveDifferentLines(t *testing.T) {
	t.Parallel()
	r := randomly{rand.New(rand.NewPCG(24, 4))}
	whole := func(s map[string]any) []string { return []string{string(asJSON(s))} }
	eachGrant := func(s map[string]any) []string {
		var out []string
		actions, resources := [][]string{}, [][]string{}
		for name, lists := range map[string]*[][]string{"Action": &actions, "Resource": &resources} {
			if values, ok := s[name].([]string); ok {
				for _, v := range values {
					*lists = append(*lists, []string{name, v})
				}
			} else {
				*lists = append(*lists, append([]string{"Not"}, s["Not"+name].([]string)...))
			}
		}
		for _, a := range actions {
			for _, on := range resources {
				out = append(out, string(asJSON([]any{s["Effect"], a, on, s["Condition"]})))
			}
		}
		return out
	}
	for name, kind := range map[string]struct {
		statement func() map[string]any
		meaning   func(map[string]any) []string
		lines     func(Document) []string
	}{
		"trust":       {r.trust, whole, func(d Document) []string { return diffLines(nil, trustLines(d.statements)) }},
		"permissions": {r.permission, eachGrant, permissionLines},
	} {
		means := map[string]string{} // by lines
		for range 2000 {
			d, meaning := r.document(kind.statement, kind.meaning)
			lines := strings.Join(kind.lines(d), "\n")
			if other, ok := means[lines]; ok && other != meaning {
				t.Fatalf("%s: two policies have the lines\n%s\nThey are\n%s\nand\n%s", name, lines, other, meaning)
			}
			means[lines] = meaning
		}
	}
}

func permissionLines(d Document) []string {
	c, err := Replace(Document{}, d)
	if err != nil {
		return []string{fmt.Sprint(err)}
	}
	return c.Diff
}
