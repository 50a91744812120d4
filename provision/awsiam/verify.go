package awsiam

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer/verify/answers"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/provision/iampolicy"
	"github.com/keypost/keypost/provision/webidentity"
)

// CheckRoleARN returns an error unless arn is that of an IAM role.
func CheckRoleARN(arn string) error {
	a, resource, ok := splitARN(arn)
	if !ok || !isAccountID(a.ID) || !strings.HasPrefix(resource, "role/") || strings.HasSuffix(resource, "/") {
		return fmt.Errorf("%q is not the ARN of an IAM role (arn:aws:iam::ACCOUNT:role/NAME)", arn)
	}
	return nil
}

// Verify compares the issuer's IAM OIDC identity provider and a role's trust policy with what a token needs, and returns what it
// found: the difference between wanted and there. Of a it needs neither Role nor ProviderARN. It reads only. A permission that
// the caller does not have is a finding. An error means that ctx is done, or that roleARN is none.
func (c *Client) Verify(ctx context.Context, roleARN string, a webidentity.Attempt) ([]finding.Finding, error) {
	if err := CheckRoleARN(roleARN); err != nil {
		return nil, err
	}
	home, _, _ := splitARN(roleARN)
	a.Role, a.ProviderARN = lastOf(roleARN), home.ProviderARN(a.Issuer)
	e := &examination{Attempt: a, client: c, roleARN: roleARN}
	if e.account(ctx, home) {
		trust := e.readRole(ctx)
		e.checkProvider(ctx, trust)
		if trust != nil {
			e.Add(e.CheckTrust(*trust)...)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return e.Sorted(), nil
}

// examination collects what is found.
type examination struct {
	webidentity.Attempt
	client  *Client
	caller  Account
	roleARN string
	finding.Report
}

// account reports whether the caller's credentials belong to the role's account. Role and provider have to be in one account, and
// nothing of another can be read.
//
// Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_oidc.html
func (e *examination) account(ctx context.Context, home Account) bool {
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
func (e *examination) unread(err error, action, resource string) {
	if !isDenied(err) {
		e.Fail("aws-unread", "%v", err)
		return
	}
	policy := string(asJSON(map[string]any{"Version": "2012-10-17", "Statement": []any{
		map[string]any{"Effect": "Allow", "Action": action, "Resource": resource},
	}}))
	verb, words := "put-user-policy", []string{"--user-name", lastOf(e.caller.Caller)}
	if role, is := assumedRole(e.caller.Caller); is {
		verb, words = "put-role-policy", []string{"--role-name", role}
	}
	title := "keypost-verify-" + strings.TrimPrefix(action, "iam:")
	grant := webidentity.Command(verb, append(words, "--policy-name", title, "--policy-document", policy)...)
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
func (e *examination) readRole(ctx context.Context) *iampolicy.Document {
	have, err := e.client.readRole(ctx, Role{Name: e.Role})
	switch {
	case err != nil:
		e.unread(err, "iam:GetRole", e.roleARN)
		return nil
	case have == nil:
		e.FailWith("aws-role-missing", "give the pods the ARN of a role that is there, or make it: "+e.createRole(), "there is no role %s", e.roleARN)
		return nil
	case have.arn != e.roleARN:
		e.FailWith("aws-role-missing", "give the pods the role "+have.arn, "the role %s has the ARN %s, and not %s", e.Role, have.arn, e.roleARN)
	default:
		e.Add(finding.Good("aws-role", "there is the role "+e.roleARN))
	}
	return &have.trust
}

// createRole returns the command that makes the role, for the service account of the token.
func (e *examination) createRole() string {
	account := "NAMESPACE/NAME"
	if s := strings.Split(e.Subject, ":"); len(s) == 4 && s[0]+":"+s[1] == "system:serviceaccount" {
		account = s[2] + "/" + s[3]
	}
	return text.Quoted("keypost", "aws", "create-role", "--role-name", e.Role, "--service-account", account, "--issuer-url", e.Issuer)
}

func (e *examination) checkProvider(ctx context.Context, trust *iampolicy.Document) {
	have, err := e.client.readProvider(ctx, e.ProviderARN)
	switch {
	case err != nil:
		e.unread(err, "iam:GetOpenIDConnectProvider", e.ProviderARN)
		return
	case have != nil:
		e.ClientIDs = have.clientIDs
		e.Add(finding.Good("aws-provider", "there is the provider "+e.ProviderARN))
		e.Add(e.CheckProvider(webidentity.Provider{ClientIDs: have.clientIDs, Thumbprints: have.thumbprints}, trust)...)
		return
	}
	list, err := ask(ctx, e.client, e.client.iam.ListOpenIDConnectProviders, &iam.ListOpenIDConnectProvidersInput{})
	var urls []string
	if err != nil {
		e.unread(err, "iam:ListOpenIDConnectProviders", "*")
	} else {
		for _, p := range list.OpenIDConnectProviderList {
			if url, err := ProviderURL(aws.ToString(p.Arn)); err == nil {
				urls = append(urls, url)
			}
		}
	}
	e.Add(e.NoProvider(urls, trust))
}

// assumeTime bounds the one call of Assume. STS itself gives an issuer 5 seconds for each document.
const assumeTime = time.Minute

// Assume calls sts:AssumeRoleWithWebIdentity with the token, as a pod does, and returns what came of it. The credentials that
// AWS returns are thrown away; neither they nor the token are part of the finding. [answers.Explain] says why AWS refused.
func (c *Client) Assume(ctx context.Context, roleARN, token string) finding.Finding {
	ctx, cancel := context.WithTimeout(ctx, assumeTime)
	defer cancel()
	out, err := c.sts.AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: aws.String(roleARN), RoleSessionName: aws.String("keypost-verify"), WebIdentityToken: aws.String(token), DurationSeconds: aws.Int32(900),
	})
	if err == nil {
		return finding.Good("aws-assume", fmt.Sprintf("AWS STS lets %s assume the role, with audience %s", aws.ToString(out.SubjectFromWebIdentityToken), aws.ToString(out.Audience)))
	}
	api, answered := errors.AsType[smithy.APIError](err)
	if !answered {
		return finding.CauseOf("aws-sts-unreachable").Finding(finding.Fail, explain(err).Error(), "")
	}
	answer := api.ErrorCode() + ": " + api.ErrorMessage()
	return finding.CauseOf("aws-refused").Finding(finding.Fail, answers.OfSTS+answer, "")
}
