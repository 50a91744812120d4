package fakeaws

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestTheAWSCommandLineClientIsServed shows that a second implementation of the protocol finds what it needs.
func TestTheAWSCommandLineClientIsServed(t *testing.T) {
	t.Parallel()
	client, err := exec.LookPath("aws")
	if err != nil {
		t.Skip("the AWS command line client is not installed: apt-get install awscli")
	}
	s := Start(t, Options{PageSize: 1})
	run := func(arguments ...string) (map[string]any, string) {
		c := exec.CommandContext(t.Context(), client, append(arguments, "--output", "json")...)
		c.Env = append(os.Environ(), s.Env()...)
		var out, complaints strings.Builder
		c.Stdout, c.Stderr = &out, &complaints
		if c.Run() != nil {
			return nil, complaints.String()
		}
		var result map[string]any
		if out.Len() > 0 {
			if err := json.Unmarshal([]byte(out.String()), &result); err != nil {
				t.Fatal(err, out.String())
			}
		}
		return result, ""
	}
	for _, name := range []string{"a", "b"} {
		_, bad := run("iam", "create-role", "--role-name", name, "--assume-role-policy-document", trustText, "--tags", "Key=Name,Value=prod")
		if bad != "" {
			t.Fatal(bad)
		}
	}
	got, bad := run("iam", "get-role", "--role-name", "a")
	if bad != "" {
		t.Fatal(bad)
	}
	role, _ := got["Role"].(map[string]any)
	policy, _ := role["AssumeRolePolicyDocument"].(map[string]any)
	if policy["Version"] != "2012-10-17" || role["Arn"] != "arn:aws:iam::123456789012:role/a" {
		t.Errorf("the policy is not read as JSON: %v", role)
	}
	got, bad = run("iam", "list-roles")
	if roles, _ := got["Roles"].([]any); len(roles) != 2 || bad != "" {
		t.Error(got, bad)
	}
	if _, bad = run("iam", "get-role", "--role-name", "absent"); !strings.Contains(bad, "(NoSuchEntity)") {
		t.Error(bad)
	}
	if got, bad = run("sts", "get-caller-identity"); got["Account"] != "123456789012" {
		t.Error(got, bad)
	}
}
