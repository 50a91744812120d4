package main

import (
	"path/filepath"
	"testing"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/test/bench/floor"
)

// The parts of the bench that need no quiet machine; what takes time is measured by the program only.

func published(t *testing.T, n int) (dir string, p *issuer.Publisher) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "keysets")
	if err := writeCorpus(t.Context(), dir, n); err != nil {
		t.Fatal(err)
	}
	p, err := floor.Publish(t.Context(), dir)
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
