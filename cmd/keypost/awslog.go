package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/keypost/keypost/provision/ccoctl"
)

// journal is the log of an aws command: ccoctl's, line for line, since scripts look for its lines. It goes to stderr
// in the form of Go's log package, which is the form that they know. Any goroutine may write to it.
type journal struct {
	lines *log.Logger
	w     io.Writer
	tty   bool

	mu    sync.Mutex
	drawn bool      // a line that is still to change stands on the terminal
	phase string    // of the wait that progress was last told of
	said  time.Time // when it was, where lines do not change
}

func newJournal(w io.Writer) *journal {
	f, isFile := w.(*os.File)
	return &journal{lines: ccoctl.NewLogger(w), w: w, tty: isFile && term.IsTerminal(int(f.Fd()))}
}

// printf logs one line.
func (j *journal) printf(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.print(format, args...)
}

func (j *journal) print(format string, args ...any) {
	j.erase()
	j.lines.Print(oneLine(fmt.Sprintf(format, args...)))
}

// progressEvery is how often a wait is told of where each telling is a line: seldom enough for a CI log to stay
// readable, often enough that nobody takes the program for dead.
const progressEvery = 15 * time.Second

// progress tells how a wait is getting on: in one changing line on a terminal, else in a line now and then.
func (j *journal) progress(now time.Time, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.tty && (format != j.phase || now.Sub(j.said) >= progressEvery) {
		j.phase, j.said = format, now
		j.print(format, args...)
	}
	j.draw(format, args...)
}

// show draws a line that the next one replaces; only a terminal has such lines.
func (j *journal) show(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.draw(format, args...)
}

func (j *journal) draw(format string, args ...any) {
	if j.tty {
		_, _ = fmt.Fprintf(j.w, "\r\x1b[K%s", oneLine(fmt.Sprintf(format, args...)))
		j.drawn = true
	}
}

// clear takes the changing line away.
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
