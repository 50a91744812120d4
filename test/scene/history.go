package scene

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/fakecloud"
)

// History is a random sequence of runs of one installation, with any of which something may go wrong in its cloud.
type History struct {
	*rand.Rand
	Cloud          *fakecloud.Record
	Throttle, Dead fakecloud.Fault // how the cloud answers one call too many; and a client that is dead, which gives up at that

	runs []string // with what became of them
}

// Histories has a test make n histories, other ones every time it runs. KEYPOST_SEED takes the one that failed.
func Histories(t *testing.T, n int, test func(t *testing.T, h *History)) {
	t.Helper()
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = rand.Uint64() //nolint:gosec // a test's
	}
	if text := os.Getenv("KEYPOST_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		check(t, err)
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("KEYPOST_SEED=", seed), func(t *testing.T) {
			h := &History{Rand: rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // a test's
			defer func() {
				if t.Failed() {
					t.Logf("after these runs:\n%s", strings.Join(h.runs, "\n"))
				}
			}()
			test(t, h)
		})
	}
}

// Run makes a run, and has nothing or something go wrong with one of so many calls, which it returns beside the run's error.
func (h *History) Run(what string, calls int, run func() error) (fault string, err error) {
	fault = h.fault(1 + h.IntN(calls))
	err = run()
	h.Cloud.Fault(nil)
	h.runs = append(h.runs, fmt.Sprintf("%s, %s: %v", what, fault, err))
	return fault, err
}

// fault has something go wrong from call n on, and says what.
func (h *History) fault(n int) string {
	h.Cloud.ResetCalls()
	switch h.IntN(4) {
	case 0:
		return ""
	case 1:
		h.Cloud.Fault(fakecloud.OnceFrom(n, h.Throttle))
		return fmt.Sprint("throttled at call ", n)
	}
	h.Cloud.Fault(fakecloud.KilledAt(n, h.Dead))
	return fmt.Sprint("killed at call ", n)
}
