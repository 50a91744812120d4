package cloudcmd

import (
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
)

// journal is the log of a command on stderr, in ccoctl's form, since scripts look for its lines. It is safe for
// concurrent use.
type journal struct {
	lines *log.Logger
	w     io.Writer
	tty   bool

	mu    sync.Mutex
	drawn bool      // the terminal shows a line that is still to change
	phase string    // of the wait printed last, where lines do not change
	at    time.Time // when anything was printed last
}

func newJournal(w io.Writer) *journal {
	f, isFile := w.(*os.File)
	return &journal{at: time.Now(), lines: ccoctl.NewLogger(w), w: w, tty: isFile && term.IsTerminal(int(f.Fd()))}
}

// printf logs one line.
func (j *journal) printf(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.print(time.Now(), format, args...)
}

func (j *journal) print(at time.Time, format string, args ...any) {
	j.erase()
	j.at = at
	j.lines.Print(cli.OneLine(fmt.Sprintf(format, args...)))
}

// progressEvery is how long nothing is printed, where lines do not change, before a wait is: seldom enough for a CI log to stay
// readable, often enough that nobody takes the program for dead. Waits are reported every other second, so that nothing is
// silent for more than 15 seconds.
const progressEvery = 10 * time.Second

// wait prints how a wait is getting on: in one changing line on a terminal, else in a line now and then.
func (j *journal) wait(w install.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.tty && (!w.Still && w.Phase != j.phase || w.At.Sub(j.at) >= progressEvery) {
		if !w.Still {
			j.phase = w.Phase
		}
		j.print(w.At, "%s", w.Text)
	}
	j.draw("%s", w.Text)
}

// show draws a line that the next one replaces; only a terminal has such lines.
func (j *journal) show(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.draw(format, args...)
}

func (j *journal) draw(format string, args ...any) {
	if j.tty {
		_, _ = fmt.Fprintf(j.w, "\r\x1b[K%s", cli.OneLine(fmt.Sprintf(format, args...)))
		j.drawn = true
	}
}

// clear removes the changing line.
func (j *journal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.erase()
}

func (j *journal) erase() {
	if j.drawn {
		_, _ = fmt.Fprint(j.w, "\r\x1b[K")
		j.drawn = false
	}
}
