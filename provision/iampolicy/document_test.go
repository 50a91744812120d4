package iampolicy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func parsed(t *testing.T, text string) Document {
	t.Helper()
	d, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

func TestComparePutsAdditionsBeforeRemovals(t *testing.T) {
	const ab, bc = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s:A","s:B"],"Resource":"*"}]}`,
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s:B","s:C"],"Resource":"*"}]}`
	big := func(action string) string {
		return fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":%q,"Resource":%q}]}`,
			action, "arn:aws:s3:::"+strings.Repeat("x", 6000))
	}
	deny := func(action string) string {
		return strings.Replace(ab, `"Statement":[`, `"Statement":[{"Effect":"Deny","Action":"`+action+`","Resource":"*"},`, 1)
	}
	for _, tt := range []struct {
		name, old, now    string
		added, gone, lost int    // lines
		extend            string // what Extend says instead of adding what is added and keeping what goes
	}{
		{name: "the same", old: ab, now: ab},
		{name: "the same, said otherwise", old: ab, now: `{"Version":"2012-10-17","Statement":[
			{"Resource":["*"],"Action":"s:B","Effect":"Allow"},{"Sid":"x","Effect":"Allow","Action":["s:A"],"Resource":["*","*"]}]}`},
		{name: "one comes, one goes", old: ab, now: bc, added: 1, gone: 1, lost: 1},
		{name: "one comes", old: ab, now: strings.Replace(ab, `"s:B"`, `"s:B","s:C"`, 1), added: 1},
		{name: "one goes", old: ab, now: strings.Replace(ab, `,"s:B"`, ``, 1), gone: 1, lost: 1},
		{name: "both do not fit together", old: big("s:A"), now: big("s:B"), added: 1, gone: 1, lost: 1, extend: "where AWS allows 10240"},
		{name: "a refusal comes: that is a loss", old: ab, now: deny("s:A"), added: 1, lost: 1, extend: "takes permissions away"},
		{name: "a refusal goes: that is none", old: deny("s:A"), now: ab, gone: 1},
		{name: "a refusal changes", old: deny("s:A"), now: strings.Replace(deny("s:B"), `"s:B"]`, `"s:B","s:C"]`, 1), added: 2, gone: 1, lost: 1,
			extend: "takes permissions away"},
		{name: "two values are not one with a comma", old: strings.Replace(ab, `"*"}`, `"*","Condition":{"StringEquals":{"k":["a","b"]}}}`, 1),
			now: strings.Replace(ab, `"*"}`, `"*","Condition":{"StringEquals":{"k":"a, b"}}}`, 1), added: 1, gone: 1, lost: 1},
		{name: "a condition is another permission", old: ab, now: strings.Replace(ab, `"*"}`, `"*","Condition":{"Bool":{"k":true}}}`, 1),
			added: 1, gone: 1, lost: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			old, now := parsed(t, tt.old), parsed(t, tt.now)
			c, err := Replace(old, now)
			if err != nil || len(c.Diff) != tt.added+tt.gone || len(c.Lost) != tt.lost {
				t.Fatalf("Replace: %+v, %v", c, err)
			}
			if again, err := Replace(parsed(t, c.Text), now); err != nil || len(again.Diff) > 0 {
				t.Errorf("Replace again: %+v, %v", again, err)
			}
			e, err := Extend(old, now)
			if tt.extend != "" {
				if err == nil || !strings.Contains(err.Error(), tt.extend) {
					t.Errorf("Extend: %+v, %v", e, err)
				}
				return
			}
			if err != nil || len(e.Diff) != tt.added || len(e.Kept) != tt.gone || len(e.Lost) > 0 {
				t.Fatalf("Extend: %+v, %v", e, err)
			}
			both := parsed(t, e.Text).grants()
			if missing := len(without(old.grants(), both)) + len(without(now.grants(), both)); missing > 0 {
				t.Errorf("Extend lost %d grants", missing)
			}
			if again, err := Extend(parsed(t, e.Text), now); err != nil || len(again.Diff) > 0 {
				t.Errorf("Extend again: %+v, %v", again, err)
			}
		})
	}
}

