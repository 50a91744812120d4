package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer"
)

// The parts of the bench that need no quiet machine; what takes time is measured by the program only.

func published(t *testing.T, n int) (dir string, p *issuer.Publisher) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "keysets")
	if err := writeCorpus(t.Context(), dir, n); err != nil {
		t.Fatal(err)
	}
	p, err := publish(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, p
}

func TestHandlerAllocatesNothing(t *testing.T) {
	_, p := published(t, 3)
	h := issuer.NewHandler(p, nil)
	kinds, err := requestKinds(h)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if n, err := allocations(h, k.request, k.status); err != nil || n != 0 {
			t.Errorf("%s: %v allocations, %v; want none", k.label, n, err)
		}
	}
}

func TestAllocationsSeesOne(t *testing.T) {
	r, err := http.NewRequest(http.MethodGet, issuerURL(0), nil)
	if err != nil {
		t.Fatal(err)
	}
	careless := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Etag", "x") })
	if n, err := allocations(careless, r, http.StatusOK); err != nil || n != 1 {
		t.Errorf("%v allocations, %v; want 1", n, err)
	}
	if _, err := allocations(careless, r, http.StatusNotModified); err == nil {
		t.Error("another status is no error")
	}
}

// With few issuers, what is there once weighs more for each than with 10,000: the bar has room for it.
func TestHeapPerIssuer(t *testing.T) {
	const n = 300
	dir, _ := published(t, n)
	perIssuer, err := heapPerIssuer(t.Context(), dir, n)
	if err != nil {
		t.Fatal(err)
	}
	if perIssuer > 1.25*float64(heapBar) || perIssuer < 1000 { // below, something was not measured
		t.Errorf("%.0f bytes of live heap per issuer", perIssuer)
	}
}

func TestOver(t *testing.T) {
	us := func(costs ...int) (s series) {
		s.requests = 10
		for _, c := range costs {
			s.cost = append(s.cost, 10*time.Duration(c)*time.Microsecond)
		}
		return s
	}
	got := us(22, 66, 11, 33, 11).over(us(10, 20, 10, 30, 10), us(10, 40, 10, 30, 10))
	if want := (ratio{median: 1.1, low: 1.1, high: 2.2, total: 143. / 90}); !near(got.median, want.median) ||
		!near(got.low, want.low) || !near(got.high, want.high) || !near(got.total, want.total) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func near(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }

// Every issuer gets its turn, or the cost of many would be that of few.
func TestRequestsAreSpread(t *testing.T) {
	for _, n := range []int{few, some, many, masses} {
		seen := map[int]bool{}
		target := newTarget("", n, nil)
		for i := range n {
			seen[target.issuer(i)] = true
		}
		if len(seen) != n {
			t.Errorf("of %d issuers %d are asked for", n, len(seen))
		}
	}
}

// Bursts that began from the start each time would ask for a few issuers only.
func TestBurstsGoOn(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]int{}
	for turn := range 3 {
		err := burst{turn * 50, (turn + 1) * 50}.spread(func(_ int, share []int) error {
			mu.Lock()
			defer mu.Unlock()
			for _, i := range share {
				seen[i]++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 150 {
		if seen[i] != 1 {
			t.Errorf("request %d is sent %d times", i, seen[i])
		}
	}
	if len(seen) != 150 {
		t.Errorf("%d requests; want 150", len(seen))
	}
}

func TestRuntimeVariablesAreTakenOut(t *testing.T) {
	got := withoutRuntime([]string{"PATH=/bin", "GOGC=800", "GOMEMLIMIT=1", "GOMAXPROCS=2", "GODEBUG=x=1", "GOTRACEBACK=all", "GOPATH=/go"})
	if want := []string{"PATH=/bin", "GOPATH=/go"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

func TestCollector(t *testing.T) {
	const text = "# HELP go_gc_gogc_percent x\ngo_gc_gogc_percent 800\ngo_gc_gomemlimit_bytes %s\ngo_memstats_next_gc_bytes 4.194304e+06\n"
	for limit, want := range map[string][]string{
		"9.223372036854775807e+18": {"GOGC=800"},
		"4.56e+08":                 {"GOGC=800", "GOMEMLIMIT=456000000"},
	} {
		c, err := parseCollector(fmt.Sprintf(text, limit))
		if err != nil || c.goal != 4<<20 || !slices.Equal(c.env(), want) {
			t.Errorf("limit %s: %+v, %v, %q; want %q", limit, c, err, c.env(), want)
		}
	}
	if got := (collector{percent: -1, limit: unlimited}).env(); !slices.Equal(got, []string{"GOGC=off"}) {
		t.Errorf("switched off: %q", got)
	}
	var out strings.Builder
	r := newReport(&out)
	if r.sameCollector(collector{percent: 100, limit: unlimited, goal: 1}, collector{percent: 100, limit: unlimited, goal: 2}); out.Len() > 0 {
		t.Errorf("the same collector: %s", &out)
	}
	if r.sameCollector(collector{percent: 800, limit: unlimited}, collector{percent: 100, limit: unlimited}); !strings.Contains(out.String(), "runs with GOGC=100, keypostd and the floor with GOGC=800") {
		t.Errorf("another collector: %q", &out)
	}
	if _, err := parseCollector("go_gc_gogc_percent 100\n"); err == nil {
		t.Error("a missing metric is no error: the floor would have another collector")
	}
}

func TestFlags(t *testing.T) {
	o, err := parseFlags([]string{"-issuers", "1,100000", "-compare", "x", "-rounds", "3"})
	if err != nil || !slices.Equal(o.issuers, []int{1, 100000}) || o.compare != "x" || o.rounds != 3 {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := parseFlags(nil); err != nil || !slices.Equal(o.issuers, []int{1, 1000, 10000, 100000}) || o.rounds < 25 {
		t.Errorf("by default: %+v, %v", o, err)
	}
	for _, bad := range [][]string{{"-issuers", "0"}, {"-issuers", "100001"}, {"-issuers", "1,x"}, {"-rounds", "0"}, {"-changes", "-1"}, {"more"}} {
		if _, err := parseFlags(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestOpensAreSeen(t *testing.T) {
	dir, _ := published(t, 2)
	o, err := watchOpens(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer o.close()
	if _, err := publish(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	names, err := o.drain()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, n := range names {
		seen[n]++
	}
	if len(seen) != 2 || seen["c000000.yaml"] == 0 || seen["c000001.yaml"] == 0 {
		t.Errorf("opened: %v", seen)
	}
}
