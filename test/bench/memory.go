package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"testing"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/test/bench/floor"
)

// heapPerIssuer returns how many bytes of live heap each of the n key sets in dir takes: in the publisher, its
// snapshot and the store.
func heapPerIssuer(ctx context.Context, dir string, n int) (float64, error) {
	before := liveHeap()
	p, err := floor.Publish(ctx, dir)
	if err != nil {
		return 0, err
	}
	after := liveHeap()
	runtime.KeepAlive(p)
	return float64(after-before) / float64(n), nil
}

func liveHeap() int64 {
	for range 3 { // what a sync.Pool holds outlives the first
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // no heap has 2⁶³ bytes
}

// discard is an http.ResponseWriter that can be used again and allocates nothing.
type discard struct {
	header http.Header
	status int
	bytes  int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { d.bytes += len(p); return len(p), nil }

// WriteString is what net/http's ResponseWriters have too.
func (d *discard) WriteString(s string) (int, error) { d.bytes += len(s); return len(s), nil }

func (d *discard) reset() {
	clear(d.header)
	d.status, d.bytes = http.StatusOK, 0
}

// allocations returns how many a request costs the handler that is answered with status.
func allocations(h http.Handler, r *http.Request, status int) (float64, error) {
	w := &discard{header: http.Header{}}
	n := testing.AllocsPerRun(1000, func() {
		w.reset()
		h.ServeHTTP(w, r)
	})
	if w.status != status {
		return 0, fmt.Errorf("%s %s: it answers %d, not %d", r.Method, r.URL, w.status, status)
	}
	return n, nil
}

// requestKind is a request to the handler, and the status it has to get.
type requestKind struct {
	label   string
	status  int
	request *http.Request
}

// requestKinds are the requests for which the handler must not allocate. The ETag is that of the first issuer's JWKS.
func requestKinds(h http.Handler) ([]requestKind, error) {
	kinds := []requestKind{{label: "JWKS, 200", status: http.StatusOK}, {label: "JWKS, 304", status: http.StatusNotModified}, {label: "discovery document, 200", status: http.StatusOK}}
	for i, path := range []string{issuer.JWKSPath, issuer.JWKSPath, issuer.DiscoveryPath} {
		r, err := http.NewRequest(http.MethodGet, issuerURL(0)+path, nil)
		if err != nil {
			return nil, err
		}
		kinds[i].request = r
	}
	w := &discard{header: http.Header{}}
	h.ServeHTTP(w, kinds[0].request)
	kinds[1].request.Header.Set("If-None-Match", w.header.Get("Etag"))
	return kinds, nil
}

const heapBar bar = 4096

func (r *report) memory(ctx context.Context, dir string, n int) error {
	perIssuer, err := heapPerIssuer(ctx, dir, n)
	if err != nil {
		return err
	}
	r.table("In process", "", "", "")
	r.heap(perIssuer, n)
	p, err := floor.Publish(ctx, dir)
	if err != nil {
		return err
	}
	h := issuer.NewHandler(p, nil)
	kinds, err := requestKinds(h)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		allocs, err := allocations(h, k.request, k.status)
		if err != nil {
			return err
		}
		r.allocations(k.label, allocs)
	}
	r.end()
	return nil
}

func (r *report) heap(perIssuer float64, n int) {
	r.row(fmt.Sprintf("live heap per issuer with 2 RSA-2048 keys, of %d", n), fmt.Sprintf("%.0f bytes", perIssuer), r.verdict(perIssuer, heapBar, "%.0f"))
}

func (r *report) allocations(label string, n float64) {
	r.row("allocations of the handler: "+label, fmt.Sprintf("%.0f", n), r.verdict(n, 0, "%.0f"))
}
