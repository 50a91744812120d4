package main

import (
	"context"
	"fmt"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
)

const (
	requested    = 20 // CredentialsRequests
	cloudLatency = 100 * time.Millisecond
	// leastRatio: create-all must be so many times as fast as the same with one call at a time.
	leastRatio = 3.0
)

// ccoctl took 9.0 s and 70 calls for 20 requests at AWS under the same latency.
const (
	ccoctlAWSTime  = 9 * time.Second
	ccoctlAWSCalls = 70
)

// What the requests for each cloud ask for.
const (
	awsSpec   = `kind: AWSProviderSpec, statementEntries: [{effect: Allow, action: ["s3:GetObject"], resource: "*"}]`
	gcpSpec   = `kind: GCPProviderSpec, permissions: [compute.zones.list, compute.instances.get], skipServiceCheck: true`
	azureSpec = `kind: AzureProviderSpec, permissions: [Microsoft.Compute/disks/read, Microsoft.Compute/disks/write]`
)

// contest is a cloud with what create-all may cost there. Zero is not a bound.
type contest struct {
	name                   string
	requests               int
	seconds, calls, repeat bar
	least                  float64 // ratio
	ccoctl                 *spent  // measured before; nil: it was not

	spec string // the provider's, in every request
	open func(b *bench, p premises) (cloud, error)
}

func contests() []contest {
	return []contest{
		{name: "AWS", requests: requested, seconds: 3.0, calls: 75, repeat: 1.0, open: openAWS, spec: awsSpec,
			ccoctl: &spent{took: ccoctlAWSTime, calls: ccoctlAWSCalls}},
		{name: "GCP", requests: requested, least: leastRatio, open: openGCP, spec: gcpSpec},
		{name: "Azure", requests: requested, least: leastRatio, open: openAzure, spec: azureSpec},
		// Two of its identities have three federated credentials each: what it takes is Azure's rate for one identity.
		{name: "Azure, a release", requests: released, open: openAzure, spec: azureSpec},
	}
}

// cloud is a cloud with nothing in it.
type cloud struct {
	record *fakecloud.Record
	// create runs create-all, as it is or with one call at a time.
	create func(ctx context.Context, oneByOne bool) error
	close  func()
}

// spent is what a run took.
type spent struct {
	took                     time.Duration
	calls, writes, throttled int
}

// spend makes a run and counts what it takes.
func (c cloud) spend(run func() error) (spent, error) {
	c.record.ResetCalls()
	began := time.Now()
	err := run()
	s := spent{took: time.Since(began)}
	for _, call := range c.record.Calls() {
		s.calls++
		if call.Write {
			s.writes++
		}
		if isThrottled(call.Code) {
			s.throttled++
		}
	}
	return s, err
}

// isThrottled reports whether a call was refused since there were too many, by any cloud's name for that.
func isThrottled(code string) bool {
	switch code {
	case "Throttling", "RESOURCE_EXHAUSTED", "TooManyRequests":
		return true
	}
	return false
}

// course is what a contest has come to.
type course struct {
	contest
	first, again, single spent
}

// ratio is how many times as fast as with one call at a time it was.
func (c course) ratio() float64 { return float64(c.single.took) / float64(c.first.took) }

// provisioning runs create-all for a release in each cloud, every call of which takes a while longer; again, when all is there; and
// in another such cloud with one call at a time.
func (b *bench) provisioning(ctx context.Context, r *report) error {
	site, err := b.publish(ctx)
	if err != nil {
		return err
	}
	defer b.stopAll()
	r.table(fmt.Sprintf("create-all, each call %v longer, within the clouds' limits; the issuer is served already", cloudLatency),
		"", "requests", "calls", "seconds", "one by one", "ratio", "throttled", "again", "writes again")
	defer r.end()
	for _, c := range contests() {
		done := course{contest: c}
		if err := b.compete(ctx, site, &done); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		r.course(done)
	}
	return nil
}

// compete runs everything of one contest.
func (b *bench) compete(ctx context.Context, site issuerSite, c *course) error {
	for _, oneByOne := range []bool{false, true} {
		p, err := b.premises(site, c.contest, oneByOne)
		if err != nil {
			return err
		}
		cloud, err := c.open(b, p)
		if err != nil {
			return err
		}
		run := func() error { return cloud.create(ctx, oneByOne) }
		if oneByOne {
			c.single, err = cloud.spend(run)
		} else if c.first, err = cloud.spend(run); err == nil {
			c.again, err = cloud.spend(run)
		}
		cloud.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// course prints a contest, and judges it.
func (r *report) course(c course) {
	bounded := func(text string, value float64, most bar, format string) string {
		if most == 0 {
			return text
		}
		return text + " " + r.verdict(value, most, format)
	}
	ratio := fmt.Sprintf("%.1f", c.ratio())
	if c.least != 0 {
		ratio += " " + r.atLeast(c.ratio(), c.least, "%.1f")
	}
	r.row(c.name, fmt.Sprint(c.requests), bounded(fmt.Sprint(c.first.calls), float64(c.first.calls), c.calls, "%.0f"),
		bounded(seconds(c.first), c.first.took.Seconds(), c.seconds, "%.1f s"), seconds(c.single), ratio, fmt.Sprint(c.first.throttled),
		bounded(seconds(c.again), c.again.took.Seconds(), c.repeat, "%.1f s"), fmt.Sprint(c.again.writes)+" "+r.verdict(float64(c.again.writes), 0, "%.0f"))
	if c.ccoctl != nil {
		r.row("  ccoctl", "", fmt.Sprint(c.ccoctl.calls), seconds(*c.ccoctl), "", fmt.Sprintf("%.1f", float64(c.ccoctl.took)/float64(c.first.took)),
			fmt.Sprint(c.ccoctl.throttled), "", "")
	}
}

func seconds(s spent) string { return fmt.Sprintf("%.1f s", s.took.Seconds()) }
