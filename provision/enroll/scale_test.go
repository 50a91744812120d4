package enroll_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/enroll"
)

// Five hundred clusters, each an API server of its own, one of which hangs: the first pass, which adds all, takes a minute at most, the
// rest of them does not wait for the one, and the process, with all of the servers in it, stays small.
func TestFiveHundred(t *testing.T) {
	if testing.Short() {
		t.Skip("500 servers")
	}
	const clusters, mostTime, mostMemory = 500, time.Minute, 128 << 20
	dir, store := t.TempDir(), t.TempDir()
	for i := range clusters {
		p := newPlane(t, fmt.Sprintf("uid-%d", i), storetest.Key(t))
		p.hang = i == clusters/2
		p.kubeconfig(t, dir, fmt.Sprintf("c%d", i))
	}
	b, err := filestore.Create(store)
	if err != nil {
		t.Fatal(err)
	}
	e := newEnroller(t, keystore.NewStore(b), enroll.Dir(dir))
	e.Look = func(ctx context.Context, c *rest.Config) (cluster.Identity, error) {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // not to wait as long as a pass does
		defer cancel()
		return cluster.Identify(ctx, c)
	}
	for _, want := range []enroll.State{enroll.Enrolled, enroll.InStep} {
		begin, last := time.Now(), time.Time{}
		states := map[enroll.State]int{}
		err := e.Pass(t.Context(), func(r enroll.Report, _ bool) {
			if states[r.State]++; r.State == want {
				last = time.Now()
			}
		})
		took, peak := time.Since(begin), peakMemory(t)
		t.Logf("%v: all but one after %v, the pass after %v, peak memory %d MiB", states, last.Sub(begin).Round(time.Millisecond), took.Round(time.Millisecond), peak>>20)
		if err != nil || states[want] != clusters-1 || states[enroll.Unreachable] != 1 || took > mostTime || peak > mostMemory {
			t.Errorf("a pass: %v", err)
		}
	}
}

// peakMemory is the most that this process ever had resident.
func peakMemory(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}
