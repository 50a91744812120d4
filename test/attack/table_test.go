//go:build e2e_full

package attack

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/test/process"
)

// lasting is how long each attack of the table goes on.
const lasting = 6 * time.Second

// loads are what takes memory or time, crowds what takes slots.
var (
	loads = []scenario{
		{"h2-load", 100, 0}, {"h2-load", 8, 0}, {"h2-cookie-crumbs", 100, 0}, {"h2-unread-refusals", 100, 0}, {"h2-unread-refusals", 500, 0},
		{"h2-window-drip", 100, 0}, {"h2-window-drip", 1000, 0}, {"h2-own-400", 1000, 0}, {"h2-own-400-reset", 1000, 0}, {"h2-own-400-behind", 1000, 0}, {"h2-own-431", 1000, 0}, {"h2-long-paths", 1000, 0}, {"h2-hang-up", 100, 0}, {"h2-rapid-reset", 100, 0}, {"h2-made-you-reset", 100, 0}, {"h2-hpack-bomb", 100, 0}, {"h1-pipeline", 100, 0},
		{"h1-header-bomb", 1000, 0}, {"h1-small-bomb", 1200, 0}, {"h1-stall", 2000, 0}, {"h1-idle", 2000, 0}, {honestLoad, 300, 0},
	}
	floods = []scenario{
		{"h2-settings-flood", 100, 0}, {"h2-ping-flood", 100, 0}, {"h2-priority-flood", 100, 0}, {"h2-unknown-flood", 100, 0}, {"h2-window-flood", 100, 0},
		{"h2-data-flood", 100, 0}, {"h2-continuation-flood", 100, 0}, {"tls-handshakes", 20, 0},
	}
	crowds = []scenario{
		{"tcp-idle", 600, 500}, {"tcp-idle", 3000, 500}, {"h1-busy", 520, 500}, {"h1-idle", 600, 500}, {"h2-idle", 600, 500}, {"h1-slow-header", 600, 500},
		{"h2-stall", 600, 500}, {"h2-drip", 600, 500}, {"h1-stall", 600, 500}, {"h1-drip", 600, 500}, {"h1-slow-body", 600, 500},
	}
	slow = []scenario{{"h1-slow-header", 2000, 0}, {slowHeaders, 2000, 0}, {slowBody, 2000, 0}, {slowRead, 2000, 0}, {slowHeaders, 2000, 1000}, {slowRead, 2000, 1000}}
	// hardest are those that are tried with less memory and with many issuers.
	hardest = []scenario{
		{"h2-load", 100, 0}, {"h2-cookie-crumbs", 100, 0}, {"h2-unread-refusals", 500, 0}, {"h2-window-drip", 1000, 0}, {"h1-idle", 3000, 0}, {honestLoad, 300, 0},
	}
	// busiest are those that are tried on one processor.
	busiest = append([]scenario{
		{"h2-load", 100, 0}, {"h2-cookie-crumbs", 100, 0}, {"h2-unread-refusals", 100, 0}, {"h2-window-drip", 100, 0}, {"h2-rapid-reset", 100, 0}, {"h2-made-you-reset", 100, 0},
		{"h2-hpack-bomb", 100, 0}, {"h1-pipeline", 100, 0}, {slowHeaders, 2000, 0},
	}, floods...)
)

// trial is a scenario on a number of processors, for nginx.
type trial struct {
	scenario
	cpus int
}

