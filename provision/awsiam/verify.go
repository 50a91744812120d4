package awsiam

import (
	"context"
	"crypto/sha1" //nolint:gosec // IAM's thumbprints are SHA-1
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/provision/iampolicy"
)

// Attempt is a role that the pods of an issuer's cluster are to assume.
type Attempt struct {
	RoleARN  string
	Issuer   string              // URL
	Subject  string              // a token's sub; empty if there is no token
	Audience string              // a token's azp, else its aud; empty if there is no token
	Chain    []*x509.Certificate // what the issuer's host sends, the leaf first; nil if that is not known
	PublicCA bool                // the system's CAs trust Chain
}

// CheckRoleARN returns an error unless arn is that of an IAM role.
func CheckRoleARN(arn string) error {
	a, resource, ok := splitARN(arn)
	if !ok || !isAccountID(a.ID) || !strings.HasPrefix(resource, "role/") || strings.HasSuffix(resource, "/") {
		return fmt.Errorf("%q is not the ARN of an IAM role (arn:aws:iam::ACCOUNT:role/NAME)", arn)
	}
	return nil
}

// Verify compares the issuer's IAM OIDC identity provider and the role's trust policy with what a token needs, and returns what
// it found: the difference between wanted and there. It reads only. A permission that the caller lacks is a finding. An error
// means that ctx is done, or that RoleARN is none.
func (c *Client) Verify(ctx context.Context, a Attempt) ([]verify.Finding, error) {
	if err := CheckRoleARN(a.RoleARN); err != nil {
		return nil, err
	}
	home, resource, _ := splitARN(a.RoleARN)
	e := &examination{Attempt: a, client: c, provider: home.ProviderARN(a.Issuer), name: resource[strings.LastIndex(resource, "/")+1:]}
	if e.account(ctx, home) {
		role := e.readRole(ctx)
		have := e.checkProvider(ctx, role)
		if have != nil {
			e.checkAudience(have, role)
			e.checkThumbprint(have)
		}
		if role != nil {
			e.checkTrust(role.trust)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	verify.Sort(e.findings)
	return e.findings, nil
}

// examination collects what is found.
type examination struct {
	Attempt
	client   *Client
	caller   Account
	provider string // the ARN that the issuer's provider has to have: the account is the role's
	name     string // of the role
	findings []verify.Finding
}

func (e *examination) fail(code, repair, format string, args ...any) {
	e.findings = append(e.findings, verify.CauseOf(code).Finding(verify.Fail, fmt.Sprintf(format, args...), repair))
}

func (e *examination) warn(code, repair, format string, args ...any) {
	e.findings = append(e.findings, verify.CauseOf(code).Finding(verify.Warn, fmt.Sprintf(format, args...), repair))
}

func (e *examination) ok(check, format string, args ...any) {
	e.findings = append(e.findings, verify.Good(check, fmt.Sprintf(format, args...)))
}

// command returns a command line of the AWS CLI for IAM.
func command(words ...string) string { return text.Quoted(append([]string{"aws", "iam"}, words...)...) }

// account reports whether the caller's credentials are of the role's account. Role and provider have to be in one account, and
// nothing of another can be read.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_oidc.html
func (e *examination) account(ctx context.Context, home Account) bool {
	caller, err := e.client.Account(ctx)
	if err != nil {
		e.fail("aws-unread", "", "the account was not looked at: %v", err)
		return false
	}
	if e.caller = caller; caller.ID == home.ID && caller.Partition == home.Partition {
		return true
	}
	e.fail("aws-credentials", "run it again with credentials of account "+home.ID+" (AWS_PROFILE)",
		"the role is of account %s (%s), and the credentials are of %s (%s)", home.ID, home.Partition, caller.ID, caller.Partition)
	if have, err := e.client.readProvider(ctx, caller.ProviderARN(e.Issuer)); err == nil && have != nil {
		e.fail("aws-account-other", "with credentials of account "+home.ID+": "+e.createProvider(),
			"account %s has a provider for %s; STS looks for it in account %s, the role's", caller.ID, e.Issuer, home.ID)
	}
	return false
}

// unread adds a finding about a read that failed.
func (e *examination) unread(err error, action, resource string) {
	if !isDenied(err) {
		e.fail("aws-unread", "", "%v", err)
		return
	}
	policy := string(asJSON(map[string]any{"Version": "2012-10-17", "Statement": []any{
		map[string]any{"Effect": "Allow", "Action": action, "Resource": resource},
	}}))
	words := []string{"put-user-policy", "--user-name", lastOf(e.caller.Caller)}
	if role, is := assumedRole(e.caller.Caller); is {
		words = []string{"put-role-policy", "--role-name", role}
	}
	title := "keypost-verify-" + strings.TrimPrefix(action, "iam:")
	e.warn("aws-forbidden", "as an administrator of the account: "+command(append(words, "--policy-name", title, "--policy-document", policy)...),
		"%s may not call %s on %s: %v", e.caller.Caller, action, resource, err)
}

func lastOf(arn string) string { return arn[strings.LastIndex(arn, "/")+1:] }

// assumedRole returns the role of a session's ARN (arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION).
func assumedRole(arn string) (role string, is bool) {
	_, rest, is := strings.Cut(arn, ":assumed-role/")
	role, _, _ = strings.Cut(rest, "/")
	return role, is
}

// readRole returns nil for a role that is not there, or that cannot be read.
func (e *examination) readRole(ctx context.Context) *roleState {
	have, err := e.client.readRole(ctx, Role{Name: e.name})
	switch {
	case err != nil:
		e.unread(err, "iam:GetRole", e.RoleARN)
		return nil
	case have == nil:
		e.fail("aws-role-missing", "", "there is no role %s", e.RoleARN)
	case have.arn != e.RoleARN:
		e.fail("aws-role-path", "give the pods the role "+have.arn, "the role %s has the ARN %s, and not %s", e.name, have.arn, e.RoleARN)
	default:
		e.ok("aws-role", "there is the role %s", e.RoleARN)
	}
	return have
}

// checkProvider returns nil for a provider that is not there, or that cannot be read.
func (e *examination) checkProvider(ctx context.Context, role *roleState) *providerState {
	have, err := e.client.readProvider(ctx, e.provider)
	switch {
	case err != nil:
		e.unread(err, "iam:GetOpenIDConnectProvider", e.provider)
	case have != nil:
		e.ok("aws-provider", "there is the provider %s", e.provider)
	default:
		e.noProvider(ctx, role)
	}
	return have
}

// noProvider looks for the provider that was made, or is trusted, in place of the one that is missing.
func (e *examination) noProvider(ctx context.Context, role *roleState) {
	list, err := ask(ctx, e.client, e.client.iam.ListOpenIDConnectProviders, &iam.ListOpenIDConnectProvidersInput{})
	if err != nil {
		e.unread(err, "iam:ListOpenIDConnectProviders", "*")
		e.fail("aws-provider-missing", e.createProvider(), "there is no %s", e.provider)
		return
	}
	host, _, _ := strings.Cut(iampolicy.HostPath(e.Issuer), "/")
	var near, same, trusted []string
	for _, p := range list.OpenIDConnectProviderList {
		url, err := ProviderURL(aws.ToString(p.Arn))
		if err != nil {
			continue
		}
		switch has, _, _ := strings.Cut(iampolicy.HostPath(url), "/"); {
		case strings.EqualFold(strings.TrimRight(url, "/"), e.Issuer):
			near = append(near, url)
		case strings.EqualFold(has, host):
			same = append(same, url)
		case role != nil && role.trust.Names(aws.ToString(p.Arn)):
			trusted = append(trusted, url)
		}
	}
	switch {
	case len(near) > 0:
		e.fail("aws-provider-other", e.createProvider(), "the account has a provider for %s, not for %s: host, path, case and a slash at the end count", near[0], e.Issuer)
	case len(same) > 0:
		e.fail("aws-provider-other", e.createProvider(), "the account has a provider for %s, not for %s", strings.Join(same, " and "), e.Issuer)
	case len(trusted) > 0:
		e.fail("aws-provider-other", e.createProvider(), "the account has a provider for %s, which the role trusts, and none for %s", strings.Join(trusted, " and "), e.Issuer)
	default:
		e.fail("aws-provider-missing", e.createProvider(), "there is no %s", e.provider)
	}
}

func (e *examination) createProvider() string {
	words := []string{"create-open-id-connect-provider", "--url", e.Issuer, "--client-id-list", "sts.amazonaws.com"}
	if e.Audience != "" {
		words[len(words)-1] = e.Audience
	}
	if e.privateCA() {
		words = append(words, "--thumbprint-list", thumbprint(e.Chain[len(e.Chain)-1]))
	}
	return command(words...)
}

// checkAudience compares the token's audience, or those that the role asks for, with the provider's client IDs.
func (e *examination) checkAudience(have *providerState, role *roleState) {
	var asked []string // by the trust policy
	if role != nil {
		asked = role.trust.AsksFor(e.identity(), "aud")
	}
	usable := slices.DeleteFunc(slices.Clone(asked), func(a string) bool { return !slices.Contains(have.clientIDs, a) })
	clients := strings.Join(have.clientIDs, ", ")
	switch {
	case e.Audience == "" && (len(asked) == 0 || len(usable) > 0), slices.Contains(have.clientIDs, e.Audience):
		e.ok("aws-client-id", "the provider's client IDs are %s", clients)
	case e.Audience == "":
		e.fail("aws-client-id-missing", e.addClientID(asked[0]), "the role asks for the audience %s, and the provider's client IDs are %s", strings.Join(asked, " or "), clients)
	case len(usable) > 0 && !slices.Contains(asked, e.Audience):
		e.fail("aws-audience-wrong", e.askFor(usable[0]), "the token's audience is %q; the provider's client IDs are %s, and the role asks for %s",
			e.Audience, clients, strings.Join(asked, " or "))
	default:
		e.fail("aws-client-id-missing", e.addClientID(e.Audience), "the token's audience is %q, and the provider's client IDs are %s", e.Audience, clients)
	}
}

func (e *examination) addClientID(id string) string {
	return command("add-client-id-to-open-id-connect-provider", "--open-id-connect-provider-arn", e.provider, "--client-id", id)
}

// askFor returns how the pod gets a token with an audience.
func (e *examination) askFor(audience string) string {
	namespace, account := "NAMESPACE", "SERVICEACCOUNT"
	if found := strings.Split(e.Subject, ":"); len(found) == 4 && strings.HasPrefix(e.Subject, subjectPrefix) {
		namespace, account = found[2], found[3]
	}
	return "ask for another audience, with audience in the projected volume or " +
		text.Quoted("kubectl", "create", "token", account, "--namespace", namespace, "--audience", audience)
}

func (e *examination) identity() iampolicy.Identity {
	return iampolicy.Identity{ProviderARN: e.provider, Issuer: e.Issuer, Subject: e.Subject, Audience: e.Audience}
}

func (e *examination) privateCA() bool { return len(e.Chain) > 0 && !e.PublicCA }

func thumbprint(c *x509.Certificate) string {
	sum := sha1.Sum(c.Raw) //nolint:gosec // IAM's thumbprints are SHA-1
	return hex.EncodeToString(sum[:])
}

// checkThumbprint compares the provider's thumbprints with the certificates that the issuer's host sends. AWS does so only if
// its own CAs do not vouch for them.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
func (e *examination) checkThumbprint(have *providerState) {
	if !e.privateCA() {
		return
	}
	known := lower(have.thumbprints)
	if slices.ContainsFunc(e.Chain, func(c *x509.Certificate) bool { return slices.Contains(known, thumbprint(c)) }) {
		e.ok("aws-thumbprint", "the provider has the thumbprint of a certificate that the issuer's host sends")
		return
	}
	last := e.Chain[len(e.Chain)-1]
	repair := command("update-open-id-connect-provider-thumbprint", "--open-id-connect-provider-arn", e.provider, "--thumbprint-list", thumbprint(last))
	e.fail("aws-thumbprint-stale", repair, "the issuer's certificate is of a private CA (%s), and the provider has the thumbprints %s",
		last.Subject, strings.Join(known, ", "))
}

// assumeTime bounds the one call of Assume. STS itself gives an issuer 5 seconds for each document.
const assumeTime = time.Minute

// Assume calls sts:AssumeRoleWithWebIdentity with the token, as a pod does, and returns what came of it. The credentials that
// AWS returns are thrown away; neither they nor the token are part of the finding.
func (c *Client) Assume(ctx context.Context, roleARN, token string) verify.Finding {
	ctx, cancel := context.WithTimeout(ctx, assumeTime)
	defer cancel()
	out, err := c.sts.AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: aws.String(roleARN), RoleSessionName: aws.String("keypost-verify"), WebIdentityToken: aws.String(token), DurationSeconds: aws.Int32(900),
	})
	if err == nil {
		return verify.Good("aws-assume", fmt.Sprintf("AWS STS lets %s assume the role, with audience %s", aws.ToString(out.SubjectFromWebIdentityToken), aws.ToString(out.Audience)))
	}
	api, answered := errors.AsType[smithy.APIError](err)
	if !answered {
		return verify.CauseOf("aws-sts-unreachable").Finding(verify.Fail, explain(err).Error(), "")
	}
	answer := api.ErrorCode() + ": " + api.ErrorMessage()
	return verify.CauseOf("aws-refused").Finding(verify.Fail, "AWS STS answers "+answer, refusedRepair(answer))
}

// refusedRepair returns where to look for the cause of an answer of STS.
func refusedRepair(answer string) string {
	var titles []string
	for _, c := range verify.Explain(answer) {
		titles = append(titles, c.Title)
	}
	if len(titles) == 0 {
		return ""
	}
	return "the failures above say why; if there are none, it is one of: " + strings.Join(titles, "; ")
}
