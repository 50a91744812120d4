package enroll_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keypost/keypost/internal/kubeapi"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
	"github.com/keypost/keypost/keystore/storetest"
	"github.com/keypost/keypost/provision/cluster"
	"github.com/keypost/keypost/provision/enroll"
)

// Many clusters, each an API server of its own, one of which hangs: the others do not wait for it.
func TestManyClusters(t *testing.T) {
	t.Parallel()
	manyClusters(t, 40)
}

// BenchmarkFiveHundred makes two passes: the first adds all, the second finds them in step. The process has all of the servers in it.
func BenchmarkFiveHundred(b *testing.B) {
	for b.Loop() {
		manyClusters(b, 500)
	}
	b.ReportMetric(float64(peakMemory(b)>>20), "MiB-peak")
}

func manyClusters(t testing.TB, clusters int) {
	t.Helper()
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
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // not to wait as long as a pass does
		defer cancel()
		return cluster.Identify(ctx, c)
	}
	for _, want := range []enroll.State{enroll.Enrolled, enroll.InStep} {
		begin, last, states := time.Now(), time.Time{}, map[enroll.State]int{}
		err := e.Pass(t.Context(), func(r enroll.Report, _ bool) {
			if states[r.State]++; r.State == want {
				last = time.Now()
			}
		})
		t.Logf("%v: all but one after %v, the pass after %v", states, last.Sub(begin).Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
		if err != nil || states[want] != clusters-1 || states[enroll.Unreachable] != 1 {
			t.Errorf("a pass: %v", err)
		}
	}
}

// A tenant that changes the CA of its kubeconfig before every look fills no memory, and leaves no connection behind.
func TestLooksKeepNothing(t *testing.T) {
	const looks, size = 30, 200 << 10
	p := newPlane(t, "uid-a", storetest.Key(t))
	good := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	look := func(i int) {
		filler := bytes.Repeat([]byte{byte(i)}, size*3/4)
		ca := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: filler}), good...)
		access, err := kubeapi.Inline(bytes.Replace(p.config(), []byte(base64.StdEncoding.EncodeToString(good)), []byte(base64.StdEncoding.EncodeToString(ca)), 1))
		if err == nil {
			_, err = cluster.Identify(t.Context(), access)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	kept := func() (bytes int64, goroutines int) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc), runtime.NumGoroutine()
	}
	look(0)
	memory, goroutines := kept()
	for i := range looks {
		look(1 + i)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // the other side of a connection ends a little later
		now, running := kept()
		if now-memory < looks*size/10 && running < goroutines+looks/3 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %d looks %d KiB and %d goroutines are kept", looks, (now-memory)>>10, running-goroutines)
		}
	}
}

// peakMemory is the most that this process ever had resident.
func peakMemory(t testing.TB) int64 {
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
