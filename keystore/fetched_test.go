package keystore

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/keystore/gate"
)

// TestPromoteWaitsForAFetch: a relying party that shows its fetches, and showed since the key was published that it has not fetched
// since every cache has the key, keeps the gate closed however late it is.
func TestPromoteWaitsForAFetch(t *testing.T) {
	t.Parallel()
	s := published(t, copiesPolicy("", "anthropic"), false)
	late := t0.Add(240 * time.Hour)
	has := t0.Add(15*time.Second + time.Minute + time.Minute + time.Minute + 2*time.Minute) // poll, convergence, max-age at an edge and at a client, clocks
	for _, tt := range []struct {
		name  string
		fetch gate.Fetch
		open  bool
	}{
		{"a fetch in time", gate.Fetch{Party: "anthropic", Read: late, At: has}, true},
		{"a fetch that a cache may have answered", gate.Fetch{Party: "anthropic", Read: late, At: has.Add(-time.Second)}, false},
		{"a fetch before the key was published", gate.Fetch{Party: "anthropic", Read: late, At: t0.Add(-time.Hour)}, false},
		{"a reading from before the key was published", gate.Fetch{Party: "anthropic", Read: t0.Add(-time.Second), At: t0.Add(-time.Hour)}, true},
		{"of somebody whom the policy does not name", gate.Fetch{Party: "confluent", Read: late, At: t0}, true},
	} {
		e := promoteAt(t, s, late, Observed{Since: t0, Fetches: []gate.Fetch{tt.fetch}})
		switch {
		case tt.open && e != nil:
			t.Errorf("%s: %v; want an open gate", tt.name, e)
		case !tt.open && (e == nil || e.Gate != gate.GateFetched || !strings.Contains(e.Error(), "anthropic showed at "+stamp(late)+" that it last fetched the keys at "+stamp(tt.fetch.At))):
			t.Errorf("%s: %v; want the gate fetched closed, with both times", tt.name, e)
		}
	}
}

// TestAFetchOpensNothing: whatever somebody records of fetches, no gate opens sooner than without it.
func TestAFetchOpensNothing(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	s := published(t, copiesPolicy("", "anthropic"), false)
	any := func() time.Time { return t0.Add(time.Duration(r.Int64N(int64(4*time.Hour))) - time.Hour) }
	for range 2000 {
		at := any()
		o := Observed{Since: any(), SharedCache: []string{"", "Via"}[r.IntN(2)]}
		without := promoteAt(t, s, at, o)
		o.Fetches = []gate.Fetch{{Party: "anthropic", Read: any(), At: any()}}
		if with := promoteAt(t, s, at, o); without != nil && with == nil {
			t.Fatalf("at %v, seen as %+v: open, and without the fetch %v", at, o, without)
		}
	}
}
