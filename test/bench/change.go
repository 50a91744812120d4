package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
)

// opens reports which documents of a directory any process opens (inotify).
type opens struct{ fd int }

func watchOpens(dir string) (*opens, error) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch who opens documents: %w", err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN); err != nil {
		return nil, fmt.Errorf("watch who opens documents in %s: %w", dir, errors.Join(err, unix.Close(fd)))
	}
	return &opens{fd}, nil
}

func (o *opens) close() { _ = unix.Close(o.fd) }

// drain returns the names of the documents that were opened since the last call, one for each time.
func (o *opens) drain() ([]string, error) {
	var names []string
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(o.fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			e := (*unix.InotifyEvent)(unsafe.Pointer(&rest[0])) //nolint:gosec // the kernel's own layout
			end := unix.SizeofInotifyEvent + int(e.Len)
			if e.Mask&unix.IN_Q_OVERFLOW != 0 {
				return nil, errors.New("more documents were opened than the kernel could tell")
			}
			if name := string(bytes.TrimRight(rest[unix.SizeofInotifyEvent:end], "\x00")); strings.HasSuffix(name, ".yaml") {
				names = append(names, name)
			}
			rest = rest[end:]
		}
	}
}

// outcome is what became of a number of changes.
type outcome struct {
	took   []time.Duration // from the call that stores a change until an answer has it
	own    []int           // how often the changed document was opened in that time, after it was stored
	others int             // how often one was opened that had not been changed
}

// changer changes key sets in a directory that keypostd serves.
type changer struct {
	store   *keystore.Store
	opens   *opens
	target  *target
	changed map[string]bool // by file name
}

const changeBar = bar(1) // seconds

// changes adds a key to one key set after the other and waits each time until it is served.
func (b *bench) changes(ctx context.Context, s side, dir string, count int) (outcome, error) {
	var o outcome
	store, err := filestore.Open(dir)
	if err != nil {
		return o, err
	}
	watch, err := watchOpens(dir)
	if err != nil {
		return o, err
	}
	defer watch.close()
	c := &changer{store: keystore.NewStore(store), opens: watch, target: newTarget(s.server.address, s.issuers, b.cert.roots), changed: map[string]bool{}}
	for i := range count {
		if err := c.one(ctx, c.target.issuer(i+1), &o); err != nil {
			return o, fmt.Errorf("change %s: %w", issuerName(i), err)
		}
	}
	return o, nil
}

// one makes and awaits a change. The bench opens the document itself while it stores the change, and keypostd can do
// so only later, when its batch has been collected.
func (c *changer) one(ctx context.Context, i int, o *outcome) error {
	key, err := syntheticKey()
	if err != nil {
		return err
	}
	c.changed[string(issuerName(i))+".yaml"] = true
	began := time.Now()
	_, err = keystore.Update(ctx, c.store, issuerName(i), func(s keystore.KeySet) (keystore.KeySet, error) {
		return s.Add(keystore.Change{At: time.Now(), By: "bench"}, key)
	})
	if err != nil {
		return err
	}
	if _, err := c.opens.drain(); err != nil {
		return err
	}
	if err := c.await(ctx, i, key.ID()); err != nil {
		return err
	}
	o.took = append(o.took, time.Since(began))
	return c.count(i, o)
}

func (c *changer) count(i int, o *outcome) error {
	names, err := c.opens.drain()
	own := 0
	for _, n := range names {
		if n == string(issuerName(i))+".yaml" {
			own++
		}
		if !c.changed[n] {
			o.others++
		}
	}
	o.own = append(o.own, own)
	return err
}

// await asks for the JWKS of issuer i until it has the key.
func (c *changer) await(ctx context.Context, i int, id keystore.KeyID) error {
	conn, err := c.target.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // everything has been read
	for in := bufio.NewReader(conn); ; time.Sleep(time.Millisecond) {
		if _, err := fmt.Fprintf(conn, requestLine, issuerName(i), ""); err != nil {
			return err
		}
		e, err := readExchange(in)
		if err != nil || bytes.Contains(e.body, []byte(id)) {
			return err
		}
	}
}

func (r *report) changes(o outcome, issuers int) {
	r.table(fmt.Sprintf("%d changes among %d key sets in a running keypostd", len(o.took), issuers), "", "", "")
	slowest := slices.Max(o.took)
	r.row("stored and served within: median", quantile(o.took, 0.5).Round(time.Millisecond).String(), "")
	r.row("99 of 100", quantile(o.took, 0.99).Round(time.Millisecond).String(), "")
	r.row("slowest", slowest.Round(time.Millisecond).String(), r.verdict(slowest.Seconds(), changeBar, "%.0f s"))
	r.row("times the changed document was read until then: median", strconv.Itoa(quantile(o.own, 0.5)), r.verdict(float64(quantile(o.own, 0.5)), 1, "%.0f"))
	r.row("most (a poll may coincide)", strconv.Itoa(slices.Max(o.own)), "")
	r.row("times one was read that had not changed", strconv.Itoa(o.others), r.verdict(float64(o.others), 0, "%.0f"))
	r.end()
}