// However a policy is written, it is the same policy; and one that says anything else is not.
func TestPoliciesAreComparedByMeaning(t *testing.T) {
	const other = `{"Effect":"Allow","Action":"other:Action","Resource":"*"}`
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		statements := randomStatements(r)
		text := rewrite(r, statements)
		d := parsed(t, text)
		c, err := Replace(d, parsed(t, rewrite(r, statements)))
		if err != nil || len(c.Diff)+len(c.Lost) > 0 {
			t.Fatalf("seed %d: %s differs from itself: %+v, %v", seed, text, c, err)
		}
		more := slices.Concat(statements, []plain{{"Allow", []string{"other:Action"}, []string{"*"}, nil}})
		c, err = Replace(d, parsed(t, rewrite(r, more)))
		if err != nil || !slices.Equal(c.Diff, []string{"+ " + other}) || len(c.Lost) > 0 {
			t.Fatalf("seed %d: %+v, %v", seed, c, err)
		}
		c, err = Replace(parsed(t, rewrite(r, more)), d)
		if err != nil || !slices.Equal(c.Diff, []string{"- " + other}) ||
			!slices.Equal(c.Lost, []string{other}) {
			t.Fatalf("seed %d: %+v, %v", seed, c, err)
		}
	}
}

type plain struct {
	effect             string
	actions, resources []string
	condition          map[string]map[string][]string
}

func randomStatements(r *rand.Rand) []plain {
	pick := func(prefix string) []string {
		var out []string
		for range 1 + r.IntN(3) {
			out = append(out, fmt.Sprintf("%s%d", prefix, r.IntN(9)))
		}
		return out
	}
	var out []plain
	for range 1 + r.IntN(4) {
		s := plain{effect: "Allow", actions: pick("svc:Action"), resources: pick("arn:aws:s3:::b /+%<&>")}
		if r.IntN(4) == 0 {
			s.effect = "Deny"
		}
		if r.IntN(2) == 0 {
			s.condition = map[string]map[string][]string{"StringEquals": {"k:a": pick("é"), "k:b": pick("v")}, "Bool": {"k:c": {"true"}},
				"NumericLessThan": {"k:d": {"3.50"}}}
		}
		out = append(out, s)
	}
	return out
}

// rewrite writes statements in one of the ways that mean the same: order, lists or scalars, doubles, labels, white
// space, splitting, encoding.
func rewrite(r *rand.Rand, statements []plain) string {
	var list []json.RawMessage
	for _, s := range statements {
		parts := [][]string{s.actions}
		if len(s.actions) > 1 && r.IntN(2) == 0 {
			parts = [][]string{s.actions[:1], s.actions[1:]}
		}
		for _, actions := range parts {
			list = append(list, statementText(r, s, actions))
		}
	}
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if r.IntN(3) == 0 {
		list = append(list, list[0])
	}
	var statement any = list
	if len(list) == 1 && r.IntN(2) == 0 {
		statement = list[0]
	}
	doc := map[string]any{"Version": "2012-10-17", "Statement": statement}
	out, err := json.Marshal(doc)
	if r.IntN(2) == 0 {
		out, err = json.MarshalIndent(doc, "\t", "  ")
	}
	if err != nil {
		return err.Error() // never: it would not parse
	}
	if r.IntN(2) == 0 {
		return strings.ReplaceAll(url.QueryEscape(string(out)), "+", "%20")
	}
	return string(out)
}

