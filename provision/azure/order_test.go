package azure

import (
	"slices"
	"testing"

	"github.com/keypost/keypost/provision/plan"
)

// Whoever waits longest begins first, and assignments do not wait behind those whose turn comes later.
func TestLongestFirst(t *testing.T) {
	t.Parallel()
	actions := func(writes map[string]int, names ...string) plan.Stage {
		var s plan.Stage
		for _, n := range names {
			s = append(s, plan.Action{Change: plan.Change{Name: n}, Lines: make([]string, writes[n])})
		}
		return s
	}
	writes := map[string]int{"a": 1, "b": 3, "c": 1, "d": 2, "e": 3, "A": 1, "B": 4}
	for _, tt := range []struct{ assigned, trusted, want []string }{
		{[]string{"A", "B"}, []string{"a", "b", "c", "d", "e"}, []string{"b", "e", "d", "A", "B", "a", "c"}},
		{[]string{"A"}, []string{"b"}, []string{"b", "A"}},
		{[]string{"A"}, []string{"a"}, []string{"A", "a"}},
		{nil, nil, nil},
	} {
		trusted := actions(writes, tt.trusted...)
		var got []string
		for _, a := range longestFirst(actions(writes, tt.assigned...), trusted) {
			got = append(got, a.Name)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q and %q: %q, want %q", tt.assigned, tt.trusted, got, tt.want)
		}
		for i, a := range trusted {
			if a.Name != tt.trusted[i] {
				t.Errorf("the list that was given is changed: %q", a.Name)
			}
		}
	}
}
