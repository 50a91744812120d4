package main

import (
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakeaws"
	"github.com/keypost/keypost/test/fakecloud"
)

// awsCluster is all that create-all needs in AWS.
type awsCluster struct {
	*clusterFixture
	aws *fakeaws.Server
}

func newCluster(t *testing.T, o fakeaws.Options) *awsCluster {
	t.Helper()
	f := &awsCluster{newClusterFixture(t, "testdata/ccoctl/requests"), fakeaws.Start(t, o)}
	f.env = append(f.env, f.aws.Env()...)
	f.cloud, f.holds = f.aws, func() string { return describe(f.aws.State()) }
	f.creates = []string{"aws", "create-all", "--name", "prod-a", "--region", "us-east-1"}
	return f
}

// A reply that is lost after the call took effect, a refusal for being too fast, a server that is down for a moment:
// one run gets past all of them.
func TestCreateAllGetsPastFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func() fakeaws.Fault{
		"throttled": fakeaws.Throttle, "unavailable": fakeaws.Unavailable, "reply lost": fakecloud.LoseReply,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newCluster(t, fakeaws.Options{ConsistencyDelay: 300 * time.Millisecond})
			var seen atomic.Int64
			f.aws.Fault(func(fakeaws.Call) fakeaws.Fault {
				if seen.Add(1)%4 == 2 {
					return fault()
				}
				return fakeaws.Fault{}
			})
			out := f.createAll(t)
			if !strings.Contains(out, "Identity Provider created with ARN: arn:aws:iam::") { // openshift/release gives up without it
				t.Errorf("it does not say that the provider was created:\n%s", out)
			}
			if s := f.aws.State(); len(s.Providers) != 1 || len(s.Roles) != 2 {
				t.Errorf("the account holds\n%s", describe(s))
			}
		})
	}
}

// A caller that may do what the README's policy allows, and nothing else, gets through all of it.
func TestLeastPermissionsSuffice(t *testing.T) {
	t.Parallel()
	f := newCluster(t, fakeaws.Options{Policy: provisionReadme(t, "json")[0]})
	f.createAll(t)
	f.createAll(t, "--client-id", "vault", "--user-tags", "team=a", "--prune",
		"--permissions-boundary-arn", "arn:aws:iam::123456789012:policy/b")
	for _, args := range [][]string{{"--dry-run"}, {}} {
		args = append([]string{"aws", "delete", "--name", "prod-a", "--region", "us-east-1"}, args...)
		cmd := exec.CommandContext(t.Context(), "keypost", args...)
		cmd.Env = f.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if left := describe(f.aws.State()); left != "" {
		t.Errorf("left over:\n%s", left)
	}
	for _, c := range f.aws.Calls() {
		if c.Code == "AccessDenied" {
			t.Errorf("%s was denied", c.Action)
		}
	}
}
