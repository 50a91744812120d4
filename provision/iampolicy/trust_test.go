package iampolicy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const (
	oldARN = "arn:aws:iam::111122223333:oidc-provider/old.example.com"
	newARN = "arn:aws:iam::111122223333:oidc-provider/new.example.com/a"
	subA   = "system:serviceaccount:ns:a"
	subB   = "system:serviceaccount:ns:b"
)

func oldTrust() Trust {
	return Trust{ProviderARN: oldARN, Issuer: "https://old.example.com", Audiences: []string{"openshift"}}
}

func newTrust() Trust {
	return Trust{ProviderARN: newARN, Issuer: "https://new.example.com/a", Audiences: []string{"sts.amazonaws.com", "openshift"}}
}

// What ccoctl writes, and what people write beside it.
const (
	ccoctlStatement = `{ "Effect": "Allow", "Principal": { "Federated": "` + oldARN + `" }, "Action": "sts:AssumeRoleWithWebIdentity", ` +
		`"Condition":  { "StringEquals": { "old.example.com:sub": [ "` + subA + `"  ] } } }`
	adminStatement = `{"Sid":"break <glass> & go", "Effect":"Allow",  "Principal":{"AWS":"arn:aws:iam::111122223333:root"},"Action":` +
		`"sts:AssumeRole"}`
	denyStatement = `{"Effect":"Deny","Principal":{"Federated":"` + oldARN +
		`"},"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringLike":{"old.example.com:sub":"*:evil"}}}`
	ourStatement = `{"Effect":"Allow","Principal":{"Federated":"` + newARN +
		`"},"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":` +
		`{"new.example.com/a:aud":["openshift","sts.amazonaws.com"],"new.example.com/a:sub":["` + subA + `","` + subB + `"]}}}`
)

func policyOf(statements ...string) string {
	return `{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`
}

func TestOnlyOurOwnStatementIsSet(t *testing.T) {
	loose := strings.Replace(ourStatement, "StringEquals", "StringLike", 1)
	shared := strings.Replace(ourStatement, `"`+newARN+`"`, `["`+newARN+`","`+oldARN+`"]`, 1)
	for _, tt := range []struct {
		name, have, want string
		diff             []string // prefixes of lines; none: no change
	}{
		{name: "there", have: policyOf(adminStatement, ourStatement), want: policyOf(adminStatement, ourStatement)},
		{name: "there, written otherwise", have: policyOf(strings.NewReplacer(`"`+subA+`","`+subB+`"`, `"`+subB+`","`+subA+`","`+subA+`"`,
			`:"sts:AssumeRoleWithWebIdentity"`, `:["sts:AssumeRoleWithWebIdentity"]`).Replace(ourStatement))},
		{name: "missing: the old issuer's stays", have: policyOf(ccoctlStatement, adminStatement), want: policyOf(ccoctlStatement,
			adminStatement, ourStatement),
			diff: []string{"+ " + ourStatement}},
		{name: "loosened", have: policyOf(loose, adminStatement), want: policyOf(ourStatement, adminStatement),
			diff: []string{"- " + loose, "+ " + ourStatement}},
		{name: "another service account", have: policyOf(strings.Replace(ourStatement, "ns:b", "ns:c", 1)), want: policyOf(ourStatement),
			diff: []string{"- " + strings.Replace(ourStatement, "ns:b", "ns:c", 1), "+ " + ourStatement}},
		{name: "twice", have: policyOf(ourStatement, adminStatement, ourStatement), want: policyOf(ourStatement, adminStatement),
			diff: []string{"- a second statement"}},
		{name: "a statement that we share is not ours", have: policyOf(shared), want: policyOf(shared, ourStatement),
			diff: []string{"+"}},
		{name: "a Deny is not ours", have: policyOf(strings.Replace(ourStatement, "Allow", "Deny", 1)),
			want: policyOf(strings.Replace(ourStatement, "Allow", "Deny", 1), ourStatement), diff: []string{"+"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			have := parsed(t, tt.have)
			got, diff := have.With(newTrust(), []string{subB, subA})
			if len(diff) != len(tt.diff) || !slices.EqualFunc(diff, tt.diff, strings.HasPrefix) {
				t.Errorf("diff:\n%s", strings.Join(diff, "\n"))
			}
			if want := tt.want; want != "" && got.String() != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if _, diff := got.With(newTrust(), []string{subA, subB, subB}); len(diff) > 0 {
				t.Errorf("a second time: %q", diff)
			}
		})
	}
}

