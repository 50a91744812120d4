package awsiam_test

import (
	"context"
	"crypto"
	"crypto/elliptic"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/answers"
	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	webtoken "github.com/keypost/keypost/issuer/verify/token"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/iampolicy"
	"github.com/keypost/keypost/provision/webidentity"
	"github.com/keypost/keypost/test/fakeaws"
	"github.com/keypost/keypost/test/keys"
	"github.com/keypost/keypost/test/scene"
)

const (
	roleARN  = "arn:aws:iam::123456789012:role/app"
	provider = "arn:aws:iam::123456789012:oidc-provider/oidc.example.com/c1"
	subject  = "system:serviceaccount:ns:app"
)

// stage is an issuer, an account that knows it, a role that trusts it and a token, in which nothing is wrong until a test
// breaks it.
type stage struct {
	*world
	*scene.Scene
	key crypto.Signer // of the cluster

	role    string         // ARN that is asked for
	claims  map[string]any // of the token
	noToken bool
	stale   bool // the provider has a thumbprint of nobody
	revoked bool // the key that the token was signed with
}

func newStage(t *testing.T, change func(*fakeaws.Options, *stage)) *stage {
	t.Helper()
	s := &stage{Scene: scene.New(t), role: roleARN, key: keys.EC(elliptic.P256(), 1)}
	must(t, keystore.Create(t.Context(), s.Store, storetest.KeySet(t, "c1", s.public(t), storetest.Key(t))))
	o := fakeaws.Options{Dial: s.dial, Roots: s.Site.RootCAs}
	if change != nil {
		change(&o, s)
	}
	s.world = worldOf(t, fakeaws.Start(t, o))
	now := time.Now().Unix()
	s.claims = map[string]any{"iss": issuer, "sub": subject, "aud": []string{"sts.amazonaws.com"}, "iat": now, "nbf": now, "exp": now + 3600}
	return s
}

func (s *stage) public(t *testing.T) keystore.VerificationKey {
	t.Helper()
	public, err := keystore.NewPublic(s.key.Public())
	must(t, err)
	return public
}

// revoke has the cluster's key revoked, and the cluster sign with another one.
func (s *stage) revoke(t *testing.T) {
	t.Helper()
	gone := s.public(t).ID()
	s.key, s.revoked = keys.EC(elliptic.P256(), 2), true
	_, err := keystore.Update(t.Context(), s.Store, "c1", func(set keystore.KeySet) (keystore.KeySet, error) {
		set, err := set.Add(storetest.Change(time.Hour), s.public(t))
		if err != nil {
			return set, err
		}
		return set.Revoke(storetest.Change(2*time.Hour), gone, keystore.RevokeOptions{})
	})
	must(t, err)
}

func (s *stage) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, s.Site.Connect)
}

func (s *stage) token(t *testing.T) string {
	t.Helper()
	by, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.key, KeyID: string(s.public(t).ID())}}, nil)
	must(t, err)
	token, err := jwt.Signed(by).Claims(s.claims).Serialize()
	must(t, err)
	return token
}

// statement is one of a trust policy for the issuer's provider.
func statement(effect, conditions string) string {
	return fmt.Sprintf(`{"Effect":%q,"Principal":{"Federated":%q},"Action":"sts:AssumeRoleWithWebIdentity","Condition":{%s}}`, effect, provider, conditions)
}

const (
	rightAudience = `"oidc.example.com/c1:aud":"sts.amazonaws.com"`
	rightSubject  = `"oidc.example.com/c1:sub":"system:serviceaccount:ns:app"`
	rightTrust    = `"StringEquals":{` + rightAudience + `,` + rightSubject + `}`
)

func (s *stage) makeProvider(t *testing.T, url string, clients ...string) {
	t.Helper()
	in := &iam.CreateOpenIDConnectProviderInput{Url: aws.String(url), ClientIDList: clients}
	if url != issuer || s.stale { // IAM asks the issuer for its certificate if it is given no thumbprint
		in.ThumbprintList = []string{strings.Repeat("ab", 20)}
	}
	_, err := s.hand.CreateOpenIDConnectProvider(t.Context(), in)
	must(t, err)
}

