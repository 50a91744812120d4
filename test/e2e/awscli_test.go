//go:build e2e

package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestRevokeEndsSessionsInAWS has Amazon's own client run what `keypost key revoke` prints for AWS, as it is printed: the roles whose
// sessions a stolen key may have opened are found, and no other, and get the policy of AWS's own console.
func TestRevokeEndsSessionsInAWS(t *testing.T) {
	if _, err := exec.LookPath("aws"); err != nil {
		t.Skip("Amazon's client is not here: apt-get install awscli")
	}
	ca := newAuthority(t)
	s := newStore(t, ca)
	publicKey := filepath.Join(t.TempDir(), "sa.pub")
	writePublicKey(t, publicKey, newRSAKey(t, 2048))
	s.publishedLongAgo(t, "prod-a", newIssuer, publicKey)
	s.run(t)
	c := &cliScene{env: newAccount(t, ca).Env()}
	s.keypostAWS(t, c.env, "create-all", "--name", "prod-a", "--region", "us-east-1", "--public-key-file", publicKey, "--issuer-url", newIssuer,
		"--credentials-requests-dir", writeRequests(t), "--output-dir", t.TempDir()).ok(t)
	c.aws(t, "create-role", "--role-name", "another", "--assume-role-policy-document", ccoctlTrust(newIssuer+"-b")).ok(t)
	apart := t.TempDir()
	command(t, nil, "", "cp", filepath.Join(s.store, "prod-a.yaml"), apart).ok(t)
	env := []string{"KEYPOST_STORE=file://" + apart}
	kid := strings.Fields(command(t, env, "", binary("keypost"), "key", "list", "prod-a").ok(t))[7] // after the heading
	said := command(t, env, "", binary("keypost"), "key", "revoke", "prod-a", kid, "--why", "stolen", "--leave-empty")
	m := regexp.MustCompile(`
    (aws iam list-roles .*)
    (aws iam put-role-policy .*)
`).FindStringSubmatch(said.stderr)
	if said.code != 0 || m == nil {
		t.Fatalf("exit code %d: %s", said.code, said.stderr)
	}
	here := func(line string) result { // older clients do not read AWS_ENDPOINT_URL
		line = strings.Replace(line, "aws iam ", "aws --endpoint-url "+setting(c.env, "AWS_ENDPOINT_URL")+" --region us-east-1 iam ", 1)
		return command(t, append(c.env, "AWS_PAGER="), "", "sh", "-c", line)
	}
	if roles := strings.TrimSpace(here(m[1]).ok(t)); roles != roleName {
		t.Errorf("%s: %q, want %s", m[1], roles, roleName)
	}
	began := time.Now().Add(-time.Second).UTC().Format(time.RFC3339)
	here(strings.Replace(m[2], " ROLE ", " "+roleName+" ", 1)).ok(t)
	policy := c.aws(t, "get-role-policy", "--role-name", roleName, "--policy-name", "AWSRevokeOlderSessions", "--output", "json").ok(t)
	at := regexp.MustCompile(`"DateLessThan":\s*\{\s*"aws:TokenIssueTime":\s*"([0-9TZ:-]+)"`).FindStringSubmatch(policy)
	if at == nil || at[1] < began || at[1] > time.Now().UTC().Format(time.RFC3339) {
		t.Errorf("the policy %s has the time %v, not one since %s", policy, at, began)
	}
}

// cliScene is an account that Amazon's client asks.
type cliScene struct{ env []string }

// aws runs Amazon's client. Older ones do not read AWS_ENDPOINT_URL.
func (c *cliScene) aws(t *testing.T, args ...string) result {
	t.Helper()
	args = append([]string{"--endpoint-url", setting(c.env, "AWS_ENDPOINT_URL"), "--region", "us-east-1", "--output", "text", "iam"}, args...)
	return command(t, append(c.env, "AWS_PAGER="), "", "aws", args...)
}
