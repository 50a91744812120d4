package cli

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

// status is where a run shows what it waits for: a line that is drawn anew, if that is a terminal.
type status struct {
	err   io.Writer
	width func() int // of the terminal, which may change; nil if it is none
}

func (f *Factory) status() status {
	s := status{err: f.Err}
	if f.screen(f.Err).Width > 0 {
		s.width = func() int { return f.screen(f.Err).Width }
	}
	return s
}

const clearLine = "\r\x1b[K"

// draw shows a line in the place of the one before. One that wraps could not be drawn anew.
func (s status) draw(line string) {
	_, _ = fmt.Fprint(s.err, clearLine+runewidth.Truncate(OneLine(line), max(s.width()-1, 0), ""))
}

func (s status) clear() { _, _ = fmt.Fprint(s.err, clearLine) }

// How long a run may be silent, on a terminal and elsewhere.
const (
	stillOnTerminal = 2 * time.Second
	stillElsewhere  = 15 * time.Second
)

// Progress shows how far work is that takes longer than anybody looks at a still screen: on a terminal in a line that changes,
// elsewhere in a line now and then. It is safe for concurrent use. A run shows one at a time.
type Progress struct {
	status
	what string // is done
	each string // what there are several of

	mu          sync.Mutex
	drawn       bool
	done, total int
	written     int    // of a store that is written
	now         string // what is being done just now; may be empty

	stop, stopped chan struct{}
}

// Progress begins to show how far work is, which what names; each is what it is made of, such as "key sets".
func (f *Factory) Progress(what, each string) *Progress {
	return f.begin(&Progress{status: f.status(), what: what, each: each})
}

func (f *Factory) begin(p *Progress) *Progress {
	p.stop, p.stopped = make(chan struct{}), make(chan struct{})
	f.progress.Store(p)
	go p.run(time.Now())
	return p
}

// Of adds to how many there are in all.
func (p *Progress) Of(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total += n
}

// Done notes that n more are done.
func (p *Progress) Done(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
}

// Now notes what is being done.
func (p *Progress) Now(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = what
}

// End takes what was drawn away.
func (p *Progress) End() {
	close(p.stop)
	<-p.stopped
}

func (p *Progress) run(began time.Time) {
	defer close(p.stopped)
	still, every := stillElsewhere, stillElsewhere
	if p.width != nil {
		still, every = stillOnTerminal, time.Second
	}
	timer := time.NewTimer(still)
	defer timer.Stop()
	for {
		select {
		case <-p.stop:
			p.print("")
			return
		case <-timer.C:
		}
		p.show(time.Since(began))
		timer.Reset(every)
	}
}

// show shows how far the work is, since began.
func (p *Progress) show(since time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn = p.width != nil; p.drawn {
		p.draw(p.line(since))
	} else {
		_, _ = fmt.Fprintln(p.err, OneLine(p.line(since)))
	}
}

// print takes what was drawn away, and prints lines in its place.
func (p *Progress) print(lines string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		p.drawn = false
		p.clear()
	}
	_, _ = io.WriteString(p.err, lines)
}

func (p *Progress) line(since time.Duration) string {
	line := p.what
	if p.total > 0 {
		line += fmt.Sprintf(": %d of %d %s", p.done, p.total, p.each)
	}
	if p.written > 0 {
		line += fmt.Sprintf(", %d written", p.written)
	}
	line += fmt.Sprintf(", %v", short(since))
	if p.now != "" {
		line += ": " + p.now
	}
	return line
}

// ReadAll is [catalog.ReadAll], and shows how far it is.
func (f *Factory) ReadAll(ctx context.Context, r keystore.Reader, but ...keystore.Name) (catalog.Contents, error) {
	p := f.Progress("reading the store", "key sets")
	defer p.End()
	return catalog.ReadAll(ctx, counted{r, p}, but...)
}

// counted counts what is read of a store.
type counted struct {
	keystore.Reader
	p *Progress
}

// List implements keystore.Reader.
func (c counted) List(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	listed, err := c.Reader.List(ctx)
	c.p.Of(len(listed))
	return listed, err
}

// Load implements keystore.Reader.
func (c counted) Load(ctx context.Context, n keystore.Name) (keystore.KeySet, keystore.Revision, error) {
	defer c.p.Done(1)
	return c.Reader.Load(ctx, n)
}

// Counted returns a backend of which it is counted in p what is listed, read and written.
func Counted(b keystore.Backend, p *Progress) keystore.Backend { return countedBackend{b, p} }

type countedBackend struct {
	keystore.Backend
	p *Progress
}

// List implements keystore.Backend.
func (c countedBackend) List(ctx context.Context) (map[keystore.Name]keystore.Revision, error) {
	listed, err := c.Backend.List(ctx)
	c.p.Of(len(listed))
	return listed, err
}

// Get implements keystore.Backend.
func (c countedBackend) Get(ctx context.Context, n keystore.Name) ([]byte, keystore.Revision, error) {
	defer c.p.Done(1)
	return c.Backend.Get(ctx, n)
}

// Put implements keystore.Backend.
func (c countedBackend) Put(ctx context.Context, n keystore.Name, old keystore.Revision, doc []byte) (keystore.Revision, error) {
	rev, err := c.Backend.Put(ctx, n, old, doc)
	if err == nil {
		c.p.mu.Lock()
		defer c.p.mu.Unlock()
		c.p.written++
	}
	return rev, err
}