func (s *stage) makeRole(t *testing.T, path string, statements ...string) {
	t.Helper()
	in := &iam.CreateRoleInput{RoleName: aws.String("app"), AssumeRolePolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`)}
	if path != "" {
		in.Path = aws.String(path)
	}
	_, err := s.hand.CreateRole(t.Context(), in)
	must(t, err)
}

// look is what keypost verify does with --role-arn and --token-file.
func (s *stage) look(t *testing.T, token string) []finding.Finding {
	t.Helper()
	a := webidentity.Attempt{Issuer: issuer}
	o := verify.Options{URL: issuer, Network: fetch.Network{RootCAs: s.Site.RootCAs, Dial: s.dial,
		Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, nil
		}}}
	if !s.noToken {
		c := webtoken.Read(token)
		o.Token, a.Subject, a.Audience = token, c.Subject, c.Audiences[0]
	}
	if s.revoked {
		o.Stored = func(ctx context.Context) (keystore.KeySet, error) {
			set, _, err := s.Store.Load(ctx, "c1")
			return set, err
		}
	}
	seen := verify.Examine(t.Context(), o)
	a.Chain, a.PublicCA = seen.Chain, seen.PublicCA
	got, err := webidentity.Verify(t.Context(), s.client, s.role, a)
	must(t, err)
	all := slices.DeleteFunc(append(seen.Findings, got...), func(f finding.Finding) bool {
		return slices.Contains([]string{"not-compared", "address-unasked", "not-cacheable", "slow"}, f.Code) // of this test and its machine
	})
	finding.Sort(all)
	return all
}

// do executes the repair of a finding as it is printed. It returns the token to go on with.
func (s *stage) do(t *testing.T, repair, token string) string {
	t.Helper()
	for _, command := range strings.Split(repair, " && ") {
		switch _, line, found := strings.Cut(command, "aws iam "); {
		case found:
			s.callIAM(t, words(t, line))
		case strings.Contains(command, "kubectl create token"):
			_, audience, _ := strings.Cut(command, "--audience ")
			s.claims["aud"] = []string{strings.Fields(audience)[0]}
			token = s.token(t)
		case strings.HasPrefix(command, "make a new token"):
			s.claims["exp"] = time.Now().Add(time.Hour).Unix()
			token = s.token(t)
		default:
			t.Errorf("no command to execute in %q", command)
		}
	}
	return token
}

// words splits a line as a POSIX shell does, where nothing but single quotes is quoted.
func words(t *testing.T, line string) []string {
	t.Helper()
	var out []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimLeft(line, " ") {
		word := ""
		for line != "" && line[0] != ' ' {
			if line[0] == '\'' {
				quoted, rest, closed := strings.Cut(line[1:], "'")
				if !closed {
					t.Fatalf("an open quote: %s", line)
				}
				word, line = word+quoted, rest
				continue
			}
			word, line = word+line[:1], line[1:]
		}
		out = append(out, word)
	}
	return out
}

// callIAM is the AWS CLI for the commands that repairs have. test/e2e runs the real one.
func (s *stage) callIAM(t *testing.T, line []string) {
	t.Helper()
	flags := map[string]string{}
	for i := 1; i+1 < len(line); i += 2 {
		flags[line[i]] = line[i+1]
	}
	arn, err := aws.String(flags["--open-id-connect-provider-arn"]), error(nil)
	switch ctx := t.Context(); line[0] {
	case "create-open-id-connect-provider":
		in := &iam.CreateOpenIDConnectProviderInput{Url: aws.String(flags["--url"]), ClientIDList: []string{flags["--client-id-list"]}}
		if sum := flags["--thumbprint-list"]; sum != "" {
			in.ThumbprintList = []string{sum}
		}
		_, err = s.hand.CreateOpenIDConnectProvider(ctx, in)
	case "add-client-id-to-open-id-connect-provider":
		_, err = s.hand.AddClientIDToOpenIDConnectProvider(ctx, &iam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: arn, ClientID: aws.String(flags["--client-id"])})
	case "update-open-id-connect-provider-thumbprint":
		_, err = s.hand.UpdateOpenIDConnectProviderThumbprint(ctx, &iam.UpdateOpenIDConnectProviderThumbprintInput{OpenIDConnectProviderArn: arn, ThumbprintList: []string{flags["--thumbprint-list"]}})
	case "update-assume-role-policy":
		_, err = s.hand.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String(flags["--role-name"]), PolicyDocument: aws.String(flags["--policy-document"])})
	default:
		t.Errorf("the AWS CLI is not played for %q", line)
	}
	if err != nil {
		t.Errorf("%s: %v", line[0], err)
	}
}

// awsSetUp is something that is wrong with a token, a role or its provider.
type awsSetUp struct {
	name    string
	options func(*fakeaws.Options, *stage)
	set     func(*testing.T, *stage) // makes provider, role and token; nil makes what is right
	code    string                   // of the first finding
	warns   bool                     // it works all the same
	manual  bool                     // the repair is a person's work
}

// right makes what a healthy account has.
func (s *stage) right(t *testing.T) {
	t.Helper()
	s.makeProvider(t, issuer, "openshift", "sts.amazonaws.com")
	s.makeRole(t, "", statement("Allow", rightTrust))
}

// trusting is right with another trust policy.
func trusting(statements ...string) func(*testing.T, *stage) {
	return func(t *testing.T, s *stage) {
		s.makeProvider(t, issuer, "openshift", "sts.amazonaws.com")
		s.makeRole(t, "", statements...)
	}
}

// beside is right with a second statement in the trust policy.
func beside(second string) func(*testing.T, *stage) {
	return trusting(statement("Allow", rightTrust), second)
}

func awsSetUps() []awsSetUp {
	const old = "arn:aws:iam::123456789012:oidc-provider/old.example.com"
	forOld := strings.ReplaceAll(strings.ReplaceAll(statement("Allow", rightTrust), provider, old), "oidc.example.com/c1:", "old.example.com:")
	subjects := func(operator, sub string) string {
		return statement("Allow", fmt.Sprintf(`"StringEquals":{%s},%q:{"oidc.example.com/c1:sub":%q}`, rightAudience, operator, sub))
	}
	return []awsSetUp{
		{name: "wrong audience", set: func(t *testing.T, s *stage) { s.right(t); s.claims["aud"] = []string{"vault"} }, code: "aws-client-id-missing"},
		{name: "a token for an issuer of before, and the role asks for it", set: func(t *testing.T, s *stage) {
			s.makeProvider(t, issuer, "openshift")
			s.makeRole(t, "", strings.ReplaceAll(statement("Allow", rightTrust), "sts.amazonaws.com", "https://old.example.com"))
			s.claims["aud"] = []string{"https://old.example.com"}
		}, code: "aws-client-id-missing"},
		{name: "role asks for a mistyped audience", set: func(t *testing.T, s *stage) {
			s.makeProvider(t, issuer, "sts.amazonaws.com")
			s.makeRole(t, "", strings.ReplaceAll(statement("Allow", rightTrust), "sts.amazonaws.com", "sts.amazonaw.com"))
		}, code: "aws-trust-audience"},
		{name: "wrong sub", set: func(t *testing.T, s *stage) { s.right(t); s.claims["sub"] = "system:serviceaccount:other:app" }, code: "aws-trust-subject"},
		{name: "StringLike typo", set: trusting(subjects("StringLike", "system:serviceacount:ns:*")), code: "aws-trust-subject"},
		{name: "StringEquals with a wildcard", set: trusting(statement("Allow", `"StringEquals":{`+rightAudience+`,"oidc.example.com/c1:sub":"system:serviceaccount:ns:*"}`)), code: "aws-trust-wildcard"},
		{name: "provider missing", set: func(t *testing.T, s *stage) { s.makeRole(t, "", statement("Allow", rightTrust)) }, code: "aws-provider-missing"},
		{name: "provider of another issuer", set: func(t *testing.T, s *stage) {
			s.makeProvider(t, "https://old.example.com", "sts.amazonaws.com")
			s.makeRole(t, "", forOld)
		}, code: "aws-provider-missing"},
		{name: "provider in another case", set: func(t *testing.T, s *stage) {
			s.makeProvider(t, "https://oidc.example.com/C1", "sts.amazonaws.com")
			s.makeRole(t, "", statement("Allow", rightTrust))
		}, code: "aws-provider-missing"},
		{name: "role trusts the provider of another issuer", set: func(t *testing.T, s *stage) {
			s.makeProvider(t, "https://old.example.com", "sts.amazonaws.com")
			s.makeProvider(t, issuer, "sts.amazonaws.com")
			s.makeRole(t, "", forOld)
		}, code: "aws-trust-provider"},
		{name: "client ID missing", set: func(t *testing.T, s *stage) {
			s.makeProvider(t, issuer, "openshift")
			s.makeRole(t, "", statement("Allow", rightTrust))
		}, code: "aws-client-id-missing"},
		{name: "stale thumbprint with a private CA", options: func(o *fakeaws.Options, s *stage) { o.Roots, s.stale = nil, true }, code: "aws-thumbprint-stale"},
		{name: "token of a removed key", code: "token-kid-gone"},
		{name: "expired token", set: func(t *testing.T, s *stage) { s.right(t); s.claims["exp"] = time.Now().Add(-10 * time.Minute).Unix() }, code: "token-expired"},
		{name: "role missing", set: func(t *testing.T, s *stage) { s.makeProvider(t, issuer, "sts.amazonaws.com") }, code: "aws-role-missing", manual: true},
		{name: "role with a path", set: func(t *testing.T, s *stage) {
			s.makeProvider(t, issuer, "sts.amazonaws.com")
			s.makeRole(t, "/apps/", statement("Allow", rightTrust))
		}, code: "aws-role-missing", manual: true},
		{name: "trust for another action", set: trusting(strings.Replace(statement("Allow", rightTrust), "sts:AssumeRoleWithWebIdentity", "sts:TagSession", 1)), code: "aws-trust-provider"},
		{name: "trust denied", set: trusting(statement("Allow", rightTrust), statement("Deny", `"StringLike":{"oidc.example.com/c1:sub":"system:serviceaccount:ns:*"}`)), code: "aws-trust-provider", manual: true},
		{name: "condition on another issuer's claim", set: trusting(strings.ReplaceAll(statement("Allow", rightTrust), "oidc.example.com/c1:sub", "old.example.com:sub")), code: "aws-trust-provider"},
		{name: "condition on a claim that is not there", set: trusting(statement("Allow", rightTrust+`,"StringLike":{"oidc.example.com/c1:amr":"*"}`)), code: "aws-trust-provider"},
		{name: "role asks for another audience", set: trusting(strings.Replace(statement("Allow", rightTrust), "sts.amazonaws.com", "openshift", 1)), code: "aws-trust-audience"},
		{name: "role asks for no service account", set: trusting(statement("Allow", `"StringEquals":{`+rightAudience+`}`)), code: "aws-trust-open", warns: true, manual: true},
		{name: "role asks for no audience", set: trusting(statement("Allow", `"StringEquals":{`+rightSubject+`}`)), code: "aws-trust-open", warns: true, manual: true},
		{name: "second statement without a service account", set: beside(statement("Allow", `"StringEquals":{`+rightAudience+`}`)), code: "aws-trust-open", warns: true, manual: true},
		{name: "second statement for everybody", set: beside(`{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:*"}`), code: "aws-trust-open", warns: true, manual: true},
	}
}

func (u awsSetUp) prepare(t *testing.T) (s *stage, token string) {
	t.Helper()
	s = newStage(t, u.options)
	if u.set == nil {
		s.right(t)
	} else {
		u.set(t, s)
	}
	token = s.token(t)
	if u.code == "token-kid-gone" {
		s.revoke(t)
	}
	return s, token
}

// TestSetUps: the true cause comes first; what its finding says that AWS answers is what AWS answers; its repair, executed as
// printed, makes it go.
func TestSetUps(t *testing.T) {
	t.Parallel()
	for _, u := range awsSetUps() {
		t.Run(u.name, func(t *testing.T) {
			s, token := u.prepare(t)
			first := s.look(t, token)[0]
			if first.Code != u.code || (first.Severity == finding.Warn) != u.warns {
				t.Fatalf("first: %s %s: %s", first.Severity, first.Code, first.Evidence)
			}
			s.answers(t, first, token)
			if u.manual {
				return
			}
			token = s.do(t, first.Repair, token)
			for _, f := range s.look(t, token) {
				if f.Code == first.Code {
					t.Errorf("after %q there is still %s: %s", first.Repair, f.Code, f.Evidence)
				}
			}
		})
	}
}

// answers sends the token to STS and compares what it answers with what was predicted.
func (s *stage) answers(t *testing.T, first finding.Finding, token string) {
	t.Helper()
	got := webidentity.Assume(t.Context(), s.client, s.role, token)
	if strings.Contains(fmt.Sprint(got), token) {
		t.Error("the finding has the token")
	}
	if first.Severity != finding.Fail {
		if got.Severity != finding.OK {
			t.Errorf("AWS refuses it: %s", got.Evidence)
		}
		return
	}
	i := slices.IndexFunc(first.Answers, func(a finding.Answer) bool { return a.Party == finding.AWS })
	if i < 0 || got.Severity != finding.Fail || !strings.Contains(got.Evidence, first.Answers[i].Text) {
		t.Errorf("%s predicts %v, and %s", first.Code, first.Answers, got.Evidence)
	}
	if !slices.ContainsFunc(answers.Causes(got.Evidence), func(c finding.Cause) bool { return c.Code == first.Code }) {
		t.Errorf("answers.Causes does not have %s in %q", first.Code, got.Evidence)
	}
}

// A condition that nobody can judge is a warning until AWS refuses the token: then it is the cause, and the repair lets the token in.
func TestRefusedForWhatIsUnclear(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	trusting(statement("Allow", rightTrust+`,"IpAddress":{"aws:SourceIp":"192.0.2.0/24"}`))(t, s)
	token := s.token(t)
	before := s.look(t, token)
	if before[0].Code != "aws-trust-unclear" || before[0].Severity != finding.Warn {
		t.Fatalf("first: %s %s: %s", before[0].Severity, before[0].Code, before[0].Evidence)
	}
	refused := slices.Concat(before, []finding.Finding{webidentity.Assume(t.Context(), s.client, s.role, token)})
	answers.Explain(refused)
	finding.Sort(refused)
	if first, second := refused[0], refused[1]; first.Code != "aws-trust-unclear" || first.Severity != finding.Fail || second.Code != "aws-refused" || len(second.Repair) > 200 {
		t.Fatalf("first: %s %s, then %s with the repair %s", first.Severity, first.Code, second.Code, second.Repair)
	}
	if token = s.do(t, refused[0].Repair, token); webidentity.Assume(t.Context(), s.client, s.role, token).Severity != finding.OK {
		t.Errorf("AWS refuses it after %s", refused[0].Repair)
	}
}

func TestHealthyAccounts(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*testing.T, *stage){
		"as keypost makes it": func(t *testing.T, s *stage) { s.right(t) },
		"one of several statements": trusting(statement("Allow", strings.Replace(rightTrust, "ns:app", "ns:other", 1)), statement("Allow", rightTrust),
			statement("Deny", `"StringEquals":{"oidc.example.com/c1:sub":"system:serviceaccount:ns:evil"}`)),
		"a pattern":       trusting(statement("Allow", `"StringEquals":{`+rightAudience+`},"StringLike":{"oidc.example.com/c1:sub":"system:serviceaccount:n?:*"}`)),
		"without a token": func(t *testing.T, s *stage) { s.right(t); s.noToken = true },
		"a pattern, without a token": func(t *testing.T, s *stage) {
			trusting(statement("Allow", `"StringEquals":{`+rightAudience+`},"StringLike":{"oidc.example.com/c1:sub":"system:*:n?:app"}`))(t, s)
			s.noToken = true
		},
		"audiences of others": func(t *testing.T, s *stage) {
			s.makeProvider(t, issuer, "sts.amazonaws.com")
			s.makeRole(t, "", strings.Replace(statement("Allow", rightTrust), `"sts.amazonaws.com"`, `["openshift","sts.amazonaws.com"]`, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, nil)
			set(t, s)
			if name == "a pattern, without a token" {
				s.claims["sub"] = "system:serviceaccount:ns:app"
			}
			token := s.token(t)
			for _, f := range s.look(t, token) {
				if f.Severity != finding.OK {
					t.Errorf("%s %s: %s", f.Severity, f.Code, f.Evidence)
				}
			}
			if got := webidentity.Assume(t.Context(), s.client, s.role, token); got.Severity != finding.OK {
				t.Errorf("AWS refuses it: %s", got.Evidence)
			}
		})
	}
}

