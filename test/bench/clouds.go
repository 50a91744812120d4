package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/keypost/keypost/provision/aws"
	"github.com/keypost/keypost/provision/azure"
	"github.com/keypost/keypost/provision/gcp"
	"github.com/keypost/keypost/test/fakeaws"
	"github.com/keypost/keypost/test/fakeazure"
	"github.com/keypost/keypost/test/fakegcp"
)

// openAWS has no limit of writes: IAM's is not documented.
func openAWS(_ *bench, p premises) (cloud, error) {
	s, err := fakeaws.New(fakeaws.Options{Latency: cloudLatency})
	if err != nil {
		return cloud{}, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return cloud{}, err
	}
	go s.Serve(ln) //nolint:errcheck // a client's error says more
	s.URL = "http://" + ln.Addr().String()
	o := aws.CreateOptions{
		Options: aws.Options{Options: p.options(), Region: "us-east-1", ClientIDs: []string{"openshift", "sts.amazonaws.com"}, Usual: true},
		Roles:   &aws.RequestedRoles{Dir: p.requests},
	}
	return cloud{record: &s.Record, close: func() { _ = ln.Close() }, create: func(ctx context.Context, oneByOne bool) error {
		o := o
		if oneByOne {
			o.Config = append(o.Config, config.WithHTTPClient(&http.Client{Transport: inTurn(http.DefaultTransport)}))
		}
		_, err := aws.Create(ctx, o)
		return err
	}}, setenv(s.Env())
}

// openGCP keeps to Google's quotas for writes: 600 a minute, and 60 of pools and providers (https://cloud.google.com/iam/quotas).
func openGCP(b *bench, p premises) (cloud, error) {
	s := fakegcp.New(fakegcp.Options{Latency: cloudLatency, WritesPerSecond: 10, FederationWritesPerMinute: 60, WriteBurst: 60})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return cloud{}, err
	}
	go s.Serve(ln) //nolint:errcheck // a client's error says more
	s.URL = "http://" + ln.Addr().String()
	env, err := s.Env()
	if err != nil {
		return cloud{}, err
	}
	o := gcp.CreateOptions{
		Options:  gcp.Options{Options: p.options(), Project: "my-project", Audiences: []string{"openshift"}, KeepAudiences: true},
		Accounts: &gcp.RequestedAccounts{Dir: p.requests},
	}
	c := cloud{record: &s.Record, close: func() { _ = ln.Close() }, create: func(ctx context.Context, oneByOne bool) error {
		o := o
		o.Transport = s.Client().Transport
		if oneByOne {
			o.Transport = inTurn(o.Transport)
		}
		_, err := gcp.Create(ctx, o)
		return err
	}}
	return c, setenv(env)
}

// openAzure keeps to the documented rates of federated credentials, and to Resource Manager's for writes of a subscription: 10 a
// second after 200 (https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling).
func openAzure(b *bench, p premises) (cloud, error) {
	const tenant, subscription = "99999999-8888-7777-6666-555555555555", "11111111-2222-3333-4444-555555555555"
	s := fakeazure.New(fakeazure.Options{Latency: cloudLatency, FederationRate: 1, WritesPerSecond: 10, WriteBurst: 200, Tenant: tenant, Subscription: subscription})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return cloud{}, err
	}
	go s.Serve(ln) //nolint:errcheck // a client's error says more
	s.URL = "http://" + ln.Addr().String()
	o := azure.CreateOptions{
		Options: azure.Options{Options: p.options(), Subscription: subscription, Tenant: tenant, Region: "centralus", OIDCGroup: installed + "-oidc",
			InstallGroup: installed, Audience: azure.DefaultAudience},
		Identities: &azure.RequestedIdentities{Dir: p.requests},
	}
	c := cloud{record: &s.Record, close: func() { _ = ln.Close() }, create: func(ctx context.Context, oneByOne bool) error {
		o := o
		o.Transport = s.Client()
		if oneByOne {
			o.Transport, o.Parallel = &http.Client{Transport: inTurn(s.Client().Transport)}, 1
		}
		_, err := azure.Create(ctx, o)
		return err
	}}
	return c, setenv(s.Env())
}

// setenv gives this process the variables of a cloud's caller.
func setenv(list []string) error {
	for _, v := range list {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}
