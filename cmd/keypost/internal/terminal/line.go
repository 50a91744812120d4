package terminal

import (
	"context"
	"fmt"
	"io"
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
	told  time.Time // when anything was written last, or the beginning
}

// NewLine returns the last line of the screen behind w. Where there is none it is written as a line now and then.
func NewLine(w io.Writer, getenv func(string) string) *Line {
	return &Line{w: w, width: func() int { return Of(w, getenv).Width }, told: time.Now()}
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

// show draws text; elsewhere than on a screen it writes a line, unless the latest one was less than every ago.
func (l *Line) show(shown string, every time.Duration) {
	if l.Draw(shown) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.told) >= every {
		l.told = now
		_, _ = fmt.Fprintln(l.w, text.OneLine(shown, maxCell))
	}
}

// Write implements io.Writer.
func (l *Line) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
	l.told = time.Now()
	return l.w.Write(p)
}

// Silent returns for how long nothing was written.
func (l *Line) Silent() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.told)
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
	now         string // what is being done just now; may be empty

	stop, stopped chan struct{}
}

// Progress begins to show how far work is, which what names; each is what it is made of, such as "key sets".
func (l *Line) Progress(what, each string) *Progress {
	p := &Progress{line: l, what: what, each: each, stop: make(chan struct{}), stopped: make(chan struct{})}
	l.mu.Lock()
	l.told = time.Now()
	l.mu.Unlock()
	go p.run(time.Now())
	return p
}

// Of adds to how many there are in all.
func (p *Progress) Of(n int) { p.note(func() { p.total += n }) }

// Done notes that n more are done.
func (p *Progress) Done(n int) { p.note(func() { p.done += n }) }

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
	for wait := stillOnScreen; ; wait = time.Second {
		select {
		case <-p.stop:
			return
		case <-time.After(wait):
		}
		p.line.show(p.text(time.Since(began)), stillElsewhere)
	}
}

func (p *Progress) text(since time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := p.what
	if p.total > 0 {
		shown += fmt.Sprintf(": %d of %d %s", p.done, p.total, p.each)
	}
	shown += ", " + Duration(since)
	if p.now != "" {
		shown += ": " + p.now
	}
	return shown
}

// Awaited is what [Line.Wait] counts for.
type Awaited struct {
	What        string    // is waited for
	Since, Till time.Time // Till is to the second, and zero if nobody can say
}

// Wait waits for d, or for the end of ctx, whose cause is the error, and shows how far a is meanwhile: elsewhere than on a screen seldom, since
// nobody reads a hundred lines a day.
func (l *Line) Wait(ctx context.Context, d time.Duration, a Awaited) error {
	defer l.Clear()
	end := time.Now().Add(d)
	for now := time.Now(); now.Before(end); now = time.Now() {
		every := 10 * time.Minute
		if a.Till.Sub(now) > 2*time.Hour {
			every = time.Hour
		}
		l.show(a.text(now), every)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(end.Sub(now), time.Second)):
		}
	}
	return nil
}

// text says for how long a is waited for still.
func (a Awaited) text(now time.Time) string {
	if a.Till.IsZero() {
		return a.What + ": waiting for " + Duration(now.Sub(a.Since))
	}
	return fmt.Sprintf("%s: %s left, until %s", a.What, Duration(max(a.Till.Sub(now), 0)), a.Till.UTC().Format(time.RFC3339))
}