// Without a token, what no token can pass is found all the same.
func TestWithoutToken(t *testing.T) {
	t.Parallel()
	for name, u := range map[string]awsSetUp{
		"a key of another issuer":  {set: trusting(strings.ReplaceAll(statement("Allow", rightTrust), "oidc.example.com/c1:", "old.example.com:")), code: "aws-trust-provider", manual: true},
		"another provider trusted": {set: trusting(strings.ReplaceAll(strings.ReplaceAll(statement("Allow", rightTrust), provider, provider+"-old"), "oidc.example.com/c1:", "oidc.example.com/c1-old:")), code: "aws-trust-provider", manual: true},
		"an unregistered audience": {set: func(t *testing.T, s *stage) {
			s.makeProvider(t, issuer, "openshift")
			s.makeRole(t, "", statement("Allow", rightTrust))
		}, code: "aws-client-id-missing"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := u.prepare(t)
			s.noToken = true
			first := s.look(t, "")[0]
			if first.Code != u.code || first.Severity != finding.Fail {
				t.Fatalf("first: %s %s: %s", first.Severity, first.Code, first.Evidence)
			}
			if u.manual {
				return
			}
			s.do(t, first.Repair, "")
			if slices.ContainsFunc(s.look(t, ""), func(f finding.Finding) bool { return f.Code == u.code }) {
				t.Errorf("%q did not repair it", first.Repair)
			}
		})
	}
}

