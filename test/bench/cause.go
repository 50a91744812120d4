package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/test/bench/floor"
)

// A missed target is reported with where the cost lies, as far as it can be measured from outside.

func (f footprint) causeOfStart() string {
	each := f.side.server.ready / time.Duration(f.side.issuers)
	return fmt.Sprintf("%v to list, read, check and render each document, on one core", each.Round(time.Microsecond))
}

func (f footprint) causeOfMemory() string {
	return fmt.Sprintf("the heap may grow to %.0f MiB before the collector runs (GOGC %.0f), the rest is the program and its stacks", f.gc.goal/(1<<20), f.gc.percent)
}

func (f footprint) causeOfIdle() string {
	poll := time.Duration(f.idle / 100 * float64(pollInterval))
	return fmt.Sprintf("%v for a poll of the directory, %v for each document", poll.Round(time.Millisecond), (poll / time.Duration(f.side.issuers)).Round(time.Nanosecond))
}

// causes divides what a request costs more than the floor into the handler's part and the rest.
type causes struct {
	dir       string
	recording *floor.Recording

	handler float64 // µs that keypostd's handler takes longer than the floor's; measured once
	err     error
	known   bool
}

func (c *causes) ofRatio(ctx context.Context, excess float64) string {
	if !c.known {
		c.known = true
		c.handler, c.err = handlerExcess(ctx, c.dir, c.recording)
	}
	if c.err != nil {
		return fmt.Sprintf("%.1f µs more, unknown where: %v", excess, c.err)
	}
	return fmt.Sprintf("%.1f µs more; %.1f µs of it is the handler (lookup, headers, counter; measured without a network), %.1f µs the listener, its limits and the collector",
		excess, c.handler, excess-c.handler)
}

// handlerExcess returns how many microseconds keypostd's handler takes longer than the floor's, without a network.
func handlerExcess(ctx context.Context, dir string, rec *floor.Recording) (float64, error) {
	p, err := publish(ctx, dir)
	if err != nil {
		return 0, err
	}
	own, floors := issuer.NewHandler(p, nil), floor.NewHandler(rec)
	var excess []float64
	for range 15 {
		a, err := handlerTime(own, len(rec.Pages))
		if err != nil {
			return 0, err
		}
		b, err := handlerTime(floors, len(rec.Pages))
		if err != nil {
			return 0, err
		}
		excess = append(excess, float64(a-b)/float64(time.Microsecond))
	}
	return quantile(excess, 0.5), nil
}

// handlerTime returns how long a handler takes for a request, over many of them spread over n issuers.
func handlerTime(h http.Handler, n int) (time.Duration, error) {
	const requests = 20000
	t := newTarget("", n, nil)
	paths := make([]string, requests)
	for i := range paths {
		paths[i] = t.path(i)
	}
	r, err := http.NewRequest(http.MethodGet, issuerURL(0), nil)
	if err != nil {
		return 0, err
	}
	r.URL.Scheme, r.URL.Host = "", "" // as a server has it
	w := &discard{header: http.Header{}}
	began := time.Now()
	for _, r.URL.Path = range paths {
		w.reset()
		h.ServeHTTP(w, r)
		if w.status != http.StatusOK || w.bytes == 0 {
			return 0, fmt.Errorf("%s: the handler answers %d with %d bytes", r.URL.Path, w.status, w.bytes)
		}
	}
	return time.Since(began) / requests, nil
}

// sizes spells a list of numbers of issuers, which are sorted.
func sizes(all []population) []int {
	var n []int
	for _, p := range all {
		n = append(n, p.issuers)
	}
	slices.Sort(n)
	return n
}
