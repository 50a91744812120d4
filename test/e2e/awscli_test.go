//go:build e2e

package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestAWSCLIAndKeypost: create-all, drift made by hand with Amazon's own client, --diff shows it, a run with --prune
// repairs it, delete, delete again; on two implementations of AWS.
func TestAWSCLIAndKeypost(t *testing.T) {
	if _, err := exec.LookPath("aws"); err != nil {
		t.Skip("Amazon's client is not here: apt-get install awscli")
	}
	ca := newAuthority(t)
	s := newStore(t, ca)
	publicKey := filepath.Join(t.TempDir(), "sa.pub")
	writePublicKey(t, publicKey, newRSAKey(t, 2048))
	s.publishedLongAgo(t, "prod-a", newIssuer, publicKey)
	s.run(t)
	t.Run("fakeaws", func(t *testing.T) {
		c := newCLIScene(t, s, publicKey, newAccount(t, ca).Env())
		c.clientIDs = true
		c.tell(t)
	})
	t.Run("moto", func(t *testing.T) { newCLIScene(t, s, publicKey, startMoto(t)).tell(t) })
}

// startMoto starts moto, an implementation of AWS by others, and returns the environment that leads to it.
func startMoto(t *testing.T) []string {
	t.Helper()
	program, err := exec.LookPath("moto_server")
	if err != nil {
		t.Skip("moto is not here: pip install 'moto[server]'")
	}
	const url = "http://127.0.0.1:5000"
	p := start(t, "moto", program, "-H", "127.0.0.1", "-p", "5000")
	p.await(t, "ready", func(ctx context.Context) error { return expect(ctx, http.DefaultClient, url+"/moto-api/", "") })
	return []string{
		"AWS_ENDPOINT_URL=" + url, "AWS_ACCESS_KEY_ID=testing", "AWS_SECRET_ACCESS_KEY=testing", "AWS_REGION=us-east-1",
		"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
	}
}

// cliScene is an account that keypost and Amazon's client share: each changes it behind the other's back.
type cliScene struct {
	server    *server
	env       []string // leads both to the account
	create    []string // arguments
	clientIDs bool     // this AWS can take client IDs away (moto 5 cannot)
}

func newCLIScene(t *testing.T, s *server, publicKey string, env []string) *cliScene {
	t.Helper()
	return &cliScene{server: s, env: env, create: []string{
		"create-all", "--name", "prod-a", "--region", "us-east-1", "--public-key-file", publicKey, "--issuer-url", newIssuer,
		"--credentials-requests-dir", writeRequests(t), "--output-dir", t.TempDir(),
	}}
}

// aws runs Amazon's client. Older ones do not read AWS_ENDPOINT_URL.
func (c *cliScene) aws(t *testing.T, args ...string) result {
	t.Helper()
	args = append([]string{"--endpoint-url", setting(c.env, "AWS_ENDPOINT_URL"), "--region", "us-east-1", "--output", "text", "iam"}, args...)
	return command(t, append(c.env, "AWS_PAGER="), "", "aws", args...)
}

func (c *cliScene) keypost(t *testing.T, args ...string) result {
	t.Helper()
	return c.server.keypostAWS(t, c.env, args...)
}