// What the caller may not read is a warning that names the permission.
func TestVerifyWithoutPermission(t *testing.T) {
	t.Parallel()
	s := newStage(t, func(o *fakeaws.Options, _ *stage) {
		o.Policy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"iam:GetUser","Resource":"*"}]}`
	})
	denied := ""
	for _, f := range s.look(t, s.token(t)) {
		if f.Code == "aws-forbidden" && f.Severity == finding.Warn {
			denied += f.Evidence
		}
	}
	for _, action := range []string{"iam:GetRole", "iam:GetOpenIDConnectProvider"} {
		if !strings.Contains(denied, "user/provisioner may not call "+action+" on arn:aws:iam::123456789012:") {
			t.Errorf("%s is not named: %s", action, denied)
		}
	}
}

// TestJudgeIsSTS: package iampolicy's judgement of a trust policy is what an STS, written by itself, makes of it.
func TestJudgeIsSTS(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	s.right(t)
	token := s.token(t)
	id := iampolicy.Identity{ProviderARN: provider, Issuer: issuer, Subject: subject, Audience: "sts.amazonaws.com"}
	random := rand.New(rand.NewPCG(1, 2)) // the same policies in every run
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	condition := func() string {
		operator := one("StringEquals", "StringLike", "StringNotEquals", "StringNotLike", "StringEqualsIgnoreCase")
		key := one("oidc.example.com/c1:sub", "oidc.example.com/c1:sub", "oidc.example.com/c1:aud", "oidc.example.com/c1:amr", "old.example.com:sub")
		values := []string{one(subject, "system:serviceaccount:ns:*", "*", "sts.amazonaws.com"), one("sts.*", "SYSTEM:serviceaccount:ns:app", "x", "system:serviceaccount:n?:app")}
		list, err := json.Marshal(values[:1+random.IntN(2)])
		must(t, err)
		return fmt.Sprintf(`%q:{%q:%s}`, operator, key, list)
	}
	outcomes := map[iampolicy.Truth]int{}
	for range 400 {
		var statements []string
		for range 1 + random.IntN(3) {
			statement := statement(one("Allow", "Allow", "Deny"), condition())
			statement = strings.Replace(statement, provider, one(provider, provider, provider, provider+"-old"), 1)
			statements = append(statements, strings.Replace(statement, "sts:AssumeRoleWithWebIdentity", one("sts:AssumeRoleWithWebIdentity", "sts:assumerolewith*", "sts:TagSession"), 1))
		}
		text := `{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`
		d, err := iampolicy.Parse(text)
		must(t, err)
		_, err = s.hand.UpdateAssumeRolePolicy(t.Context(), &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String("app"), PolicyDocument: aws.String(text)})
		must(t, err)
		want := iampolicy.No
		if webidentity.Assume(t.Context(), s.client, s.role, token).Severity == finding.OK {
			want = iampolicy.Yes
		}
		allowed, denied := iampolicy.No, iampolicy.No
		for _, j := range d.Judge(id) {
			if j.Deny {
				denied = max(denied, j.Applies())
			} else {
				allowed = max(allowed, j.Applies())
			}
		}
		got := min(allowed, iampolicy.Yes-denied)
		outcomes[got]++
		if got != want {
			t.Errorf("the judgement is %v, and STS says %v: %s", got, want, text)
		}
	}
	if outcomes[iampolicy.Yes] < 50 || outcomes[iampolicy.No] < 50 {
		t.Errorf("too few of a kind: %v", outcomes)
	}
}

func TestVerifyOfAnotherAccount(t *testing.T) {
	t.Parallel()
	s := newStage(t, nil)
	s.role = "arn:aws:iam::210987654321:role/app"
	got := s.look(t, s.token(t))
	if got[0].Code != "aws-unread" || !strings.Contains(got[0].Evidence, "210987654321") || !strings.Contains(got[0].Evidence, "123456789012") {
		t.Errorf("first: %s: %s", got[0].Code, got[0].Evidence)
	}
	for _, arn := range []string{"", "app", "arn:aws:sts::123456789012:assumed-role/app/x", "arn:aws:iam::1:role/app", "arn:aws:iam::123456789012:role/"} {
		if _, _, err := api.ParseRoleARN(arn); err == nil {
			t.Errorf("ParseRoleARN(%q) = nil", arn)
		}
	}
}