func TestAllThatNamesAProviderIsTaken(t *testing.T) {
	rest, diff := parsed(t, policyOf(denyStatement, ccoctlStatement, ourStatement, adminStatement)).Without(oldARN)
	if want := policyOf(ourStatement, adminStatement); rest.String() != want || len(diff) != 2 {
		t.Errorf("got %s, %q", rest, diff)
	}
	if rest, diff := parsed(t, policyOf(ccoctlStatement)).Without(oldARN); !rest.Empty() || len(diff) == 0 {
		t.Errorf("got %s, %q", rest, diff)
	}
}

func TestASecondIssuerIsTrustedLikeTheFirst(t *testing.T) {
	const moved = `{"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{"new.example.com/a:aud":["openshift",` +
		`"sts.amazonaws.com"],` +
		`"new.example.com/a:sub":"` + subA + `"}},"Effect":"Allow","Principal":{"Federated":"` + newARN + `"}}`
	withAud := strings.Replace(ccoctlStatement, `"StringEquals": {`,
		`"IpAddress":{"aws:SourceIp":"192.0.2.0/24"},"StringLike": {"old.example.com:aud":"only",`, 1)
	for _, tt := range []struct {
		name, have, want string
	}{
		{"ccoctl's", policyOf(ccoctlStatement, adminStatement), policyOf(ccoctlStatement, adminStatement, moved)},
		{"there already", policyOf(ccoctlStatement, moved), policyOf(ccoctlStatement, moved)},
		{"there with more: the old one's is added, nothing goes", policyOf(ccoctlStatement, ourStatement), policyOf(ccoctlStatement,
			ourStatement, moved)},
		{"its own conditions go along", policyOf(withAud), policyOf(withAud,
			`{"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"IpAddress":{"aws:SourceIp":"192.0.2.0/24"},`+
				`"StringLike":{"new.example.com/a:aud":"only","new.example.com/a:sub":["`+subA+`"]}},"Effect":"Allow","Principal":{"Federated":`+
				`"`+newARN+`"}}`)},
		{"what is refused stays refused", policyOf(denyStatement, ccoctlStatement), policyOf(denyStatement, ccoctlStatement,
			`{"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringLike":{"new.example.com/a:sub":"*:evil"}},"Effect":"Deny",`+
				`"Principal":{"Federated":"`+newARN+`"}}`, moved)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, added, rest := parsed(t, tt.have).Alongside(oldTrust(), newTrust())
			if len(rest) > 0 || got.String() != tt.want || (len(added) == 0) != (tt.have == tt.want) {
				t.Errorf("got\n%s\nwant\n%s\n%q", got, tt.want, added)
			}
			if again, added, _ := got.Alongside(oldTrust(), newTrust()); len(added) > 0 || again.String() != got.String() {
				t.Errorf("a second time: %s, %q", again, added)
			}
		})
	}
}

// Whatever others wrote, they find it where and as they left it.
func TestStatementsOfOthersStayByteForByte(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		others := []string{adminStatement, ccoctlStatement, denyStatement, strings.Replace(adminStatement, "root", "role/x", 1)}
		r.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		others = others[:1+r.IntN(len(others))]
		have := slices.Clone(others)
		for range r.IntN(3) {
			have = slices.Insert(have, r.IntN(len(have)+1), ourStatement)
		}
		d := parsed(t, policyOf(have...))
		set, _ := d.With(newTrust(), []string{subA})
		taken, _ := set.Without(newARN)
		if taken.String() != policyOf(others...) || len(set.statements) != len(others)+1 || d.String() != policyOf(have...) {
			t.Fatalf("seed %d: %s\nbecame %s\nthen %s", seed, d, set, taken)
		}
	}
}

