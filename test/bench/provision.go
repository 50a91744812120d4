package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/keypost/keypost/provision/awsiam"
	"github.com/keypost/keypost/provision/plan"
	"github.com/keypost/keypost/test/fakeaws"
)

const (
	roles      = 20
	awsLatency = 100 * time.Millisecond
	// ccoctl takes 9.0 s and 70 calls for 20 requests under the same latency.
	awsSeconds bar = 3.0
	awsCalls   bar = 75
	// awsAgain: seconds that it takes to find nothing to do.
	awsAgain      bar = 1.0
	awsCallsAgain bar = 90 // 82, and a few that the SDK may send again
)

// provisioning makes a provider and roles in an account whose every call takes a while longer, as aws create-all does for a
// release, and then finds them there.
func (r *report) provisioning(ctx context.Context) error {
	aws, err := fakeaws.New(fakeaws.Options{Latency: awsLatency})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close() //nolint:errcheck // it ends with the process
	go aws.Serve(ln) //nolint:errcheck // a client's error says more
	aws.URL = "http://" + ln.Addr().String()
	for _, v := range aws.Env() {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	r.table(fmt.Sprintf("A provider and %d roles at AWS, each call %v longer", roles, awsLatency), "", "", "", "calls", "")
	defer r.end()
	for _, run := range provisionings() {
		aws.ResetCalls()
		began := time.Now()
		if err := makeRoles(ctx); err != nil {
			return fmt.Errorf("make %d roles: %w", roles, err)
		}
		r.provisioned(run, time.Since(began), len(aws.Calls()))
	}
	return nil
}

// provisionRun is one run of a provisioner, and what it may take.
type provisionRun struct {
	name           string
	seconds, calls bar
}

func provisionings() []provisionRun {
	return []provisionRun{{"made", awsSeconds, awsCalls}, {"found as they are", awsAgain, awsCallsAgain}}
}

func (r *report) provisioned(run provisionRun, took time.Duration, calls int) {
	r.row(run.name, fmt.Sprintf("%.2f s", took.Seconds()), r.verdict(took.Seconds(), run.seconds, "%.1f s"), fmt.Sprint(calls), r.verdict(float64(calls), run.calls, "%.0f"))
}

func makeRoles(ctx context.Context) error {
	c, err := awsiam.Open(ctx, awsiam.Options{})
	if err != nil {
		return err
	}
	account, err := c.Account(ctx)
	if err != nil {
		return err
	}
	const url = "https://" + host + "/bench"
	audiences, owner := []string{"openshift", "sts.amazonaws.com"}, awsiam.OwnedBy("bench")
	both, err := c.PlanProvider(ctx, account, awsiam.Provider{URL: url, ClientIDs: audiences, Owner: owner})
	if err != nil {
		return err
	}
	var all []awsiam.Role
	for i := range roles {
		all = append(all, awsiam.Role{
			Name: fmt.Sprintf("bench-%d", i), For: fmt.Sprint(i), Owner: owner, Subjects: []string{fmt.Sprintf("system:serviceaccount:ns:sa-%d", i)},
			Description: "OpenShift role", Exact: true,
			Policy: []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject"],"Resource":"*"}]}`),
		})
	}
	more, err := c.PlanRoles(ctx, awsiam.Trust{ProviderARN: account.ProviderARN(url), Issuer: url, Audiences: audiences}, all)
	if err != nil {
		return err
	}
	return both.Then(more).Apply(ctx, awsiam.Parallel, func(plan.Action, []string, error) {})
}
