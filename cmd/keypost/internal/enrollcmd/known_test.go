package enrollcmd

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/enroll"
)

// A source may be empty at first, fail, and lose a cluster: what is shown is what the latest whole pass told.
func TestKnown(t *testing.T) {
	t.Parallel()
	k := newKnown(zap.NewNop())
	shows := func(what string, clusters int) {
		t.Helper()
		if got := testutil.CollectAndCount(k, "keypost_enroll_cluster"); got != clusters {
			t.Errorf("%s: %d clusters are shown, want %d", what, got, clusters)
		}
	}
	if k.ready() == nil {
		t.Error("it is ready before the first pass")
	}
	k.passed(nil)
	shows("a whole pass over nothing", 0)
	if err := k.ready(); err != nil {
		t.Error(err)
	}
	k.tell(enroll.Report{Name: "a", State: enroll.Enrolled}, true)
	k.tell(enroll.Report{Name: "b", State: enroll.InStep}, false)
	k.passed(nil)
	shows("two clusters", 2)
	k.tell(enroll.Report{Name: "a", State: enroll.InStep}, false)
	for _, n := range []keystore.Name{"bad\xff", "team/a-prod", "Bad_name"} { // no label would hold the first, and then no metric is served
		k.tell(enroll.Report{Name: n, State: enroll.Refused}, true)
	}
	k.tell(enroll.Report{Name: "a", State: enroll.InStep}, false)
	k.tell(enroll.Report{Name: "b", State: enroll.InStep}, false)
	k.passed(nil)
	shows("names of no key set", 2)
	k.passed(errors.New("the store is away"))
	shows("a pass that failed", 2)
	k.tell(enroll.Report{Name: "a", State: enroll.InStep}, false)
	k.passed(nil)
	shows("one is gone from the source", 1)
}
