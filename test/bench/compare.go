package main

import (
	"context"
	"fmt"
	"time"
)

// role is what a server is in a comparison.
type role int

const (
	theFloor    role = iota // two of them
	theKeypostd             // that is built from this tree
)

// side is one of the servers that are compared.
type side struct {
	role     role
	label    string
	server   *server
	issuers  int
	resident int // KiB, before the first request
}

// mode is a way of asking.
type mode struct {
	label string
	burst int    // requests; short, so that what disturbs one server disturbs all
	turns int    // bursts of a round, which together are long enough to have their share of garbage collection
	head  string // of each request, beside what all have
	open  func(ctx context.Context, t *target, size int) (load, error)
}

func modes() []mode {
	return []mode{
		{"HTTP/1.1, connections kept alive", 1000, 12, "", newKeepAlive},
		{"HTTP/1.1, one connection with a full TLS 1.3 handshake per request", 100, 10, closing, newFresh},
	}
}

// compare runs the sides in turns: a burst for each, while the others are idle, and each time another one begins. They have to do the same
// work: their answers are equally long.
func (b *bench) compare(ctx context.Context, m mode, sides []side) ([]series, error) {
	all := make([]series, len(sides))
	loads := make([]load, len(sides))
	var sizes []int
	for i, s := range sides {
		all[i].requests = m.burst * m.turns
		t := newTarget(s.server.address, s.issuers, b.cert.roots)
		size, err := t.size(ctx, t.request(0, m.head))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.label, err)
		}
		if sizes = append(sizes, size); size != sizes[0] {
			return nil, fmt.Errorf("%s answers otherwise than the floor: %d bytes, not %d", s.label, size, sizes[0])
		}
		if loads[i], err = m.open(ctx, t, size); err != nil {
			return nil, fmt.Errorf("%s: %w", s.label, err)
		}
		if err := loads[i].burst(ctx, burst{0, m.burst}); err != nil { // warms up
			return nil, fmt.Errorf("%s: %w", s.label, err)
		}
	}
	for turn := range rounds * m.turns {
		for i := range sides {
			at := (i + turn) % len(sides)
			cost, err := sides[at].server.cost(ctx, loads[at], burst{turn * m.burst, (turn + 1) * m.burst})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sides[at].label, err)
			}
			all[at].add(turn/m.turns, cost)
		}
	}
	return all, nil
}

// cost is the CPU time that a burst costs the server, with what it has to do afterwards.
func (s *server) cost(ctx context.Context, l load, of burst) (time.Duration, error) {
	before, err := s.settle()
	if err != nil {
		return 0, err
	}
	if err := l.burst(ctx, of); err != nil {
		return 0, err
	}
	after, err := s.settle()
	return after - before, err
}

// comparison is the series of the sides of one population, asked in one way.
type comparison struct {
	population population
	mode       mode
	sides      []side
	all        []series
}

// of returns the series of a role.
func (c comparison) of(r role) (found []series) {
	for i, s := range c.sides {
		if s.role == r {
			found = append(found, c.all[i])
		}
	}
	return found
}

// bound is that of a side: only keypostd has one.
func (c comparison) bound(s side) bound {
	if s.role != theKeypostd {
		return bound{}
	}
	return c.population.ratio
}

func (r *report) comparison(c comparison) {
	what := fmt.Sprintf("%s, %s", c.population, c.mode.label)
	r.table("Server CPU time per request: "+what, "", "µs", "ratio to the floor", "quartiles", "all rounds", "")
	floors := c.of(theFloor)
	for i, s := range c.sides {
		over := c.all[i].over(floors...)
		r.row(s.label, fmt.Sprintf("%.1f", c.all[i].median()), fmt.Sprintf("%.3f", over.median), over.quartiles(), fmt.Sprintf("%.3f", over.total),
			r.judge(over.median, c.bound(s), "%.2f"))
	}
	r.end()
	if n := floors[1].over(floors[0]); n.median > 1+noisy || n.median < 1-noisy {
		r.note("  The two floors differ by %.1f %%: this run is too noisy, repeat it on a quiet machine.", 100*(n.median-1))
	}
}

// noisy is how much two equal servers may differ before the reader is warned.
const noisy = 0.03
