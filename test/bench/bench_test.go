package main

import (
	"net/http"
	"path/filepath"
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
	h := issuer.NewHandler(p.Snapshot, nil)
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

func TestVerdict(t *testing.T) {
	for _, tc := range []struct {
		value  float64
		most   bar
		want   string
		missed int
	}{
		{1.08, ratioBar, "≤ 1.08  PASS", 0},
		{1.081, ratioBar, "≤ 1.08  FAIL", 1},
		{0, 0, "≤ 0.00  PASS", 0},
		{1, 0, "≤ 0.00  FAIL", 1},
		{100, noBar, "", 0},
	} {
		r := newReport(t.Output())
		if got := r.verdict(tc.value, tc.most, "%.2f"); got != tc.want || r.missed != tc.missed {
			t.Errorf("%v of %v: %q, missed %d; want %q, %d", tc.value, tc.most, got, r.missed, tc.want, tc.missed)
		}
	}
}

// Every issuer gets its turn, or the cost of many would be that of few.
func TestRequestsAreSpread(t *testing.T) {
	for _, n := range []int{few, many, masses} {
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
