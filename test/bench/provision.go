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
	roles      = 16
	awsLatency = 100 * time.Millisecond
	// awsBar: making roles must be 2.5 times as fast as one call at a time.
	awsBar bar = 1 / 2.5
)

// provisioning makes a provider and roles in an account whose every call takes a while longer, and compares the time
// that it takes with the time that its calls take one after the other.
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
	began := time.Now()
	if err := makeRoles(ctx); err != nil {
		return fmt.Errorf("make %d roles: %w", roles, err)
	}
	took, oneByOne := time.Since(began), time.Duration(0)
	for _, c := range aws.Calls() {
		oneByOne += c.Took
	}
	r.provisioned(took, oneByOne, len(aws.Calls()))
	return nil
}

func (r *report) provisioned(took, oneByOne time.Duration, calls int) {
	ratio := float64(took) / float64(oneByOne)
	r.table(fmt.Sprintf("A provider and %d roles at AWS, each call %v longer", roles, awsLatency), "", "", "of the calls' own time", "")
	r.row(fmt.Sprintf("%d calls, at most %d at once", calls, awsiam.Parallel), took.Round(time.Millisecond).String(), fmt.Sprintf("%.2f", ratio), r.verdict(ratio, awsBar, "%.2f"))
	r.end()
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
			Policy: []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:GetObject"],"Resource":"*"}]}`),
		})
	}
	more, err := c.PlanRoles(ctx, awsiam.Trust{ProviderARN: account.ProviderARN(url), Issuer: url, Audiences: audiences}, all)
	if err != nil {
		return err
	}
	return both.Then(more).Apply(ctx, awsiam.Parallel, func(plan.Action, []string, error) {})
}