// Whatever form a trust in the old issuer has, the second statement says the same of the new one, and taking the old one
// away leaves nothing that names it; or it is named as what stops the move.
func TestTrustOfAnyFormIsMovedWholeOrNamed(t *testing.T) {
	const condition = `"Condition":{"StringEquals":{"old.example.com:sub":"s","old.example.com:aud":"a"}}`
	allow := func(principal, action, condition string) string {
		return `{"Effect":"Allow","Principal":` + principal + `,` + action + `,` + condition + `}`
	}
	const old, assume = `{"Federated":"` + oldARN + `"}`, `"Action":"sts:AssumeRoleWithWebIdentity"`
	for _, tt := range []struct {
		name, have string
		want       []string // all of it in the second statement
		left       string   // the first, once the old provider is taken out; empty for nothing
		stuck      string
	}{
		{name: "a list of actions", have: allow(old, `"Action":["sts:AssumeRoleWithWebIdentity","sts:TagSession"]`, condition),
			want: []string{`"Action":["sts:AssumeRoleWithWebIdentity","sts:TagSession"]`, `"new.example.com/a:sub":"s"`, `"new.example.com/a:aud":"a"`}},
		{name: "an action with a wildcard", have: allow(old, `"Action":"sts:AssumeRole*"`, condition), want: []string{`"Action":"sts:AssumeRole*"`}},
		{name: "all actions but one", have: allow(old, `"NotAction":"sts:TagSession"`, condition), want: []string{`"NotAction":"sts:TagSession"`}},
		{name: "StringLike", have: allow(old, assume, `"Condition":{"StringLike":{"old.example.com:sub":"s:*"}}`),
			want: []string{`"StringLike":{"new.example.com/a:sub":"s:*"}`, `"StringEquals":{"new.example.com/a:aud":["openshift","sts.amazonaws.com"]}`}},
		{name: "ForAnyValue", have: allow(old, assume, `"Condition":{"ForAnyValue:StringEquals":{"old.example.com:aud":["x","y"]},"Null":{"old.example.com:amr":"true"}}`),
			want: []string{`"ForAnyValue:StringEquals":{"new.example.com/a:aud":["x","y"]}`, `"Null":{"new.example.com/a:amr":"true"}`}},
		{name: "no condition at all", have: allow(old, assume, `"Sid":"x"`), want: []string{`"new.example.com/a:aud":["openshift","sts.amazonaws.com"]`}},
		{name: "only tags of a session", have: allow(old, `"Action":"sts:TagSession"`, `"Sid":"x"`), want: []string{`"Action":"sts:TagSession"`}},
		{name: "a list with another provider", have: allow(`{"Federated":["`+oldARN+`","arn:aws:iam::123456789012:oidc-provider/x.example.com"]}`, assume, condition),
			want: []string{`"Principal":{"Federated":"` + newARN + `"}`},
			left: `"Principal":{"Federated":"arn:aws:iam::123456789012:oidc-provider/x.example.com"}`},
		{name: "beside people", have: allow(`{"Federated":"`+oldARN+`","AWS":"arn:aws:iam::123456789012:root"}`, `"Action":["sts:AssumeRole","sts:AssumeRoleWithWebIdentity"]`, condition),
			want: []string{`"Principal":{"Federated":"` + newARN + `"}`}, left: `"Principal":{"AWS":"arn:aws:iam::123456789012:root"}`},
		{name: "a variable and a provider in values", have: allow(old, assume,
			`"Condition":{"StringEquals":{"old.example.com:aud":"a","aws:FederatedProvider":"`+oldARN+`","sts:RoleSessionName":["${old.example.com:sub}"]}}`),
			want: []string{`"aws:FederatedProvider":"` + newARN + `"`, `"sts:RoleSessionName":["${new.example.com/a:sub}"]`}},
		{name: "a Deny", have: `{"Effect":"Deny","Principal":` + old + `,` + assume + `,"Condition":{"StringNotEquals":{"old.example.com:sub":"s"}}}`,
			want: []string{`"Effect":"Deny"`, `"StringNotEquals":{"new.example.com/a:sub":"s"}`}},
		{name: "all but the old one", have: `{"Effect":"Deny","NotPrincipal":` + old + `,` + assume + `}`, stuck: "statement 1 mentions it elsewhere"},
		{name: "all but both", have: `{"Effect":"Deny","NotPrincipal":{"Federated":["` + oldARN + `","` + newARN + `"]},` + assume + `}`},
		{name: "everybody, if not of the old one", have: `{"Effect":"Deny","Principal":"*",` + assume + `,"Condition":{"StringNotEquals":{"old.example.com:sub":"s"}}}`,
			stuck: "statement 1 mentions it elsewhere"},
		{name: "everybody, if not by the old provider", have: `{"Effect":"Deny","Principal":"*","Action":"sts:*","Condition":{"ArnNotLike":{"aws:FederatedProvider":"arn:aws:iam::*:oidc-provider/old.*"}}}`,
			stuck: "statement 1 mentions it elsewhere"},
		{name: "everybody, if of neither", have: `{"Effect":"Deny","Principal":"*","Action":"sts:*","Condition":{"StringNotEquals":{"aws:FederatedProvider":["` + oldARN + `","` + newARN + `"]}}}`},
		{name: "a pattern of providers", have: allow(old, assume, `"Condition":{"ArnLike":{"aws:FederatedProvider":"arn:aws:iam::*:oidc-provider/old.*"}}`),
			stuck: "statement 1 mentions it in a condition of a form that cannot be copied"},
		{name: "a pattern that fits both", have: allow(old, assume, `"Condition":{"ArnLike":{"aws:FederatedProvider":"arn:aws:iam::*:oidc-provider/*"},"StringEquals":{"old.example.com:aud":"a"}}`),
			want: []string{`"aws:FederatedProvider":"arn:aws:iam::*:oidc-provider/*"`}},
		{name: "a key in another case", have: allow(old, assume, `"Condition":{"StringEquals":{"OLD.example.com:sub":"s"}}`), stuck: "statement 1 mentions it in a condition"},
		{name: "a neighbour whose name begins alike", have: allow(`{"Federated":"`+oldARN+`/b"}`, assume, `"Condition":{"StringEquals":{"old.example.com/b:sub":"s"}}`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := parsed(t, policyOf(tt.have))
			both, _, rest := d.Alongside(oldTrust(), newTrust())
			if tt.stuck != "" {
				if len(rest) != 1 || !strings.HasPrefix(rest[0], tt.stuck) || len(both.statements) != 1 {
					t.Errorf("stuck: %v; it became %s", rest, both)
				}
				return
			}
			if len(rest) > 0 || len(both.statements) != 1+min(1, len(tt.want)) {
				t.Fatalf("stuck: %v; it became %s", rest, both)
			}
			for _, want := range tt.want {
				if got := string(both.statements[1].raw); !strings.Contains(got, want) || strings.Contains(got, "old.") {
					t.Errorf("the second statement does not have %s: %s", want, got)
				}
			}
			if len(tt.want) == 0 {
				return
			}
			finished, _ := both.Without(oldARN)
			if finished.Names(oldARN) || len(finished.statements) != 1+min(1, len(tt.left)) ||
				!strings.Contains(finished.String(), tt.left) || !strings.Contains(finished.String(), string(both.statements[1].raw)) {
				t.Errorf("finished: %s", finished)
			}
		})
	}
}

