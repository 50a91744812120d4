package fakeaws

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
)

const boundaryARN = "arn:aws:iam::123456789012:policy/edge"

func newRoleInput(name string) *makeRole {
	return &makeRole{RoleName: &name, AssumeRolePolicyDocument: aws.String(trustText)}
}

func TestATrustPolicyComesBackInAWSsForm(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	in := newRoleInput("r")
	in.AssumeRolePolicyDocument = aws.String(`{ "Statement": { "Action": ["sts:AssumeRole"], "Principal": {"AWS": ["*"]},
		"Condition": {"Bool": {"aws:SecureTransport": [true]}, "StringLike": {"a:b": ["<&>", "*"]}}, "Effect": "Allow" }, "Version": "2012-10-17" }`)
	must(iamOf(s).CreateRole(t.Context(), in))(t)
	want := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole",` +
		`"Condition":{"Bool":{"aws:SecureTransport":"true"},"StringLike":{"a:b":["<&>","*"]}}}]}`
	if got := s.State().Roles[0].Trust; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestWhatAWSRefusesOfANewRole(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{ManagedPolicies: []string{boundaryARN}})
	c := iamOf(s)
	must(c.CreateRole(t.Context(), newRoleInput("There")))(t)
	for name, x := range map[string]struct {
		change     func(*makeRole)
		code, says string
	}{
		"the name in another case": {func(in *makeRole) { in.RoleName = aws.String("tHERE") },
			"EntityAlreadyExists", "Role with name tHERE already exists."},
		"65 letters": {func(in *makeRole) { in.RoleName = &texts(1, 65)[0] },
			"ValidationError", "1 validation error detected: Value '" + texts(1, 65)[0] +
				"' at 'roleName' failed to satisfy constraint: Member must have length less than or equal to 64"},
		"a letter not allowed": {func(in *makeRole) { in.RoleName = aws.String("a/b") },
			"ValidationError", "The specified value for roleName is invalid. " +
				"It must contain only alphanumeric characters and/or the following: +=,.@_-"},
		"a broken path":      {func(in *makeRole) { in.Path = aws.String("p") }, "ValidationError", "path"},
		"a long description": {func(in *makeRole) { in.Description = &texts(1, 1001)[0] }, "ValidationError", "description"},
		"half an hour": {func(in *makeRole) { in.MaxSessionDuration = aws.Int32(1800) },
			"ValidationError", "greater than or equal to 3600"},
		"thirteen hours": {func(in *makeRole) { in.MaxSessionDuration = aws.Int32(46800) },
			"ValidationError", "less than or equal to 43200"},
		"a boundary by name": {func(in *makeRole) { in.PermissionsBoundary = aws.String("policy-of-the-organization") },
			"InvalidInput", "is not valid"},
		"no such boundary": {func(in *makeRole) { in.PermissionsBoundary = aws.String(boundaryARN + "x") },
			"NoSuchEntity", "Scope ARN: " + boundaryARN + "x does not exist or is not attachable."},
		"51 tags": {func(in *makeRole) { in.Tags = tagged(texts(51, 3)...) }, "ValidationError", "tags"},
		"one tag in two cases": {func(in *makeRole) { in.Tags = tagged("Name", "NAME") },
			"InvalidInput", "Duplicate tag keys found. Please note that Tag keys are case insensitive."},
		"a policy of 2,049 letters": {func(in *makeRole) { in.AssumeRolePolicyDocument = aws.String(padded(2049)) },
			"LimitExceeded", "Cannot exceed quota for ACLSizePerRole: 2048"},
		"a letter beyond Latin-1": {func(in *makeRole) {
			in.AssumeRolePolicyDocument = aws.String(strings.Replace(trustText, "ns:sa", "ns:ş", 1))
		}, "ValidationError", "printable ASCII"},
		"two mistakes": {func(in *makeRole) { in.RoleName, in.Path = &texts(1, 65)[0], aws.String("p") },
			"ValidationError", "2 validation errors detected: "},
	} {
		t.Run(name, func(t *testing.T) {
			in := newRoleInput("new")
			x.change(in)
			_, err := c.CreateRole(t.Context(), in)
			refused(t, err, x.code, x.says)
		})
	}
	if n := len(s.State().Roles); n != 1 {
		t.Errorf("a refused call has made a role: there are %d", n)
	}
	in := newRoleInput(texts(1, 64)[0])
	in.AssumeRolePolicyDocument, in.PermissionsBoundary = aws.String(padded(2048)), aws.String(boundaryARN)
	must(c.CreateRole(t.Context(), in))(t)
}

