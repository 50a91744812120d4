package main

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/test/fakecloud"
	"github.com/keypost/keypost/test/fakegcp"
)

func TestGCPCreateAllSurvivesAKillAfterEveryCall(t *testing.T) {
	killedEverywhere(t, func(t *testing.T) *clusterFixture { return newGCPCluster(t, fakegcp.Options{}).clusterFixture }, 12, 3)
}

// A reply that is lost after the call took effect, a refusal for being too fast, a server that is down for a moment:
// one run gets past all of them.
func TestGCPCreateAllGetsPastFaults(t *testing.T) {
	for name, fault := range map[string]func() fakegcp.Fault{
		"throttled": func() fakegcp.Fault { return fakegcp.Throttle(100 * time.Millisecond) }, "unavailable": fakegcp.Unavailable, "reply lost": fakecloud.LoseReply,
		"policy changed meanwhile": func() fakegcp.Fault {
			return fakegcp.Fail(http.StatusConflict, "ABORTED", "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff.")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newGCPCluster(t, fakegcp.Options{OperationDelay: 300 * time.Millisecond, AccountDelay: 300 * time.Millisecond, ConsistencyDelay: 300 * time.Millisecond})
			var seen atomic.Int64
			f.gcp.Fault(func(c fakegcp.Call) fakegcp.Fault {
				if conflict := name == "policy changed meanwhile"; conflict && c.Action != "SetProjectIamPolicy" || c.Service == "oauth2" {
					return fakegcp.Fault{}
				} else if n := seen.Add(1); conflict && n == 1 || !conflict && n%4 == 2 {
					return fault()
				}
				return fakegcp.Fault{}
			})
			f.createAll(t)
			s := f.gcp.State()
			if len(s.Pools) != 1 || len(s.Providers) != 1 || len(s.Accounts) != 2 || len(s.Roles) != 2 {
				t.Errorf("the project holds\n%s", describeProject(s))
			}
		})
	}
}
