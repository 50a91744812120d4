package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// quantile returns the value below which the share q of the values lies.
func quantile[T cmp.Ordered](values []T, q float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// series is what one side cost per request, round by round.
type series struct {
	cost     []time.Duration // of all requests of a round
	requests int             // of each round
}

func (s *series) add(round int, cost time.Duration) {
	if round == len(s.cost) {
		s.cost = append(s.cost, 0)
	}
	s.cost[round] += cost
}

func (s series) perRequest(round int) float64 {
	return float64(s.cost[round].Nanoseconds()) / float64(s.requests) / 1000
}

func (s series) median() float64 {
	var all []float64
	for i := range s.cost {
		all = append(all, s.perRequest(i))
	}
	return quantile(all, 0.5)
}

// ratio is one side over the baseline.
type ratio struct {
	median    float64 // of the ratios of the rounds
	low, high float64 // their quartiles
	total     float64 // of everything together: the part of rare work, such as garbage collection, is in here
}

func (r ratio) quartiles() string { return fmt.Sprintf("%.3f … %.3f", r.low, r.high) }

// over compares s with the mean of the baselines, each round with itself. Two baselines are two processes that are
// alike: what chance does to one of them, such as the place of its memory, counts half.
func (s series) over(baselines ...series) ratio {
	var r ratio
	var rounds []float64
	var own, others float64
	for i := range s.cost {
		base := 0.0
		for _, b := range baselines {
			base += b.perRequest(i) / float64(len(baselines))
		}
		rounds = append(rounds, s.perRequest(i)/base)
		own, others = own+s.perRequest(i), others+base
	}
	r.median, r.low, r.high = quantile(rounds, 0.5), quantile(rounds, 0.25), quantile(rounds, 0.75)
	r.total = own / others
	return r
}
