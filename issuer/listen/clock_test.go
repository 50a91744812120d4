package listen

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/keypost/keypost/test/authority"
)

// A start with a clock that is wrong, as before a machine without a battery has asked for the time, takes no certificate away: it is the
// clients' clocks that count. What is due by this one is ordered, and the certificate then takes the place of the old one.
func TestStartWithAWrongClock(t *testing.T) {
	root := authority.Named(t, "root", nil)
	for name, tc := range map[string]struct {
		from, until time.Duration // of the certificate in the cache, by this machine's clock
		orders      int
	}{
		"the clock is behind": {90 * day, 180 * day, 0},
		"the clock is ahead":  {-180 * day, -90 * day, 1}, // or it has expired indeed
	} {
		synctest.Test(t, func(t *testing.T) {
			ca := &playedCA{chain: []*authority.Authority{root}, times: living(90 * day)}
			cache := filepath.Join(t.TempDir(), "cache")
			before := replica(t, cache, ca)
			puts(t, before, root, tc.from, tc.until)
			a := replica(t, cache, ca)
			old := a.hosts[0].inUse.Load()
			if old == nil {
				t.Fatalf("%s: nothing is served", name)
			}
			stop := watching(t, zap.NewNop(), a)
			time.Sleep(10 * time.Minute)
			stop()
			if n, changed := ca.orders(day), a.hosts[0].inUse.Load() != old; n != tc.orders || changed != (tc.orders > 0) {
				t.Errorf("%s: %d orders, another certificate: %v", name, n, changed)
			}
		})
	}
}
