package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/test/fakeaws"
)

const movedFrom, movedTo = "https://prod-a-oidc.s3.us-east-1.amazonaws.com", "https://oidc.example.com/prod-a"

// moveFixture is a cluster of ccoctl's with two roles, about to move.
type moveFixture struct {
	*awsCluster
	plane      *fakePlane
	kubeconfig string
}

func newMove(t *testing.T) *moveFixture {
	t.Helper()
	f := &moveFixture{awsCluster: newCluster(t, fakeaws.Options{}), plane: &fakePlane{pods: `{"items":[]}`, issuers: []string{movedFrom, movedFrom}}}
	file := filepath.Join(f.out(), ccoctl.PublicKeyName)
	data, err := os.ReadFile(file)
	checked{t}.Check(err)
	keys, err := pubkey.Parse(file, data)
	checked{t}.Check(err)
	f.plane.key = keys[0]
	f.kubeconfig, err = f.plane.listen(f.dir)
	checked{t}.Check(err)
	for _, s := range f.plane.servers {
		t.Cleanup(s.Close)
	}
	f.makeOld(t)
	f.aws.ResetCalls()
	return f
}

const movedFromARN = "arn:aws:iam::123456789012:oidc-provider/prod-a-oidc.s3.us-east-1.amazonaws.com"

func (f *moveFixture) makeOld(t *testing.T) {
	t.Helper()
	const tag = "openshift.io/cloud-credential-operator/prod-a"
	checked{t}.Check(askIAM(f.aws, url.Values{"Action": {"CreateOpenIDConnectProvider"}, "Url": {movedFrom},
		"ClientIDList.member.1": {"openshift"}, "Tags.member.1.Key": {tag}, "Tags.member.1.Value": {"owned"}}))
	for _, name := range []string{"a", "b"} {
		trust := fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Federated":%q},"Action":"sts:AssumeRoleWithWebIdentity",`+
			`"Condition":{"StringEquals":{"%s:sub":["system:serviceaccount:ns:%s"]}}}]}`, movedFromARN, strings.TrimPrefix(movedFrom, "https://"), name)
		checked{t}.Check(askIAM(f.aws, url.Values{"Action": {"CreateRole"}, "RoleName": {"prod-a-ns-" + name},
			"AssumeRolePolicyDocument": {trust}, "Tags.member.1.Key": {tag}, "Tags.member.1.Value": {"owned"}}))
	}
}

// switched has every kube-apiserver sign as the new issuer, for long enough.
func (f *moveFixture) switched(t *testing.T) {
	t.Helper()
	f.plane.mu.Lock()
	f.plane.issuers = []string{movedTo, movedTo}
	f.plane.mu.Unlock()
	checked{t}.Check(askIAM(f.aws, url.Values{"Action": {"TagOpenIDConnectProvider"}, "OpenIDConnectProviderArn": {movedFromARN},
		"Tags.member.1.Key": {"keypost.dev/moved-at"}, "Tags.member.1.Value": {cli.Stamp(time.Now().Add(-2 * time.Hour))}}))
	f.aws.ResetCalls()
	cmd := exec.CommandContext(t.Context(), "keypost", "issuer", "set", "prod-a", "--token-lifetime", "1h")
	cmd.Env = f.env
	checked{t}.Check(cmd.Run())
}

func (f *moveFixture) command(ctx context.Context, more ...string) *exec.Cmd {
	args := []string{"aws", "migrate", "--from-issuer-url", movedFrom, "--issuer-url", movedTo, "--jwks", filepath.Join(f.out(), ccoctl.PublicKeyName),
		"--kubeconfig", f.kubeconfig,
		"--dev"}
	cmd := exec.CommandContext(ctx, "keypost", append(args, more...)...)
	cmd.Env = f.env
	return cmd
}

func (f *moveFixture) migrate(t *testing.T, more ...string) {
	t.Helper()
	if out, err := f.command(t.Context(), more...).CombinedOutput(); err != nil {
		t.Fatalf("migrate %v: %v\n%s", more, err, out)
	}
}

// killAt runs migrate and kills it after call n took effect, before its reply is sent.
func (f *moveFixture) killAt(t *testing.T, n int, more ...string) {
	t.Helper()
	if !killAt(t, f.aws, f.command(t.Context(), more...), n) {
		t.Fatalf("migrate was not killed at call %d", n)
	}
}

// Wherever migrate is killed, at no time is a role without trust in the issuer that the cluster signs as, and the next
// run completes it.
func TestMigrateSurvivesAKillAfterEveryCall(t *testing.T) {
	whole := newMove(t)
	whole.migrate(t)
	both, begin := describe(whole.aws.State()), len(whole.aws.Calls())
	whole.switched(t)
	whole.migrate(t, "--finish")
	moved, finish := describe(whole.aws.State()), len(whole.aws.Calls())
	if begin < 6 || finish < 6 || strings.Contains(moved, "prod-a-oidc") {
		t.Fatalf("%d and %d calls lead to\n%s", begin, finish, moved)
	}
	for n := 1; n <= begin; n++ {
		t.Run(fmt.Sprintf("call %d of %d", n, begin), func(t *testing.T) {
			t.Parallel()
			f := newMove(t)
			f.killAt(t, n)
			f.trusts(t, movedFrom)
			f.migrate(t)
			f.holds(t, both)
		})
	}
	for n := 1; n <= finish; n++ {
		t.Run(fmt.Sprintf("call %d of %d with --finish", n, finish), func(t *testing.T) {
			t.Parallel()
			f := newMove(t)
			f.migrate(t)
			f.switched(t)
			f.killAt(t, n, "--finish")
			f.trusts(t, movedTo)
			f.migrate(t, "--finish")
			f.holds(t, moved)
		})
	}
}

func (f *moveFixture) trusts(t *testing.T, issuer string) {
	t.Helper()
	s := f.aws.State()
	found := false
	for _, p := range s.Providers {
		found = found || p.URL == issuer
	}
	for _, r := range s.Roles {
		found = found && strings.Contains(r.Trust, "oidc-provider/"+strings.TrimPrefix(issuer, "https://"))
	}
	if !found || len(s.Roles) != 2 {
		t.Errorf("the cluster signs as %s, and the account holds\n%s", issuer, describe(s))
	}
}

func (f *moveFixture) holds(t *testing.T, want string) {
	t.Helper()
	if got := describe(f.aws.State()); got != want {
		t.Errorf("the account holds\n%s\nand not\n%s", got, want)
	}
}
