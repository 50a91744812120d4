//go:build e2e

package attack

import (
	"testing"
	"time"
)

// TestSlowClients has slowhttptest take more connections than a server has, with slow headers, slow bodies and slow reads,
// and asks keypostd and nginx for documents meanwhile. TestTable is the long form. They are half as many again as there are slots: when the
// first have had their two seconds, as many may go as wait, the honest among them. Were they twice as many, strangers would take all of the
// slots a second time, and honest requests wait for four of the five seconds that they have. One request in 50 may fail, since the
// machine has other work: of a server that gives way to slow headers most do (nginx: 108 of 137).
func TestSlowClients(t *testing.T) {
	const slots, lasting = 300, 5 * time.Second
	for _, mode := range []string{slowHeaders, slowBody, slowRead} {
		t.Run(mode[len(slowHTTP):], func(t *testing.T) {
			sc := scenario{mode, slots * 3 / 2, slots}
			nginx := against(t, sc, lasting, func(t *testing.T, sc scenario) *target { return startNginx(t, sc, 1, nil) })
			o := against(t, sc, lasting, func(t *testing.T, _ scenario) *target { return start(t, setup{listen: "maxConnections: 300"}) })
			for name, o := range map[string]outcome{"keypostd": o, "nginx": nginx} {
				for _, err := range o.faults() {
					t.Errorf("%s: %v", name, err)
				}
				t.Logf("%s: %d of %d failed, p99 %v; %s", name, o.party.failed, o.party.asked, o.party.quantile(0.99).Round(time.Millisecond), o.detail)
			}
			if o.party.failed*50 > o.party.asked {
				t.Errorf("%d of %d requests failed, want one in 50 at most: %v", o.party.failed, o.party.asked, o.party.first)
			}
		})
	}
}
