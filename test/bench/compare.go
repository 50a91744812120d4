package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"
)

// side is one of the servers that are compared.
type side struct {
	label    string
	server   *server
	issuers  int
	most     bar
	baseline bool
}

// mode is a way of asking.
type mode struct {
	label string
	burst int // requests; short, so that what disturbs one server disturbs all
	turns int // bursts of a round, which together are long enough to have their share of garbage collection
	open  func(context.Context, *target) (load, error)
	judge bool // otherwise it is only printed
}

func modes() []mode {
	return []mode{
		{"HTTP/1.1, connections kept alive", 1000, 12, newKeepAlive, true},
		{"HTTP/1.1, one connection with a full TLS 1.3 handshake per request", 100, 10, newFresh, true},
		{"HTTP/2, one connection (printed only)", 500, 4, newHTTP2, false},
	}
}

// settled is how long a server may go on working for a burst that has been answered.
const settled = 2 * time.Millisecond

// compare runs the sides in turns: a burst for each, while the others are idle, and each time another one begins.
func (b *bench) compare(ctx context.Context, m mode, sides []side, rounds int) ([]series, error) {
	all := make([]series, len(sides))
	loads := make([]load, len(sides))
	for i, s := range sides {
		all[i].requests = m.burst * m.turns
		var err error
		if loads[i], err = m.open(ctx, newTarget(s.server.address, s.issuers, b.cert.roots)); err != nil {
			return nil, fmt.Errorf("%s: %w", s.label, err)
		}
		if err := loads[i].burst(ctx, m.burst); err != nil { // warms up
			return nil, fmt.Errorf("%s: %w", s.label, err)
		}
	}
	for turn := range rounds * m.turns {
		for i := range sides {
			at := (i + turn) % len(sides)
			cost, err := burst(ctx, sides[at].server, loads[at], m.burst)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sides[at].label, err)
			}
			all[at].add(turn/m.turns, cost)
		}
	}
	return all, nil
}

func burst(ctx context.Context, s *server, l load, n int) (time.Duration, error) {
	before, err := s.cpuTime()
	if err != nil {
		return 0, err
	}
	if err := l.burst(ctx, n); err != nil {
		return 0, err
	}
	time.Sleep(settled)
	after, err := s.cpuTime()
	return after - before, err
}

func (r *report) comparison(m mode, sides []side, all []series) {
	r.table("Server CPU time per request: "+m.label, "", "µs", "ratio to bare", "quartiles", "all rounds", "")
	var baselines []series
	for i, s := range sides {
		if s.baseline {
			baselines = append(baselines, all[i])
		}
	}
	for i, s := range sides {
		c, most := all[i].over(baselines...), noBar
		if m.judge {
			most = s.most
		}
		r.row(s.label, fmt.Sprintf("%.1f", all[i].median()), fmt.Sprintf("%.3f", c.median),
			fmt.Sprintf("%.3f … %.3f", c.low, c.high), fmt.Sprintf("%.3f", c.total), r.verdict(c.median, most, "%.2f"))
	}
	r.end()
}

// idle prints what the servers cost when nobody asks: the poll of the directory.
func (r *report) idle(sides []side, over time.Duration) error {
	before := make([]time.Duration, len(sides))
	for i, s := range sides {
		var err error
		if before[i], err = s.server.cpuTime(); err != nil {
			return err
		}
	}
	time.Sleep(over)
	r.table(fmt.Sprintf("Idle for %v (one poll of the directory), and memory after the load", over), "", "CPU", "RSS", "start to ready")
	for i, s := range sides {
		now, err := s.server.cpuTime()
		if err != nil {
			return err
		}
		kib, err := s.server.resident()
		if err != nil {
			return err
		}
		r.row(s.label, fmt.Sprintf("%.2f %%", 100*float64(now-before[i])/float64(over)), fmt.Sprintf("%.1f MiB", float64(kib)/1024), s.server.ready.Round(time.Millisecond).String())
	}
	r.end()
	return nil
}

// sameAnswer makes sure that two servers do the same work.
func sameAnswer(a, b exchange, except ...string) error {
	if string(a.body) != string(b.body) {
		return errors.New("the bodies differ")
	}
	x, y := a.header.Clone(), b.header.Clone()
	for _, name := range append(except, "Date") {
		x.Del(name)
		y.Del(name)
	}
	if !maps.EqualFunc(x, y, func(v, w []string) bool { return fmt.Sprint(v) == fmt.Sprint(w) }) {
		return fmt.Errorf("the headers differ: %v and %v", http.Header(x), http.Header(y))
	}
	return nil
}
