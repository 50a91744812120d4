// Package claim is a lock that one of several processes has, whose file says who that is. The kernel frees it when its holder ends.
package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keypost/keypost/internal/text"
)

// ErrBusy means that somebody else had the lock for all the time that Wait was given.
var ErrBusy = errors.New("somebody else has the lock")

// Lock is a file that is open, and may be locked. Each has its own turn, also of several in one process.
type Lock struct {
	f    *os.File
	said string // what the file says since Wait has returned
}

// Open makes the file if it is missing. It does not lock it.
func Open(file string) (*Lock, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return &Lock{f: f}, nil
}

// Wait locks the file, and returns ErrBusy if that takes longer than patience, or the error of ctx. It writes into the file who has
// the lock; a file that cannot be written is locked all the same.
func (l *Lock) Wait(ctx context.Context, patience time.Duration) error {
	const again = 250 * time.Millisecond
	for began := time.Now(); ; {
		err := unix.Flock(int(l.f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			l.sign(time.Now())
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if time.Since(began) >= patience {
			return ErrBusy
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(again):
		}
	}
}

// sign replaces what the file says. Whoever reads it meanwhile reads nothing: a line without an end is none.
func (l *Lock) sign(now time.Time) {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	said := fmt.Sprintf("process %d on %s, since %s", os.Getpid(), text.OneLine(host, maxHost), now.UTC().Format(time.RFC3339Nano))
	if l.f.Truncate(0) != nil {
		return
	}
	if _, err := l.f.WriteAt([]byte(said+"\n"), 0); err == nil {
		l.said = said
	}
}

const (
	maxHost = 255 // characters
	maxLine = 600 // bytes: what of a file is read, and characters of it shown
)

// Holder returns who has had the lock last, by what the file says: text of whoever may write it, in one line that is safe for a terminal.
func (l *Lock) Holder() string {
	line := make([]byte, maxLine)
	n, _ := l.f.ReadAt(line, 0) // a file that is shorter ends with an error
	said, _, whole := strings.Cut(string(line[:n]), "\n")
	if !whole {
		said = ""
	}
	return cmp.Or(text.OneLine(said, maxLine), "a process that did not say who it is")
}

// Said returns what the file says of this holder, or "" without the lock.
func (l *Lock) Said() string { return l.said }

// Close frees the lock.
func (l *Lock) Close() error { return l.f.Close() }