func TestTable(t *testing.T) {
	all := append(append(append(append([]scenario{}, loads...), floods...), crowds...), slow...)
	var rows []string
	nginx := map[trial]outcome{}
	for i, s := range []surroundings{{2, 512, 1, all}, {1, 512, 1, busiest}, {2, 256, 1, hardest}, {2, 512, 10_000, hardest}} {
		rows = append(rows, "\n"+titles[i]+"\n", columns)
		for _, sc := range s.scenarios {
			t.Run(fmt.Sprintf("%s-x%d-%d/%dCPU-%dMiB-%d", strings.ReplaceAll(sc.mode, " ", ""), sc.n, sc.slots, s.cpus, s.memory, s.issuers), func(t *testing.T) {
				other, known := nginx[trial{sc, s.cpus}]
				if !known {
					other = judgeable(t, sc, func(t *testing.T, sc scenario) *target {
						g := process.NewGroup(t, 512)
						v := startNginx(t, sc, s.cpus, onCPUs(g, s.cpus))
						v.group = g
						return v
					})
					nginx[trial{sc, s.cpus}] = other
				}
				tried := func(more string) outcome {
					sc := sc
					if sc.mode == honestLoad && more != "" {
						sc.mode = honestHTTP1
					}
					o := judgeable(t, sc, func(t *testing.T, sc scenario) *target { return startKeypostd(t, sc, s, more) })
					rows = append(rows, row(sc, more, o, other))
					t.Log(rows[len(rows)-1], o.detail)
					for _, err := range o.faults() {
						t.Errorf("%s: %v", strings.TrimSpace("keypostd "+more), err)
					}
					return o
				}
				t.Log("nginx: ", other.detail)
				for _, err := range other.faults() {
					t.Errorf("nginx: %v", err)
				}
				o := tried("")
				worse, slower := o.failures(s, other), o.party.quantile(0.99) > 3*other.party.quantile(0.99)
				if strings.HasPrefix(sc.mode, "h2") && (worse != nil || slower) { // net/http bounds HTTP/2 less than nginx does: it can be turned off
					without := tried("http2: false")
					if s.cpus == 1 && worse != nil {
						worse = without.failures(s, other)
					}
				}
				if worse != nil {
					t.Error(worse)
				}
			})
		}
	}
	fmt.Println(strings.Join(rows, "\n"))
}

func row(sc scenario, more string, o, nginx outcome) string {
	name := fmt.Sprintf("%s x %d", sc.mode, sc.n)
	if sc.slots > 0 {
		name += fmt.Sprintf(", %d slots", sc.slots)
	}
	if more != "" {
		name += ", " + more
	}
	figures := func(p *party) string {
		return fmt.Sprintf("%d of %d | %d | %d", p.failed, p.asked, p.quantile(0.5).Milliseconds(), p.quantile(0.99).Milliseconds())
	}
	ratio := float64(o.party.quantile(0.99)) / float64(max(nginx.party.quantile(0.99), time.Microsecond))
	return fmt.Sprintf("| %s | %s | %d | %d | %s | %d | %.1f |",
		name, figures(o.party), o.resident, o.peak, figures(nginx.party), nginx.peak, ratio)
}

// judgeable tries again, twice at most, while the machine is too busy with other work to judge: the relying party did
// not even get to ask as often as it should. A server that has ended is judged at once.
func judgeable(t *testing.T, sc scenario, start func(*testing.T, scenario) *target) outcome {
	t.Helper()
	due := int((lasting.Seconds() - 0.5) * asksPerSecond * 0.9)
	for try := 0; ; try++ {
		o := against(t, sc, lasting, start)
		if !o.alive || o.party.failed == 0 || o.party.asked >= due || try == 2 {
			return o
		}
		t.Logf("%d of %d failed, but only %d of %d could be asked: this machine is too busy, again", o.party.failed, o.party.asked, o.party.asked, due)
	}
}

func startKeypostd(t *testing.T, sc scenario, s surroundings, more string) *target {
	t.Helper()
	g := process.NewGroup(t, s.memory)
	if sc.slots > 0 {
		more = strings.Trim(fmt.Sprintf("maxConnections: %d, %s", sc.slots, more), ", ")
	}
	v := start(t, setup{issuers: s.issuers, listen: more, within: onCPUs(g, s.cpus)})
	v.group = g
	return v
}

// onCPUs is a command that runs what follows it in the group, on the first processors of the machine.
func onCPUs(g *process.Group, cpus int) []string {
	return append(g.Within(), "taskset", "-c", fmt.Sprintf("0-%d", cpus-1))
}
