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
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/keystore"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1  // it failed, or a check did
	exitUsage  = 2  // unknown command or flag, missing or contradictory arguments
	exitDiffer = 3  // --diff found something that differs
	exitNotYet = 75 // a gate is closed; EX_TEMPFAIL of sysexits.h: try again later
)

// streams are the process's own: results go to out, all else to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// app is one run of the program: its streams and its global flags.
type app struct {
	streams
	store   string
	output  string
	by      string
	started bool // a command's own work began, so what fails now is no error of usage
}

func run(ctx context.Context, args []string, s streams) int {
	a := &app{streams: s}
	root := a.root()
	root.SetArgs(dashedKids(root, args))
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.started {
		err = usage(cmd, err)
	}
	return a.report(err)
}

// dashedKid is what a key ID looks like that begins with a hyphen, as one in 64 computed ones does: too long for the
// short flags that there are, and in the second form for every long one.
var dashedKid = regexp.MustCompile(`^-([A-Za-z0-9_][A-Za-z0-9_-]{6,}|[A-Za-z0-9_-]{42})$`)

// dashedKids moves such a KID argument, which is always the last, behind a "--", so that it is not read as flags and
// a rotation does not fail for one key in 64.
func dashedKids(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil || slices.Contains(args, "--") {
		return args
	}
	var rest, kids []string
	for i, arg := range args {
		if dashedKid.MatchString(arg) && (i == 0 || !takesValue(cmd, args[i-1])) {
			kids = append(kids, arg)
			continue
		}
		rest = append(rest, arg)
	}
	if len(kids) == 0 {
		return args
	}
	return append(append(rest, "--"), kids...)
}

// takesValue tells whether arg is a flag whose value is the next argument.
func takesValue(cmd *cobra.Command, arg string) bool {
	name, isLong := strings.CutPrefix(arg, "--")
	if !isLong {
		return arg == "-o"
	}
	f := cmd.Flag(name)
	return f != nil && f.NoOptDefVal == ""
}

// usage marks what cobra found wrong with the arguments.
func usage(cmd *cobra.Command, err error) error {
	if _, hinted := errors.AsType[*hintedError](err); hinted {
		return &usageError{err}
	}
	return withHint(&usageError{err}, "%s --help", cmd.CommandPath())
}

// exactly and atLeast are cobra's rules for the number of arguments, in a sentence that shows them.
func exactly(n int) cobra.PositionalArgs {
	return arguments(func(given int) bool { return given == n })
}

func atLeast(n int) cobra.PositionalArgs {
	return arguments(func(given int) bool { return given >= n })
}

func arguments(right func(given int) bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if right(len(args)) {
			return nil
		}
		return fmt.Errorf("%d arguments were given; the form is: %s", len(args), cmd.UseLine())
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "keypost",
		Short: "Write, rotate and check the key sets of a self-hosted OIDC issuer",
		Long: `Write, rotate and check the key sets of a self-hosted OIDC issuer.

ISSUER is the name of a key set or one of its issuer URLs; KID is a key ID or a
unique beginning of it, of at least 8 characters. Results go to stdout, all else
to stderr.

Exit codes: 0 done · 1 failed, or a check failed · 2 wrong usage · 3 --diff found
a difference · 75 not yet: a gate is closed, and the message says when or by what
it opens`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return a.checkGlobals()
		},
	}
	root.SetVersionTemplate("keypost {{.Version}}\n")
	fs := root.PersistentFlags()
	fs.StringVar(&a.store, "store", os.Getenv("KEYPOST_STORE"), "where key sets are kept: "+storeForms+" (default $KEYPOST_STORE)")
	fs.StringVarP(&a.output, "output", "o", "table", "form of results: table, json or yaml")
	fs.StringVar(&a.by, "by", defaultBy(), "who is recorded as the author of a change")
	fs.Lookup("by").DefValue = "USER@HOST"
	fs.Lookup("store").DefValue = ""
	root.AddCommand(a.issuer(), a.key(), a.verify(), a.export(), a.storeGroup(), a.mirror(), a.aws())
	return root
}

func (a *app) checkGlobals() error {
	switch a.output {
	case "table", "json", "yaml":
		return nil
	}
	return fmt.Errorf("-o %s: it must be table, json or yaml", a.output)
}

// group is a command that only holds others; cobra by itself takes a wrong one below it for a request for help.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return withHint(fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath()), "%s --help", cmd.CommandPath())
		}
		return withHint(fmt.Errorf("%s: say what to do", cmd.CommandPath()), "%s --help", cmd.CommandPath())
	}}
	g.AddCommand(commands...)
	return g
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

// notice tells people something on stderr.
func (a *app) notice(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, format+"\n", args...)
}

func (a *app) warn(format string, args ...any) { a.notice("warning: "+format, args...) }

// usageError is a mistake in what was typed.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// hintedError carries what to do next.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

func withHint(err error, format string, args ...any) error {
	return &hintedError{err, fmt.Sprintf(format, args...)}
}

// report prints an error as one sentence, with a hint where there is one, and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitDone
	}
	for line := range strings.Lines(err.Error()) { // joined errors have one each
		a.notice("keypost: %s", oneLine(line))
	}
	hint := nextStep(err)
	if h, ok := errors.AsType[*hintedError](err); ok {
		hint = h.hint
	}
	if hint != "" {
		a.notice("hint: %s", hint)
	}
	if _, ok := errors.AsType[*keystore.NotYetError](err); ok {
		return exitNotYet
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*differsError](err); ok {
		return exitDiffer
	}
	return exitFailed
}

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

// gateHint says what opens a gate.
func gateHint(e *keystore.NotYetError) string {
	switch e.Gate {
	case keystore.GateObserved, keystore.GateFresh:
		return "this version cannot observe yet; where you know that every relying party has the key, use --force --why REASON"
	case keystore.GateEdge:
		return "keypost issuer set ISSUER --edge-hold DURATION"
	case keystore.GateUndeclared:
		return "keypost issuer set ISSUER --token-lifetime DURATION"
	case keystore.GateActiveKeys:
		return "keypost key retire ISSUER KID --why STATEMENT"
	case keystore.GateCaches, keystore.GateTokens:
		return "try again at " + stamp(e.Opens)
	}
	return ""
}

// oneLine keeps control characters of files and servers out of the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.TrimSpace(s))
}

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
