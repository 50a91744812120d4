package fakeaws

import (
	"net/url"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
)

func TestARoleIsReadBackAsItWasMade(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	c, ctx := iamOf(s), t.Context()
	made := must(c.CreateRole(ctx, &iam.CreateRoleInput{
		RoleName: aws.String("Prod-ns"), AssumeRolePolicyDocument: aws.String(trustText), Description: aws.String("for ns"),
		PermissionsBoundary: aws.String("arn:aws:iam::123456789012:policy/edge"),
		Tags:                []types.Tag{{Key: aws.String("Name"), Value: aws.String("prod")}},
	}))(t).Role
	if got := *made.Arn; got != "arn:aws:iam::123456789012:role/Prod-ns" {
		t.Error(got)
	}
	got := must(c.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String("prod-NS")}))(t).Role
	if text, _ := url.PathUnescape(*got.AssumeRolePolicyDocument); text != trustText {
		t.Error(text)
	}
	if *got.PermissionsBoundary.PermissionsBoundaryArn != "arn:aws:iam::123456789012:policy/edge" || *got.Description != "for ns" ||
		len(got.Tags) != 1 || *got.Tags[0].Value != "prod" || *got.MaxSessionDuration != 3600 {
		t.Errorf("%+v", got)
	}
	_, err := c.CreateRole(ctx, &iam.CreateRoleInput{RoleName: aws.String("PROD-NS"), AssumeRolePolicyDocument: aws.String(trustText)})
	refused(t, err, "EntityAlreadyExists", "Role with name PROD-NS already exists.")
}
