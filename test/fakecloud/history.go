package fakecloud

import (
	"maps"
	"slices"
	"time"
)

// History is a state at several times, the newest last, so that a late read still finds an old one. A state is never
// changed: a write makes a new one.
type History[W any] []Moment[W]

// Moment is a state and since when it is so.
type Moment[W any] struct {
	at    time.Time
	state W
}

// NewHistory begins with one state, which has always been.
func NewHistory[W any](w W) History[W] { return History[W]{{state: w}} }

// Present is the newest state.
func (h History[W]) Present() W { return h[len(h)-1].state }

// View is the state as reads see it now, which learn of a change only after a delay.
func (h History[W]) View(now time.Time, delay time.Duration) W {
	limit := now.Add(-delay)
	for _, m := range slices.Backward(h) {
		if !m.at.After(limit) {
			return m.state
		}
	}
	return h[0].state
}

// Commit makes w the present, and forgets what no read can see any more.
func (h *History[W]) Commit(w W, now time.Time, delay time.Duration) {
	*h = append(*h, Moment[W]{now, w})
	limit := now.Add(-delay)
	for len(*h) > 1 && !(*h)[1].at.After(limit) {
		*h = (*h)[1:]
	}
}

// With is a copy of a map with one value more, or another.
func With[V any](m map[string]V, key string, value V) map[string]V {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]V{}
	}
	m[key] = value
	return m
}

// Without is a copy of a map without one key.
func Without[V any](m map[string]V, key string) map[string]V {
	m = maps.Clone(m)
	delete(m, key)
	return m
}

// Sorted gives the values of a map in the order of their keys.
func Sorted[V any](m map[string]V) []V {
	var l []V
	for _, k := range slices.Sorted(maps.Keys(m)) {
		l = append(l, m[k])
	}
	return l
}
