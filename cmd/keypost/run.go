package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1   // it failed, or a check did
	exitUsage       = 2   // unknown command or flag, missing or contradictory arguments
	exitDiffer      = 3   // --diff found something that differs
	exitNotYet      = 75  // a gate is closed; EX_TEMPFAIL of sysexits.h: try again later
	exitInterrupted = 130 // Ctrl-C
	exitTerminated  = 143 // SIGTERM
)

// streams are the process's own: results go to out, all else to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is one run of the program: its streams and its global flags.
type app struct {
	streams
	store     string
	storeFlag *pflag.Flag // nil without a command line
	output    string
	by        string
	started   bool // a command's own work began, so what fails now is no error of usage
	writes    writes
}

func run(ctx context.Context, args []string, s streams) int {
	s.in = interruptible{ctx, s.in}
	a := &app{streams: s}
	root := a.root()
	root.SetArgs(dashedKids(root, args))
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	cmd, err := misuse(root, args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if err != nil && !a.started {
		err = usage(cmd, err)
	}
	if i, is := errors.AsType[interruption](context.Cause(ctx)); is && err != nil {
		err = a.stopped(cmd, i)
	}
	return a.report(cmd, err)
}

// do makes a cobra RunE of a command's own work.
func (a *app) do(work func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return work(cmd.Context(), args)
	}
}

// change is who changes a key set, when and why.
func (a *app) change(why string, force bool) keystore.Change {
	return keystore.Change{At: time.Now(), By: a.by, Why: why, Force: force}
}

// notice tells people something on stderr, in one line that may be indented. A [command] among args is printed so that
// it can be pasted.
func (a *app) notice(format string, args ...any) {
	line := a.hint(format, args...)
	indent := len(line) - len(strings.TrimLeft(line, " "))
	_, _ = fmt.Fprintln(a.err, line[:indent]+oneLine(line))
}

func (a *app) warn(format string, args ...any) { a.notice("warning: "+format, args...) }

// usageError is a mistake in what was typed.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// report prints an error as one sentence, with a hint where there is one, and returns the exit code.
func (a *app) report(cmd *cobra.Command, err error) int {
	if err == nil {
		return exitDone
	}
	i, interrupted := errors.AsType[interruption](err)
	for _, message := range messages(err) {
		a.notice("keypost: %s", redacted(strings.TrimSuffix(message, ": "+interruption{}.Error())))
	}
	typed := misused(err)
	hint := nextStep(err)
	if h, ok := errors.AsType[*hintedError](explained(err)); ok {
		hint = a.hint(h.format, h.args...)
	}
	if hint == "" && typed {
		hint = cmd.CommandPath() + " --help"
	}
	if hint != "" {
		a.notice("hint: %s", redacted(hint))
	}
	if interrupted {
		return i.code()
	}
	if _, ok := errors.AsType[*keystore.NotYetError](err); ok {
		return exitNotYet
	}
	if typed {
		return exitUsage
	}
	if _, ok := errors.AsType[*differsError](err); ok {
		return exitDiffer
	}
	return exitFailed
}

// messages returns an error's sentences: joined errors have one each. Line breaks in any other error are not ours.
func messages(err error) []string {
	if inner := errors.Unwrap(err); inner != nil && inner.Error() == err.Error() {
		return messages(inner)
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

// nextStep says what to do about an error that does not say so itself.
func nextStep(err error) string {
	switch e, ok := errors.AsType[*keystore.NotYetError](err); {
	case ok:
		return gateHint(e)
	case errors.Is(err, keystore.ErrReadOnly):
		return "change it where the key sets come from, or as somebody who may"
	case errors.Is(err, keystore.ErrConflict):
		return "look at it with keypost issuer show, and try again"
	}
	return ""
}

// gateHint says what opens a gate, where that needs no name of a key set (hintAtGate).
func gateHint(e *keystore.NotYetError) string {
	switch e.Gate {
	case keystore.GateObserved, keystore.GateFresh:
		return "this version cannot observe yet; where you know that every relying party has the key, use --force --why REASON"
	case keystore.GateCaches, keystore.GateTokens:
		return "try again at " + stamp(e.Opens)
	}
	return ""
}

// maxLine bounds what is printed of one message, in characters: longer than any of ours, short enough that a server's
// page of HTML does not push everything else off the screen.
const maxLine = 4000

// oneLine makes text of files, servers and people safe for a terminal.
func oneLine(s string) string { return text.OneLine(s, maxLine) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// defaultBy is what the machine says of its user: a note for people, proof of nothing.
func defaultBy() string {
	name, host := os.Getenv("USER"), "localhost"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

// version comes from what the Go toolchain recorded.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && v == "(devel)" {
			v += " " + s.Value
		}
	}
	return v + " " + info.GoVersion
}
