//go:build e2e_full

package attack

import (
	"errors"
	"fmt"
)

// mostOverIdle is how much an attack may make resident, in MiB.
const mostOverIdle = 128

// scenario is one attack: a mode, and on how many connections.
type scenario struct {
	mode string
	n    int
	// slots makes both servers have this many connections at most.
	slots int
}

// surroundings are what a server runs in.
type surroundings struct {
	cpus      int
	memory    int // MiB
	issuers   int
	scenarios []scenario
}

// columns are those of a table, and titles those of the tables.
const columns = "| attack x connections | failed | p99 ms | MiB over idle | nginx: failed | p99 ms |\n|---|---|---|---|---|---|"

var titles = [...]string{"Two processors:", "One processor for the server:", "Less memory (256 MiB; nginx has 512):", "10,000 issuers (nginx has one document):"}

// outcome is what an attack has brought about.
type outcome struct {
	alive    bool
	attacked int // connections that the attacker has had
	party    *party
	detail   string
	peak     int // MiB of the group, kernel buffers too; 0 without a group
	resident int // MiB of the process; this many came with the attack
}

// faults returns what is wrong with the outcome itself, whatever becomes of another server.
func (o outcome) faults() (all []error) {
	if o.attacked == 0 {
		all = append(all, errors.New("no connection of the attacker was accepted: nothing is shown"))
	}
	if o.party.asked == 0 {
		all = append(all, errors.New("no honest request was made: nothing is shown"))
	}
	if !o.alive {
		all = append(all, errors.New("the server has ended"))
	}
	if o.resident > mostOverIdle {
		all = append(all, fmt.Errorf("%d MiB more are resident than before, want %d at most", o.resident, mostOverIdle))
	}
	return all
}

// failures judges the honest requests that failed, beside nginx under the same attack, by the rule that test/attack/run states:
// where there is least, with less memory or 10,000 issuers, a quarter may fail; on one processor as many as with nginx; else
// none, or fewer than with nginx. How long answers took is printed only: on a machine with other work it says nothing.
func (o outcome) failures(s surroundings, nginx outcome) error {
	failed, most := o.party.failed, max(nginx.party.failed-1, 0)
	switch {
	case s.memory < 512 || s.issuers > 1:
		most = o.party.asked / 4
	case s.cpus == 1:
		most = nginx.party.failed
	}
	if failed <= most {
		return nil
	}
	return fmt.Errorf("%d of %d honest requests failed, want %d at most (with nginx %d of %d): %w", failed, o.party.asked, most, nginx.party.failed, nginx.party.asked, o.party.first)
}
