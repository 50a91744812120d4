package webidentity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/answers"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/awsiam/api"
	"github.com/keypost/keypost/provision/iampolicy"
)

// Verify compares the issuer's IAM OIDC identity provider and a role's trust policy with what a token needs, and returns what it
// found: the difference between wanted and there. Of a it needs neither Role nor ProviderARN. It reads only. A permission that
// the caller does not have is a finding. An error means that ctx is done, or that roleARN is none.
func Verify(ctx context.Context, c *awsiam.Client, roleARN string, a Attempt) ([]finding.Finding, error) {
	home, name, err := api.ParseRoleARN(roleARN)
	if err != nil {
		return nil, err
	}
	a.Role, a.ProviderARN = name, home.ProviderARN(a.Issuer)
	e := &inquiry{examination: examination{Attempt: a}, client: c, roleARN: roleARN}
	if e.account(ctx, home) {
		trust := e.readRole(ctx)
		e.readProvider(ctx, trust)
		if trust != nil {
			e.checkTrust(*trust)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return e.Sorted(), nil
}

// inquiry is one run of [Verify]. It collects what is found.
type inquiry struct {
	examination
	client  *awsiam.Client
	caller  awsiam.Account
	roleARN string
}

// account reports whether the caller's credentials belong to the role's account. Role and provider have to be in one account, and
// nothing of another can be read.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_oidc.html
func (e *inquiry) account(ctx context.Context, home awsiam.Account) bool {
	caller, err := e.client.Account(ctx)
	if err != nil {
		e.Fail("aws-unread", "the account was not looked at: %v", err)
		return false
	}
	if e.caller = caller; caller.ID == home.ID && caller.Partition == home.Partition {
		return true
	}
	e.FailWith("aws-unread", "run it again with credentials of account "+home.ID+" (AWS_PROFILE)",
		"the role belongs to account %s (%s), and the credentials belong to %s (%s)", home.ID, home.Partition, caller.ID, caller.Partition)
	return false
}

// unread adds a finding about a read that failed.
func (e *inquiry) unread(err error, action, resource string) {
	if !api.IsDenied(err) {
		e.Fail("aws-unread", "%v", err)
		return
	}
	policy, _ := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []any{ // strings, which always marshal
		map[string]any{"Effect": "Allow", "Action": action, "Resource": resource},
	}})
	verb, words := "put-user-policy", []string{"--user-name", lastOf(e.caller.Caller)}
	if role, is := assumedRole(e.caller.Caller); is {
		verb, words = "put-role-policy", []string{"--role-name", role}
	}
	title := "keypost-verify-" + strings.TrimPrefix(action, "iam:")
	grant := Command(verb, append(words, "--policy-name", title, "--policy-document", string(policy))...)
	evidence := fmt.Sprintf("%s may not call %s on %s: %v", e.caller.Caller, action, resource, err)
	e.Add(finding.CauseOf("aws-forbidden").Finding(finding.Warn, evidence, "as an administrator of the account: "+grant))
}

func lastOf(arn string) string { return arn[strings.LastIndex(arn, "/")+1:] }

// assumedRole returns the role of a session's ARN (arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION).
func assumedRole(arn string) (role string, is bool) {
	_, rest, is := strings.Cut(arn, ":assumed-role/")
	role, _, _ = strings.Cut(rest, "/")
	return role, is
}

// readRole returns the role's trust policy; nil for a role that is not there, or that cannot be read.
func (e *inquiry) readRole(ctx context.Context) *iampolicy.Document {
	arn, trust, err := e.client.RoleTrust(ctx, e.Role)
	switch {
	case err != nil:
		e.unread(err, "iam:GetRole", e.roleARN)
		return nil
	case trust == nil:
		e.FailWith("aws-role-missing", "give the pods the ARN of a role that is there, or make it: "+e.createRole(), "there is no role %s", e.roleARN)
		return nil
	case arn != e.roleARN:
		e.FailWith("aws-role-missing", "give the pods the role "+arn, "the role %s has the ARN %s, and not %s", e.Role, arn, e.roleARN)
	default:
		e.Add(finding.Good("aws-role", "there is the role "+e.roleARN))
	}
	return trust
}

// createRole returns the command that makes the role, for the service account of the token.
func (e *inquiry) createRole() string {
	account := "NAMESPACE/NAME"
	if s := strings.Split(e.Subject, ":"); len(s) == 4 && strings.HasPrefix(e.Subject, subjectPrefix) {
		account = s[2] + "/" + s[3]
	}
	return text.Quoted("keypost", "aws", "create-role", "--role-name", e.Role, "--service-account", account, "--issuer-url", e.Issuer)
}

func (e *inquiry) readProvider(ctx context.Context, trust *iampolicy.Document) {
	have, err := e.client.Provider(ctx, e.ProviderARN)
	switch {
	case err != nil:
		e.unread(err, "iam:GetOpenIDConnectProvider", e.ProviderARN)
		return
	case have != nil:
		e.ClientIDs = have.ClientIDs
		e.Add(finding.Good("aws-provider", "there is the provider "+e.ProviderARN))
		e.checkProvider(*have, trust)
		return
	}
	urls, err := e.client.ProviderURLs(ctx)
	if err != nil {
		e.unread(err, "iam:ListOpenIDConnectProviders", "*")
	}
	e.Add(e.noProvider(urls, trust))
}

// assumeTime bounds the one call of Assume. STS itself gives an issuer 5 seconds for each document.
const assumeTime = time.Minute

// Assume calls sts:AssumeRoleWithWebIdentity with the token, as a pod does, and returns what came of it. The credentials that
// AWS returns are thrown away; neither they nor the token are part of the finding. [answers.Explain] says why AWS refused.
func Assume(ctx context.Context, c *awsiam.Client, roleARN, token string) finding.Finding {
	ctx, cancel := context.WithTimeout(ctx, assumeTime)
	defer cancel()
	out, err := c.STS.AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: aws.String(roleARN), RoleSessionName: aws.String("keypost-verify"), WebIdentityToken: aws.String(token), DurationSeconds: aws.Int32(900),
	})
	if err == nil {
		return finding.Good("aws-assume", fmt.Sprintf("AWS STS lets %s assume the role, with audience %s", aws.ToString(out.SubjectFromWebIdentityToken), aws.ToString(out.Audience)))
	}
	refusal, answered := errors.AsType[smithy.APIError](err)
	if !answered {
		return finding.CauseOf("aws-sts-unreachable").Finding(finding.Fail, api.Explain(err).Error(), "")
	}
	answer := refusal.ErrorCode() + ": " + refusal.ErrorMessage()
	return finding.CauseOf("aws-refused").Finding(finding.Fail, answers.OfSTS+answer, "")
}