// Only a trust like our own, in another issuer of the same account, is nothing to report.
func TestWhoElseIsTrusted(t *testing.T) {
	other := strings.ReplaceAll(ourStatement, "new.example.com/a", "x.example.com")
	for raw, issuer := range map[string]bool{
		other: true,
		strings.ReplaceAll(other, "111122223333", "210987654321"): false,
		strings.Replace(other, "Allow", "Deny", 1):                false,
		adminStatement: false,
		`{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::111122223333:oidc-provider/x"},"Action":"sts:AssumeRoleWithWebIdentity"}`:                                          false,
		`{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::111122223333:oidc-provider/x"},"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringLike":{"x:sub":"*"}}}`: false,
	} {
		s, err := parseStatement([]byte(raw))
		if got := s.isOtherIssuer("arn:aws:iam::111122223333:oidc-provider/"); err != nil || got != issuer {
			t.Errorf("%s: %t, %v", raw, got, err)
		}
	}
}

func TestSubjectsAreThoseThatOurStatementsLetIn(t *testing.T) {
	for have, want := range map[string][]string{
		policyOf(adminStatement, ccoctlStatement):                                                                           nil,
		policyOf(ourStatement, ourStatement, ccoctlStatement):                                                               {subA, subB},
		policyOf(strings.NewReplacer("StringEquals", "StringLike", "ns:b", "ns:*", "a:sub", "a:Sub").Replace(ourStatement)): {"system:serviceaccount:ns:*", subA},
		policyOf(strings.Replace(ourStatement, "StringEquals", "StringNotEquals", 1)):                                       {"*"},
		policyOf(strings.Replace(ourStatement, `"Allow"`, `"Deny"`, 1)):                                                     nil,
	} {
		if got := parsed(t, have).Subjects(newTrust()); !slices.Equal(got, want) {
			t.Errorf("%s lets in %q, want %q", have, got, want)
		}
	}
}

