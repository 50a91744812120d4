package main

import (
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakeazure"
)

// azureCluster is all that create-all needs in Azure.
type azureCluster struct {
	*clusterFixture
	azure *fakeazure.Server
}

func newAzureCluster(t *testing.T, o fakeazure.Options) *azureCluster {
	t.Helper()
	f := &azureCluster{newClusterFixture(t, "testdata/azure/requests"), fakeazure.Start(t, o)}
	f.reach(t, append(f.azure.Env(), f.azure.Tunnel(t)...))
	f.cloud, f.holds = f.azure, func() string { return describeAzure(f.azure.State()) }
	f.creates = []string{"azure", "create-all", "--name", "prod-a", "--region", "centralus",
		"--subscription-id", "11111111-2222-3333-4444-555555555555", "--tenant-id", "99999999-8888-7777-6666-555555555555"}
	return f
}

// IDs of principals and clients are made of the time, too: with one that stands still two runs can be compared.
func standingStill() time.Time { return time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC) }

func TestAzureCreateAllSurvivesAKillAfterEveryCall(t *testing.T) {
	killedEverywhere(t, func(t *testing.T) *clusterFixture {
		return newAzureCluster(t, fakeazure.Options{VaryCase: true, Now: standingStill}).clusterFixture
	}, 25, 4)
}
