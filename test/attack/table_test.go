//go:build e2e_full

package attack

import (
	"fmt"
	"slices"
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
		{"h1-pipeline", 100, 0}, {"h1-header-bomb", 1000, 0}, {"h1-small-bomb", 1200, 0}, {"h1-large-header", 1800, 0}, {"h1-stall", 1800, 0}, {"h1-idle", 2000, 0},
		{honestLoad, 300, 0}, {"tls-handshakes", 20, 0}, {"h2-offers", 20, 0},
	}
	crowds = []scenario{
		{"tcp-idle", 600, 500}, {"tcp-idle", 3000, 500}, {"h1-busy", 520, 500}, {"h1-idle", 600, 500}, {"h1-slow-header", 600, 500},
		{"h1-stall", 600, 500}, {"h1-drip", 600, 500}, {"h1-slow-body", 600, 500},
	}
	slow = []scenario{{"h1-slow-header", 2000, 0}, {slowHeaders, 2000, 0}, {slowBody, 2000, 0}, {slowRead, 2000, 0}, {slowHeaders, 2000, 1000}, {slowRead, 2000, 1000}}
	// hardest are those that are tried with less memory and with many issuers.
	hardest = []scenario{{"h1-idle", 3000, 0}, {"h1-large-header", 1800, 0}, {honestLoad, 300, 0}}
	// busiest are those that are tried on one processor.
	busiest = []scenario{{"h1-pipeline", 100, 0}, {slowHeaders, 2000, 0}, {honestLoad, 300, 0}, {"tls-handshakes", 20, 0}, {"h2-offers", 20, 0}}
)

// trial is a scenario on a number of processors, for nginx.
type trial struct {
	scenario
	cpus int
}

func TestTable(t *testing.T) {
	all := slices.Concat(loads, crowds, slow)
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
				t.Log("nginx: ", other.detail)
				for _, err := range other.faults() {
					t.Errorf("nginx: %v", err)
				}
				o := judgeable(t, sc, func(t *testing.T, sc scenario) *target { return startKeypostd(t, sc, s) })
				rows = append(rows, row(sc, o, other))
				t.Log(rows[len(rows)-1], o.detail)
				for _, err := range append(o.faults(), o.failures(s, other)) {
					if err != nil {
						t.Errorf("keypostd: %v", err)
					}
				}
			})
		}
	}
	fmt.Println(strings.Join(rows, "\n"))
}

func row(sc scenario, o, nginx outcome) string {
	name := fmt.Sprintf("%s x %d", sc.mode, sc.n)
	if sc.slots > 0 {
		name += fmt.Sprintf(", %d slots", sc.slots)
	}
	figures := func(p *party) string {
		return fmt.Sprintf("%d of %d | %d", p.failed, p.asked, p.quantile(0.99).Milliseconds())
	}
	return fmt.Sprintf("| %s | %s | %d | %s |", name, figures(o.party), o.resident, figures(nginx.party))
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

func startKeypostd(t *testing.T, sc scenario, s surroundings) *target {
	t.Helper()
	g := process.NewGroup(t, s.memory)
	more := ""
	if sc.slots > 0 {
		more = fmt.Sprintf("maxConnections: %d", sc.slots)
	}
	v := start(t, setup{issuers: s.issuers, listen: more, within: onCPUs(g, s.cpus)})
	v.group = g
	return v
}

// onCPUs is a command that runs what follows it in the group, on the first processors of the machine.
func onCPUs(g *process.Group, cpus int) []string {
	return append(g.Within(), "taskset", "-c", fmt.Sprintf("0-%d", cpus-1))
}
