package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// hintedError carries what to do next.
type hintedError struct {
	err    error
	format string
	args   []any
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// withHint adds to an error what to do about it. A [command] among args is printed so that it can be pasted.
func withHint(err error, format string, args ...any) error {
	return &hintedError{err, format, args}
}

// command is a command of ours that somebody may want to type next: the words after "keypost".
type command []string

// hint prints a hint, with every command of it as line does.
func (a *app) hint(format string, args ...any) string {
	args = slices.Clone(args)
	for i, arg := range args {
		if c, is := arg.(command); is {
			args[i] = a.line(c)
		}
	}
	return fmt.Sprintf(format, args...)
}

// line is a command line that can be pasted into a shell: quoted, and with the store of this run if it was given as a
// flag. One that the environment names is there for the next command too.
func (a *app) line(c command) string {
	words := append([]string{"keypost"}, c...)
	if a.storeFlag != nil && a.storeFlag.Changed {
		if _, err := parsePlace(a.store); err == nil { // or it may hold anything, also a password
			words = append(words, "--store", a.store)
		}
	}
	return quoted(words...)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quoted joins words into a line for a POSIX shell.
func quoted(words ...string) string {
	list := make([]string, len(words))
	for i, w := range words {
		if list[i] = w; !plainWord.MatchString(w) {
			list[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(list, " ")
}
