package cli

import (
	"fmt"
	"slices"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

// HintedError carries what to do next.
type HintedError struct {
	err    error
	format string
	args   []any
}

func (e *HintedError) Error() string { return e.err.Error() }
func (e *HintedError) Unwrap() error { return e.err }

// WithHint adds to an error what to do about it. A [Command] among args is printed so that it can be pasted.
func WithHint(err error, format string, args ...any) error {
	return &HintedError{err, format, args}
}

// Command is a command of ours that somebody may want to type next: the words after "keypost".
type Command []string

// Verify returns the command that compares what is served with the store, by the name of the key set. CAFile and connect
// may be empty.
func Verify(n keystore.Name, dev bool, caFile, connect string) Command {
	c := Command{"verify", string(n)}
	if dev {
		c = append(c, "--dev")
	}
	if caFile != "" {
		c = append(c, "--ca-file", caFile)
	}
	if connect != "" {
		c = append(c, "--connect", connect)
	}
	return c
}

// format is fmt.Sprintf, with every [Command] among args printed as Line does.
func (f *Factory) format(format string, args ...any) string {
	args = slices.Clone(args)
	for i, arg := range args {
		if c, is := arg.(Command); is {
			args[i] = f.Line(c)
		}
	}
	return fmt.Sprintf(format, args...)
}

// Line returns a command line that can be pasted into a shell: quoted, and with the store of this run if it was given as a
// flag, and the place of observations likewise. One that the environment names is there for the next command too.
func (f *Factory) Line(c Command) string {
	words := append([]string{"keypost"}, c...)
	if f.storeFlag != nil && f.storeFlag.Changed {
		if _, err := ParseStore(f.Store); err == nil { // or it may hold anything, also a password
			words = append(words, "--store", f.Store)
		}
	}
	if f.observationsGiven() && observes(c) {
		if _, err := f.observationsURL(); err == nil {
			words = append(words, "--observations", f.Observations)
		}
	}
	return Quoted(words...)
}

// Quoted joins words into a line for a POSIX shell.
func Quoted(words ...string) string { return text.Quoted(words...) }
