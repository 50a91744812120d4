package main

import (
	"context"
	"fmt"
	"time"
)

// The numbers of issuers.
const (
	few    = 1
	some   = 1000
	many   = 10000
	masses = 100000
)

// population is a number of issuers, and what serving them may cost.
type population struct {
	issuers  int
	ratio    bound // to the floor's CPU time for a request
	resident bound // MiB, after the start and after the load
	start    bound // seconds until it is ready
	idle     bound // per cent of a core
}

// String spells the number.
func (p population) String() string {
	if p.issuers == 1 {
		return "1 issuer"
	}
	return fmt.Sprintf("%d issuers", p.issuers)
}

// populations returns those that are measured.
func populations() []population {
	ratio := bound{bar: 1.10, target: 1.05}
	return []population{
		{issuers: few, ratio: ratio, resident: bound{bar: 25}},
		{issuers: some, ratio: ratio},
		{issuers: many, ratio: ratio, resident: bound{bar: 80}, start: bound{bar: 1.5}},
		{issuers: masses, ratio: bound{target: 1.05}, resident: bound{target: 700}, start: bound{target: 15}, idle: bound{target: 1}},
	}
}

// population measures everything that depends on the number of issuers, with no other servers running.
func (b *bench) population(ctx context.Context, r *report, p population) error {
	defer b.stopAll()
	sides, err := b.raise(ctx, p)
	if err != nil {
		return err
	}
	for _, m := range modes() {
		all, err := b.compare(ctx, m, sides)
		if err != nil {
			return err
		}
		r.comparison(comparison{p, m, sides, all})
	}
	return footprints(r, p, sides)
}

// raise starts all the servers.
func (b *bench) raise(ctx context.Context, p population) ([]side, error) {
	sides, err := b.raiseFloors(ctx, p.issuers)
	if err != nil {
		return nil, err
	}
	own, err := b.raiseKeypostd(ctx, side{role: theKeypostd, label: "keypostd", issuers: p.issuers})
	return append(sides, own), err
}

// starts is how often a keypostd is started; the median counts. More than many take too long for that.
func starts(issuers int) int {
	if issuers > many {
		return 1
	}
	return 3
}

func (b *bench) raiseKeypostd(ctx context.Context, s side) (side, error) {
	var took []time.Duration
	for range starts(s.issuers) {
		if s.server != nil {
			s.server.stop()
		}
		var err error
		if s.server, err = b.startKeypostd(ctx, fmt.Sprintf("%s-%d", s.label, s.issuers), b.keySets(s.issuers)); err != nil {
			return s, err
		}
		took = append(took, s.server.ready)
	}
	s.server.ready = quantile(took, 0.5)
	return s.measured()
}

// measured notes what a server takes before it has answered a request.
func (s side) measured() (side, error) {
	var err error
	s.resident, err = s.server.resident()
	return s, err
}

// raiseFloors starts two floors; their difference is that of two equal servers.
func (b *bench) raiseFloors(ctx context.Context, issuers int) (sides []side, err error) {
	for _, label := range []string{"floor", "floor again"} {
		s, err := b.startFloor(ctx, fmt.Sprintf("%s-%d", label, issuers), b.keySets(issuers))
		if err != nil {
			return nil, err
		}
		one, err := side{role: theFloor, label: label, server: s, issuers: issuers}.measured()
		if err != nil {
			return nil, err
		}
		sides = append(sides, one)
	}
	return sides, nil
}