// Anyone who is trusted already stays so, in whatever form somebody wrote that.
func TestIncludingTakesNoTrustAway(t *testing.T) {
	mine := strings.Replace(ourStatement, `"`+subA+`","`+subB+`"`, `"`+subA+`"`, 1)
	other := strings.Replace(mine, subA, "system:serviceaccount:ns:c", 1)
	both := strings.Replace(ourStatement, subB, "system:serviceaccount:ns:c", 1)
	loose := strings.Replace(other, "StringEquals", "StringLike", 1)
	open := `{"Effect":"Allow","Principal":{"Federated":"` + newARN + `"},"Action":"sts:AssumeRoleWithWebIdentity"}`
	elsewhere := strings.Replace(other, `"openshift","sts.amazonaws.com"`, `"vault"`, 1)
	anyAudience := strings.Replace(mine, `"new.example.com/a:aud":["openshift","sts.amazonaws.com"],`, "", 1)
	more := strings.Replace(both, `"openshift",`, `"vault","openshift",`, 1)
	for _, tt := range []struct{ name, have, want string }{
		{"nobody", policyOf(adminStatement), policyOf(adminStatement, mine)},
		{"the wanted one", policyOf(mine), policyOf(mine)},
		{"one more", policyOf(ourStatement, adminStatement), policyOf(ourStatement, adminStatement)},
		{"another", policyOf(other, adminStatement), policyOf(both, adminStatement)},
		{"in two statements", policyOf(mine, other), policyOf(both)},
		{"by a pattern", policyOf(loose), policyOf(loose, mine)},
		{"everybody", policyOf(open), policyOf(open, mine)},
		{"the wanted one, for any audience", policyOf(anyAudience), policyOf(anyAudience, mine)},
		{"only another audience", policyOf(elsewhere), policyOf(more)},
		{"another audience beside", policyOf(elsewhere, mine), policyOf(elsewhere, mine)},
	} {
		have, err := Parse(tt.have)
		if err != nil {
			t.Fatal(err)
		}
		got, _, extra := have.Including(newTrust(), []string{subA})
		beside := len(got.ours(newARN)) - 1
		if len(extra) != beside {
			t.Errorf("%s: %q describes %d statements", tt.name, extra, beside)
		}
		want, err := Parse(tt.want)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(got.statements, want.statements, func(a, b statement) bool { return a.line() == b.line() }) {
			t.Errorf("%s: %s, want %s", tt.name, asJSON(got), tt.want)
		}
		if again, diff, _ := got.Including(newTrust(), []string{subA}); len(diff) > 0 {
			t.Errorf("%s: a second time %q to %s", tt.name, diff, asJSON(again))
		}
	}
}
