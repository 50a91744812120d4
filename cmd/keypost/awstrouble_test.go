package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakeaws"
)

// run ends a command after what it takes, and returns what it said and how long it took.
func trouble(t *testing.T, env []string, args ...string) (said string, took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "keypost", args...)
	cmd.Env = append(os.Environ(), env...)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("%q succeeded:\n%s", args, out)
	}
	return string(out), time.Since(start)
}

// Nobody listens, nobody is known, no credentials: that is said within seconds, in a sentence that says what to do.
func TestAWSOutOfReachIsSaidSoon(t *testing.T) {
	t.Parallel()
	env := fakeaws.Start(t, fakeaws.Options{}).Env()
	none := slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.Contains(kv, "_KEY") })
	for name, tt := range map[string]struct {
		env  []string
		want string
	}{
		"refused":                     {append(env, "AWS_ENDPOINT_URL=http://127.0.0.1:1"), "sts:GetCallerIdentity: AWS cannot be reached; see the network, the region and HTTPS_PROXY (dial tcp 127.0.0.1:1: connect: connection refused)"},
		"no such host":                {append(env, "AWS_ENDPOINT_URL=http://iam.nowhere.invalid"), "sts:GetCallerIdentity: AWS cannot be reached"},
		"no credentials":              {append(none, "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="), "no AWS credentials were found: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"},
		"a profile that is not there": {append(env, "AWS_PROFILE=nobody"), "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said, took := trouble(t, tt.env, "aws", "delete", "--name", "c1", "--region", "us-east-1")
			if !strings.Contains(said, tt.want) || strings.Count(said, "\n") > 2 {
				t.Errorf("said\n%s\nand not %q", said, tt.want)
			}
			if took > 20*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A call that goes wrong again and again is told of before long, with the reason.
func TestAWSTroubleIsTold(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as nobody may wait without a word")
	}
	t.Parallel()
	s := fakeaws.Start(t, fakeaws.Options{})
	s.Fault(func(c fakeaws.Call) fakeaws.Fault {
		if c.Action == "ListRoles" {
			return fakeaws.Fail(http.StatusInternalServerError, "ServiceFailure", "out of order")
		}
		return fakeaws.Fault{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 14*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "keypost", "aws", "delete", "--name", "c1", "--region", "us-east-1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), s.Env()...)
	out, _ := cmd.CombinedOutput()
	for _, want := range []string{
		"still waiting for AWS: iam:ListRoles takes long (10s so far): out of order (ServiceFailure)",
		"keypost: interrupted; what is done so far stays, and the same command goes on from there\n",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("said\n%s\nand not %q", out, want)
		}
	}
}