func (c *cliScene) tell(t *testing.T) {
	provider := "arn:aws:iam::123456789012:oidc-provider/" + strings.TrimPrefix(newIssuer, "https://")
	if r := c.keypost(t, c.create...); !strings.Contains(r.stderr, "Identity Provider created with ARN: "+provider+"\n") || r.code != 0 {
		t.Fatalf("create-all: exit code %d\n%s", r.code, r.stderr)
	}
	if r := c.keypost(t, append(c.create, "--diff")...); r.code != 0 {
		t.Errorf("--diff right after: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	c.drift(t, provider)
	drifted := c.keypost(t, append(c.create, "--diff")...)
	wants := []string{"IAM role " + roleName, "s3:*", "system:serviceaccount:default:intruder"}
	if c.clientIDs {
		wants = append(wants, provider, "openshift")
	}
	for _, want := range wants {
		if drifted.code != 3 || !strings.Contains(drifted.stdout, want) {
			t.Errorf("--diff after the drift: exit code %d, want 3 and %q\n%s%s", drifted.code, want, drifted.stdout, drifted.stderr)
		}
	}
	c.keypost(t, append(c.create, "--prune")...).ok(t)
	if r := c.keypost(t, append(c.create, "--diff")...); r.code != 0 {
		t.Errorf("--diff after the repair: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	c.repaired(t, provider)
	c.sessionsEnded(t)
	c.deleted(t, provider)
}

// drift is what somebody does by hand.
func (c *cliScene) drift(t *testing.T, provider string) {
	t.Helper()
	intruder := strings.ReplaceAll(ccoctlTrust(newIssuer), "default:sa1", "default:intruder")
	c.aws(t, "update-assume-role-policy", "--role-name", roleName, "--policy-document", intruder).ok(t)
	c.aws(t, "put-role-policy", "--role-name", roleName, "--policy-name", roleName, "--policy-document",
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:*"],"Resource":"*"}]}`).ok(t)
	if c.clientIDs {
		c.aws(t, "remove-client-id-from-open-id-connect-provider", "--open-id-connect-provider-arn", provider, "--client-id", "openshift").ok(t)
	}
}

// repaired looks with Amazon's client.
func (c *cliScene) repaired(t *testing.T, provider string) {
	t.Helper()
	role := c.aws(t, "get-role", "--role-name", roleName, "--query", "Role.AssumeRolePolicyDocument", "--output", "json").ok(t)
	if !strings.Contains(role, "system:serviceaccount:default:sa1") || strings.Contains(role, "intruder") || !strings.Contains(role, ":aud") {
		t.Errorf("trust policy %s", role)
	}
	if policy := c.aws(t, "get-role-policy", "--role-name", roleName, "--policy-name", roleName, "--output", "json").ok(t); strings.Contains(policy, "s3:*") || !strings.Contains(policy, "s3:ListAllMyBuckets") {
		t.Errorf("permissions policy %s", policy)
	}
	if ids := c.aws(t, "get-open-id-connect-provider", "--open-id-connect-provider-arn", provider, "--query", "ClientIDList").ok(t); !strings.Contains(ids, "openshift") {
		t.Errorf("client IDs %s", ids)
	}
}

// sessionsEnded runs what `keypost key revoke` prints for AWS, as it is printed: the roles whose sessions a stolen key may have
// opened are found, and no other, and get the policy of AWS's own console.
func (c *cliScene) sessionsEnded(t *testing.T) {
	t.Helper()
	c.aws(t, "create-role", "--role-name", "another", "--assume-role-policy-document", ccoctlTrust(newIssuer+"-b")).ok(t)
	apart := t.TempDir()
	command(t, nil, "", "cp", filepath.Join(c.server.store, "prod-a.yaml"), apart).ok(t)
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
	c.aws(t, "delete-role-policy", "--role-name", roleName, "--policy-name", "AWSRevokeOlderSessions").ok(t)
	c.aws(t, "delete-role", "--role-name", "another").ok(t)
}

// deleted: what was made goes, what Amazon's client made stays, and a second time is no error.
func (c *cliScene) deleted(t *testing.T, provider string) {
	t.Helper()
	c.aws(t, "create-role", "--role-name", "theirs", "--assume-role-policy-document", ccoctlTrust(newIssuer)).ok(t)
	c.keypost(t, "delete", "--name", "prod-a", "--region", "us-east-1").ok(t)
	if roles := strings.TrimSpace(c.aws(t, "list-roles", "--query", "Roles[].RoleName").ok(t)); roles != "theirs" {
		t.Errorf("roles %q, want theirs alone", roles)
	}
	if r := c.aws(t, "get-open-id-connect-provider", "--open-id-connect-provider-arn", provider); r.code == 0 || !strings.Contains(r.stderr, "NoSuchEntity") {
		t.Errorf("the provider is there still: %s%s", r.stdout, r.stderr)
	}
	c.keypost(t, "delete", "--name", "prod-a", "--region", "us-east-1").ok(t)
}
