package terminal

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/keypost/keypost/internal/text"
)

// Line is the last line of a screen, which is drawn anew while a run waits. What is written takes its place. It is safe for concurrent
// use.
type Line struct {
	w     io.Writer
	width func() int // of the screen, which may change; 0 where no line can be drawn anew

	mu    sync.Mutex
	drawn bool
}

// NewLine returns the last line of the screen behind w. Where there is none it draws nothing.
func NewLine(w io.Writer, getenv func(string) string) *Line {
	return &Line{w: w, width: func() int { return Of(w, getenv).Width }}
}

const clearLine = "\r\x1b[K"

// Draw shows text in the place of what was drawn before, cut to the width: one that wraps could not be drawn anew. It reports whether the
// line is that of a screen.
func (l *Line) Draw(shown string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	width := l.width()
	if width == 0 {
		return false
	}
	l.drawn = true
	_, _ = io.WriteString(l.w, clearLine+runewidth.Truncate(text.OneLine(shown, maxCell), width-1, ""))
	return true
}

// Write implements io.Writer.
func (l *Line) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
	return l.w.Write(p)
}

// Clear takes away what was drawn.
func (l *Line) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
}

func (l *Line) clear() {
	if l.drawn {
		l.drawn = false
		_, _ = io.WriteString(l.w, clearLine)
	}
}

// How long a run may be silent, on a screen and elsewhere.
const (
	stillOnScreen  = 2 * time.Second
	stillElsewhere = 15 * time.Second
)

// Progress shows how far work is that takes longer than anybody looks at a still screen: in the last line of a screen, elsewhere in a line
// now and then. It is safe for concurrent use.
type Progress struct {
	line       *Line
	what, each string

	mu          sync.Mutex
	done, total int
	written     int    // of a store that is written
	now         string // what is being done just now; may be empty

	stop, stopped chan struct{}
}

// Progress begins to show how far work is, which what names; each is what it is made of, such as "key sets".
func (l *Line) Progress(what, each string) *Progress {
	p := &Progress{line: l, what: what, each: each, stop: make(chan struct{}), stopped: make(chan struct{})}
	go p.run(time.Now())
	return p
}

// Of adds to how many there are in all.
func (p *Progress) Of(n int) { p.note(func() { p.total += n }) }

// Done notes that n more are done.
func (p *Progress) Done(n int) { p.note(func() { p.done += n }) }

// Wrote notes that one more is written.
func (p *Progress) Wrote() { p.note(func() { p.written++ }) }

// Now notes what is being done.
func (p *Progress) Now(what string) { p.note(func() { p.now = what }) }

func (p *Progress) note(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// End takes what was drawn away.
func (p *Progress) End() {
	close(p.stop)
	<-p.stopped
}

func (p *Progress) run(began time.Time) {
	defer close(p.stopped)
	defer p.line.Clear()
	still, every := stillElsewhere, stillElsewhere
	if p.line.width() > 0 {
		still, every = stillOnScreen, time.Second
	}
	for wait := still; ; wait = every {
		select {
		case <-p.stop:
			return
		case <-time.After(wait):
		}
		if shown := p.text(time.Since(began)); !p.line.Draw(shown) {
			_, _ = fmt.Fprintln(p.line, text.OneLine(shown, maxCell))
		}
	}
}

func (p *Progress) text(since time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := p.what
	if p.total > 0 {
		shown += fmt.Sprintf(": %d of %d %s", p.done, p.total, p.each)
	}
	if p.written > 0 {
		shown += fmt.Sprintf(", %d written", p.written)
	}
	shown += ", " + rounded(since)
	if p.now != "" {
		shown += ": " + p.now
	}
	return shown
}

// Countdown shows how far something is that is waited for: on a screen by a line that is drawn anew each second, elsewhere by a line now
// and then.
type Countdown struct {
	line *Line
	told time.Time // the latest line, or the beginning
}

// Countdown returns one in the line.
func (l *Line) Countdown() *Countdown { return &Countdown{line: l, told: time.Now()} }

// Awaited is what a [Countdown] counts for.
type Awaited struct {
	What        string    // is waited for
	Since, Till time.Time // Till is to the second, and zero if nobody can say
}

// Wait waits for d, or for the end of ctx, whose cause is the error, and shows how far a is meanwhile.
func (c *Countdown) Wait(ctx context.Context, d time.Duration, a Awaited) error {
	defer c.line.Clear()
	end := time.Now().Add(d)
	for now := time.Now(); now.Before(end); now = time.Now() {
		if !c.line.Draw(a.text(now)) && now.Sub(c.told) >= a.tellEvery(now) {
			c.told = now
			_, _ = fmt.Fprintln(c.line, text.OneLine(a.text(now), maxCell))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(end.Sub(now), time.Second)):
		}
	}
	return nil
}

// tellEvery returns how far apart lines are: nobody reads a hundred of them a day.
func (a Awaited) tellEvery(now time.Time) time.Duration {
	if left := a.Till.Sub(now); left > 2*time.Hour {
		return time.Hour
	}
	return 10 * time.Minute
}

// text says for how long a is waited for still.
func (a Awaited) text(now time.Time) string {
	if a.Till.IsZero() {
		return a.What + ": waiting for " + rounded(now.Sub(a.Since))
	}
	return fmt.Sprintf("%s: %s left, until %s", a.What, rounded(a.Till.Sub(now)), a.Till.UTC().Format(time.RFC3339))
}

// rounded returns a duration without the seconds where there are hours, and without units that are zero.
func rounded(d time.Duration) string {
	to := time.Second
	if d = max(d, 0); d >= time.Hour {
		to = time.Minute
	}
	shown := d.Round(to).String()
	if minutes, is := strings.CutSuffix(shown, "m0s"); is {
		shown = minutes + "m"
	}
	if hours, is := strings.CutSuffix(shown, "h0m"); is {
		shown = hours + "h"
	}
	return shown
}
