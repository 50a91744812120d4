package awsiam

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
			diff: []string{"+ trust " + newARN, "+ trust", "+ trust", "+ trust", "+ trust"}},
		{name: "loosened", have: policyOf(loose, adminStatement), want: policyOf(ourStatement, adminStatement),
			diff: []string{"- trust " + newARN + " if StringLike", "- trust", "- trust", "- trust", "+ trust", "+ trust", "+ trust", "+ trust"}},
		{name: "another service account", have: policyOf(strings.Replace(ourStatement, "ns:b", "ns:c", 1)), want: policyOf(ourStatement),
			diff: []string{"- trust " + newARN + " if StringEquals new.example.com/a:sub system:serviceaccount:ns:c", "+ trust " + newARN +
				" if StringEquals new.example.com/a:sub " + subB}},
		{name: "twice", have: policyOf(ourStatement, adminStatement, ourStatement), want: policyOf(ourStatement, adminStatement),
			diff: []string{"- a second statement"}},
		{name: "a statement that we share is not ours", have: policyOf(shared), want: policyOf(shared, ourStatement),
			diff: []string{"+", "+", "+", "+", "+"}},
		{name: "a Deny is not ours", have: policyOf(strings.Replace(ourStatement, "Allow", "Deny", 1)),
			want: policyOf(strings.Replace(ourStatement, "Allow", "Deny", 1), ourStatement), diff: []string{"+", "+", "+", "+", "+"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			have := parsed(t, tt.have)
			got, diff, err := have.with(newTrust(), []string{subB, subA})
			if err != nil {
				t.Fatal(err)
			}
			if len(diff) != len(tt.diff) || !slices.EqualFunc(diff, tt.diff, strings.HasPrefix) {
				t.Errorf("diff:\n%s", strings.Join(diff, "\n"))
			}
			if want := tt.want; want != "" && got.String() != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if _, diff, err := got.with(newTrust(), []string{subA, subB, subB}); err != nil || len(diff) > 0 {
				t.Errorf("a second time: %q, %v", diff, err)
			}
		})
	}
}

func TestOnlyOurOwnStatementIsTaken(t *testing.T) {
	rest, diff, err := parsed(t, policyOf(denyStatement, ccoctlStatement, ourStatement, adminStatement)).without(oldARN)
	if want := policyOf(denyStatement, ourStatement, adminStatement); err != nil || rest.String() != want || len(diff) != 2 {
		t.Errorf("got %s, %q, %v", rest, diff, err)
	}
	if rest, diff, err := parsed(t, policyOf(ccoctlStatement)).without(oldARN); err != nil || len(rest.Statement) > 0 || len(diff) == 0 {
		t.Errorf("got %s, %q, %v", rest, diff, err)
	}
}

func TestASecondIssuerIsTrustedLikeTheFirst(t *testing.T) {
	const moved = `{"Action":"sts:AssumeRoleWithWebIdentity","Condition":{"StringEquals":{"new.example.com/a:aud":["openshift",` +
		`"sts.amazonaws.com"],` +
		`"new.example.com/a:sub":["` + subA + `"]}},"Effect":"Allow","Principal":{"Federated":"` + newARN + `"}}`
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
			got, diff, err := parsed(t, tt.have).alongside(oldTrust(), newTrust())
			if err != nil || got.String() != tt.want || (len(diff) == 0) != (tt.have == tt.want) {
				t.Errorf("got\n%s\nwant\n%s\n%q, %v", got, tt.want, diff, err)
			}
			if again, diff, err := got.alongside(oldTrust(), newTrust()); err != nil || len(diff) > 0 || again.String() != got.String() {
				t.Errorf("a second time: %s, %q, %v", again, diff, err)
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
		set, _, err := d.with(newTrust(), []string{subA})
		if err != nil {
			t.Fatal(err)
		}
		taken, _, err := set.without(newARN)
		if err != nil || taken.String() != policyOf(others...) || len(set.Statement) != len(others)+1 || d.String() != policyOf(have...) {
			t.Fatalf("seed %d: %s\nbecame %s\nthen %s, %v", seed, d, set, taken, err)
		}
	}
}