// padded is a good trust policy of n characters.
func padded(n int) string {
	return strings.Replace(trustText, "ns:sa", "ns:"+strings.Repeat("s", n-len(trustText)+2), 1)
}

func TestARoleGoesOnlyWithoutPolicies(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	c, ctx, r := iamOf(s), t.Context(), aws.String("r")
	must(c.CreateRole(ctx, newRoleInput("r")))(t)
	policy, arn := aws.String("p"), aws.String("arn:aws:iam::aws:policy/ReadOnlyAccess")
	must(c.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: r, PolicyName: policy, PolicyDocument: aws.String(permissions)}))(t)
	must(c.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: r, PolicyArn: arn}))(t)
	_, err := c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: r})
	refused(t, err, "DeleteConflict", "Cannot delete entity, must detach all policies first.")
	must(c.DetachRolePolicy(ctx, &iam.DetachRolePolicyInput{RoleName: r, PolicyArn: arn}))(t)
	_, err = c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: r})
	refused(t, err, "DeleteConflict", "Cannot delete entity, must delete policies first.")
	must(c.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: r, PolicyName: policy}))(t)
	must(c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: r}))(t)
	_, err = c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: r})
	refused(t, err, "NoSuchEntity", "The role with name r cannot be found.")
}

// A role in an instance profile is one that IAM does not delete; the profile holds one role.
func TestARoleInAnInstanceProfileIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{PageSize: 1})
	c, ctx, role := iamOf(s), t.Context(), aws.String("r")
	must(c.CreateRole(ctx, newRoleInput("r")))(t)
	for _, name := range []string{"p", "q"} {
		must(c.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: aws.String(name)}))(t)
		must(c.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: aws.String(name), RoleName: role}))(t)
	}
	list := must(c.ListInstanceProfilesForRole(ctx, &iam.ListInstanceProfilesForRoleInput{RoleName: aws.String("R")}))(t)
	if len(list.InstanceProfiles) != 1 || !list.IsTruncated || *list.InstanceProfiles[0].InstanceProfileName != "p" ||
		*list.InstanceProfiles[0].Roles[0].RoleName != "r" {
		t.Errorf("the first page is %+v", list)
	}
	_, err := c.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: aws.String("p"), RoleName: role})
	refused(t, err, "LimitExceeded", "InstanceSessionsPerInstanceProfile: 1")
	_, err = c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: role})
	refused(t, err, "DeleteConflict", "must remove roles from instance profile first")
	for _, name := range []string{"p", "q"} {
		must(c.RemoveRoleFromInstanceProfile(ctx,
			&iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: aws.String(name), RoleName: role}))(t)
	}
	must(c.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: role}))(t)
}

func TestARaisedQuotaTakesALongerTrustPolicy(t *testing.T) {
	t.Parallel()
	long := strings.Replace(trustText, `"Version"`, `"Id":"`+strings.Repeat("x", 2000)+`","Version"`, 1)
	for limit, fails := range map[int]bool{0: true, 4096: false} {
		in := newRoleInput("r")
		in.AssumeRolePolicyDocument = aws.String(long)
		if _, err := iamOf(Start(t, Options{TrustLimit: limit})).CreateRole(t.Context(), in); (err != nil) != fails {
			t.Errorf("with %d: %v", limit, err)
		}
	}
}

func TestATrustPolicyHasNoNotPrincipal(t *testing.T) {
	t.Parallel()
	in := newRoleInput("r")
	in.AssumeRolePolicyDocument = aws.String(strings.Replace(trustText, `"Principal"`, `"NotPrincipal"`, 1))
	_, err := iamOf(Start(t, Options{})).CreateRole(t.Context(), in)
	refused(t, err, "MalformedPolicyDocument", "NotPrincipal")
}
