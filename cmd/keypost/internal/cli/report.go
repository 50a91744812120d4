package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/keystore"
)

// Exit codes.
const (
	ExitDone        = 0
	ExitFailed      = 1   // it failed, or a check did
	ExitUsage       = 2   // unknown command or flag, missing or contradictory arguments
	ExitDiffer      = 3   // --diff found something that differs
	ExitNotYet      = 75  // a gate is closed; EX_TEMPFAIL of sysexits.h: try again later
	ExitInterrupted = 130 // Ctrl-C
	ExitTerminated  = 143 // SIGTERM
)

// usageError is a mistake in what was typed; the exit code is 2.
type usageError struct{ Err error }

func (e *usageError) Error() string { return e.Err.Error() }
func (e *usageError) Unwrap() error { return e.Err }

// Usage marks an error as a mistake in what was typed; the exit code is 2.
func Usage(err error) error { return &usageError{err} }

// Usagef is fmt.Errorf for a mistake in what was typed; the exit code is 2.
func Usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
}

// Exit gives an error an exit code of its own.
func Exit(code int, err error) error { return exitError{err, code} }

// report prints an error as one sentence, with a hint where there is one, and returns the exit code.
func (f *Factory) report(cmd *cobra.Command, err error) int {
	if err == nil {
		return ExitDone
	}
	all := messages(err)
	for i, message := range all {
		if !slices.Contains(all[:i], message) {
			f.Notice("keypost: %s", redacted(message))
		}
	}
	typed := Misused(err)
	hints := f.hints(explained(err))
	if len(hints) == 0 && typed {
		hints = []string{cmd.CommandPath() + " --help"}
	}
	for _, hint := range hints {
		f.Notice("hint: %s", redacted(hint))
	}
	if _, ok := errors.AsType[*keystore.NotYetError](err); ok {
		return ExitNotYet
	}
	if typed {
		return ExitUsage
	}
	if e, ok := errors.AsType[exitError](err); ok {
		return e.code
	}
	return ExitFailed
}

// hints returns what to do about an error: joined errors have a hint each, and what is said twice is said once.
func (f *Factory) hints(err error) (all []string) {
	switch e := any(err).(type) { // this one error, not what it wraps
	case *HintedError:
		if hint := e.Hint(f); hint != "" {
			all = append(all, hint)
		}
	case interface{ Unwrap() error }:
		all = f.hints(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, slices.DeleteFunc(f.hints(inner), func(hint string) bool { return slices.Contains(all, hint) })...)
		}
	}
	return all
}

// messages returns an error's sentences: joined errors have one each, after what an error around them begins with. Line breaks in
// any other error are not ours.
func messages(err error) []string {
	if inner := errors.Unwrap(err); inner != nil {
		all := messages(inner)
		if before, ok := strings.CutSuffix(err.Error(), inner.Error()); ok && (before == "" || len(all) > 1) {
			for i := range all {
				all[i] = before + all[i]
			}
			return all
		}
	}
	joined, is := err.(interface{ Unwrap() []error }) // this one error, not what it wraps
	if !is || errors.Join(joined.Unwrap()...).Error() != err.Error() {
		return []string{err.Error()}
	}
	var all []string
	for _, e := range joined.Unwrap() {
		all = append(all, messages(e)...)
	}
	return all
}

// userInfo matches what may be a password in a URL.
var userInfo = regexp.MustCompile(`\b([a-z][a-z0-9+.-]*)://[^\s/?#"']*@`)

// redacted takes user names and passwords out of URLs. Errors do not quote URLs that were refused; this is for one that
// does, such as a URL where a name was meant.
func redacted(s string) string { return userInfo.ReplaceAllString(s, "$1://…@") }