func statementText(r *rand.Rand, s plain, actions []string) json.RawMessage {
	members := []string{fmt.Sprintf(`"Effect":%q`, s.effect), `"Action":` + valuesText(r, actions), `"Resource":` + valuesText(r, s.resources)}
	if r.IntN(3) == 0 {
		members = append(members, fmt.Sprintf(`"Sid":"S%d"`, r.IntN(1000)))
	}
	var operators []string
	for operator, keys := range s.condition {
		var pairs []string
		for k, v := range keys {
			text := valuesText(r, v)
			if operator != "StringEquals" && r.IntN(2) == 0 {
				text = v[0] // true and 3.50 instead of "true" and "3.50"
			}
			pairs = append(pairs, fmt.Sprintf("%q:%s", k, text))
		}
		operators = append(operators, fmt.Sprintf("%q:{%s}", operator, strings.Join(pairs, ",")))
	}
	if len(operators) > 0 {
		members = append(members, `"Condition":{`+strings.Join(operators, ",")+`}`)
	}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return json.RawMessage("{" + strings.Join(members, ",") + "}")
}

func valuesText(r *rand.Rand, values []string) string {
	values = slices.Clone(values)
	if len(values) == 1 && r.IntN(2) == 0 {
		return string(asJSON(values[0]))
	}
	r.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	if r.IntN(3) == 0 {
		values = append(values, values[0])
	}
	return string(asJSON(values))
}

func FuzzParse(f *testing.F) {
	f.Add(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s:A","Condition":{"Bool":{"k":true}}}]}`)
	f.Add(`%7B%22Statement%22%3A%7B%22NotPrincipal%22%3A%7B%22AWS%22%3A%5B%22a%22%5D%7D%7D%7D`)
	f.Add(`{"Statement":{"x":{}}}`)
	f.Add(`{"Id":"x","Statement":[{"Action":[1,null]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(d.String())
		if err != nil || again.String() != d.String() {
			t.Fatalf("%q became %q, then %q: %v", text, d, again, err)
		}
		if c, err := Replace(d, again); err == nil && len(c.Diff)+len(c.Lost) > 0 {
			t.Fatalf("%q differs from itself: %+v", text, c)
		}
	})
}

const (
	judgedIssuer   = "https://oidc.example.com/prod-a"
	judgedProvider = "arn:aws:iam::123456789012:oidc-provider/oidc.example.com/prod-a"
)

func statementFor(effect, provider, action, condition string) string {
	return fmt.Sprintf(`{"Effect":%q,"Principal":{"Federated":%q},"Action":%q,"Condition":{%s}}`, effect, provider, action, condition)
}

func TestAsksFor(t *testing.T) {
	id := Identity{ProviderARN: judgedProvider, Issuer: judgedIssuer}
	asks := func(values string) string {
		return statementFor("Allow", judgedProvider, "sts:AssumeRoleWithWebIdentity", `"StringEquals":{"oidc.example.com/prod-a:aud":`+values+`}`)
	}
	for statements, want := range map[string]string{
		asks(`"b"`):                           "[b]",
		asks(`["c","b"]`) + "," + asks(`"a"`): "[a b c]",
		asks(`"b"`) + "," + statementFor("Allow", judgedProvider, "sts:*", ""):                                  "[]",
		asks(`"b"`) + "," + statementFor("Allow", "arn:aws:iam::1:oidc-provider/x", "sts:*", ""):                "[b]",
		asks(`"b"`) + "," + statementFor("Deny", judgedProvider, "sts:*", ""):                                   "[b]",
		statementFor("Allow", judgedProvider, "sts:*", `"StringNotEquals":{"oidc.example.com/prod-a:aud":"a"}`): "[]",
		statementFor("Allow", judgedProvider, "sts:*", `"StringLike":{"oidc.example.com/prod-a:aud":"a*"}`):     "[]",
	} {
		d, err := Parse(`{"Statement":[` + statements + `]}`)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(d.AsksFor(id, "aud")); got != want {
			t.Errorf("%s: %s, want %s", statements, got, want)
		}
	}
}

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
		"trust":       {r.trust, whole, func(d Document) []string { return lines(d.statements) }},
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
