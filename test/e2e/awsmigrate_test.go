//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

// bucketIssuer is ccoctl's public bucket, from which clusters move.
const (
	bucketHost   = "prod-a-oidc.s3.us-east-1.amazonaws.com"
	bucketIssuer = "https://" + bucketHost
	roleName     = "prod-a-default-app-credentials"
)

// movingRole is the AWS account of a cluster that moves, and the role of its workload.
type movingRole struct {
	*workload
	account *account
}

func newMovingRole(t *testing.T, ca *authority) *movingRole {
	account := newAccount(t, ca)
	return &movingRole{newWorkload(t, account.URL, account.registerAsCcoctl(t)), account}
}

// ccoctlTrust is the trust policy that ccoctl writes: no audience, and its spaces.
func ccoctlTrust(issuer string) string {
	host := strings.TrimPrefix(issuer, "https://")
	return fmt.Sprintf(`{ "Version": "2012-10-17", "Statement": [ { "Effect": "Allow", "Principal": { "Federated": "arn:aws:iam::123456789012:oidc-provider/%[1]s" }, `+
		`"Action": "sts:AssumeRoleWithWebIdentity", "Condition":  { "StringEquals": { "%[1]s:sub": [ "system:serviceaccount:default:sa1" ] } } } ] }`, host)
}

// registerAsCcoctl makes what ccoctl aws create-all made for the cluster, with its tags. It returns the role's ARN.
func (a *account) registerAsCcoctl(t *testing.T) string {
	t.Helper()
	client := a.iam(t)
	tags := []types.Tag{
		{Key: aws.String("openshift.io/cloud-credential-operator/prod-a"), Value: aws.String("owned")},
		{Key: aws.String("Name"), Value: aws.String("prod-a")},
	}
	_, err := client.CreateOpenIDConnectProvider(t.Context(), &iam.CreateOpenIDConnectProviderInput{
		Url: aws.String(bucketIssuer), ClientIDList: []string{"openshift", audience}, Tags: tags})
	must(t, err)
	role, err := client.CreateRole(t.Context(), &iam.CreateRoleInput{
		RoleName: aws.String(roleName), AssumeRolePolicyDocument: aws.String(ccoctlTrust(bucketIssuer)), Tags: tags})
	must(t, err)
	return aws.ToString(role.Role.Arn)
}

// use takes a pod's whole way once, with the token that hold got last. It remembers nothing and tries nothing twice.
func (r *movingRole) use(ctx context.Context) error {
	_, err := r.assume(ctx)
	return err
}

// begun checks what --diff says of the move, and what prints that it is made.
func (r *movingRole) begun(t *testing.T, diff, command string) {
	if !strings.Contains(diff, newIssuer) || !strings.Contains(diff, roleName) {
		t.Errorf("--diff does not name %s and %s:\n%s", newIssuer, roleName, diff)
	}
	if want := "--service-account-issuer=" + newIssuer + " --service-account-issuer=" + bucketIssuer + "\n"; command != want {
		t.Errorf("stdout %q, want only the flags: %q", command, want)
	}
}

// switchedAt moves --finish's note of the switch.
func (r *movingRole) switchedAt(t *testing.T, at time.Time) {
	old, is := r.account.provider(bucketIssuer)
	if !is || old.Tags["keypost.dev/moved-at"] == "" {
		t.Fatalf("no note of the switch at the old provider: %+v", old)
	}
	_, err := r.account.iam(t).TagOpenIDConnectProvider(t.Context(), &iam.TagOpenIDConnectProviderInput{OpenIDConnectProviderArn: aws.String(old.ARN),
		Tags: []types.Tag{{Key: aws.String("keypost.dev/moved-at"), Value: aws.String(at.UTC().Format(time.RFC3339))}}})
	must(t, err)
}

// finished checks what --finish left, and said.
func (r *movingRole) finished(t *testing.T, said string) {
	for _, want := range []string{"aws s3 rm s3://prod-a-oidc --recursive", "ccoctl aws delete"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	state := r.account.State()
	if len(state.Providers) != 1 || state.Providers[0].URL != newIssuer || len(state.Roles) != 1 || strings.Contains(state.Roles[0].Trust, bucketHost) {
		t.Errorf("left over: %+v", state)
	}
}
