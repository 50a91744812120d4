package cloudcmd

import (
	"log"
	"sync"
	"time"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
)

// journal is the log of a command on stderr, in ccoctl's form, since scripts look for its lines. It is safe for
// concurrent use.
type journal struct {
	live  *terminal.Line
	lines *log.Logger

	mu    sync.Mutex
	phase string    // of the wait printed last, where lines do not change
	at    time.Time // when anything was printed last
}

func newJournal(live *terminal.Line) *journal {
	return &journal{live: live, lines: ccoctl.NewLogger(live), at: time.Now()}
}

// show logs one line.
func (j *journal) show(at time.Time, line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.at = at
	j.lines.Print(cli.OneLine(line))
}

// progressEvery is how long nothing is printed, where lines do not change, before a wait is: seldom enough for a CI log to stay
// readable, often enough that nobody takes the program for dead. Waits are reported every other second, so that nothing is
// silent for more than 15 seconds.
const progressEvery = 10 * time.Second

// wait prints how a wait is getting on: in one changing line on a terminal, else in a line now and then.
func (j *journal) wait(w install.Event) {
	if !j.live.Draw(w.Text) && j.due(w) {
		j.show(w.At, w.Text)
	}
}

func (j *journal) due(w install.Event) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	due := !w.Still && w.Phase != j.phase || w.At.Sub(j.at) >= progressEvery
	if due && !w.Still {
		j.phase = w.Phase
	}
	return due
}
