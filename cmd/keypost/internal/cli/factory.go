package cli

import (
	"context"
	"io"
	"os"
	"os/user"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/internal/build"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/open"
)

// Factory is what every command gets: the streams, the global flags, and the store that they name. One run of the
// program has one.
type Factory struct {
	In       io.Reader
	Out, Err io.Writer // results go to Out, all else to Err
	Connect  string    // where clouds' commands look for issuers, HOST:PORT; empty for where DNS leads

	Store  string // URL of the key store; empty if none was given
	Output string // form of results: table, json or yaml
	whole  bool   // key IDs are printed whole on a terminal, too: -o wide
	By     string // who is recorded as the author of a change

	Observations string // URL of the place for observations; empty if none was given

	ran     *cobra.Command // the command of this run; the root before it is known, nil without a command line
	started bool           // a command's own work began, so what fails now is not an error of usage

	mu       sync.Mutex
	live     *terminal.Line
	commands []string // that this run has printed, so that a screen keeps them whole
}

// Root gives a root command the commands of the program, the global flags, and words of our own for what is wrong.
func (f *Factory) Root(root *cobra.Command, commands ...*cobra.Command) {
	root.Version, root.SilenceErrors, root.SilenceUsage = Version(), true, true
	root.SetVersionTemplate(root.Name() + " {{.Version}}\n")
	root.Annotations = noResult
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return f.checkGlobals(cmd) }
	f.flags(root.PersistentFlags())
	root.AddCommand(commands...)
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"}) // which cobra has just made
	completion.RunE = Group(completion.Use, completion.Short).RunE
	complete(root)
	WithoutResult(completion.Commands()...)
	f.ran = root
}

// flags defines the global flags.
func (f *Factory) flags(fs *pflag.FlagSet) {
	fs.StringVar(&f.Store, "store", strings.TrimSpace(os.Getenv("KEYPOST_STORE")), "where key sets are kept: "+open.Forms+" (default $KEYPOST_STORE)")
	fs.StringVar(&f.Observations, "observations", strings.TrimSpace(os.Getenv("KEYPOST_OBSERVATIONS")),
		"where looks and uploads are recorded, apart from the key sets: "+open.Forms+" (default $KEYPOST_OBSERVATIONS)")
	fs.StringVarP(&f.Output, "output", "o", "table", "form of results: table, wide (key IDs whole), json or yaml")
	Choices(fs, "output", "table", "wide", "json", "yaml")
	fs.StringVar(&f.By, "by", defaultBy(), "who is recorded as the author of a change")
	fs.Lookup("by").DefValue = "USER@HOST"
	fs.Lookup("store").DefValue, fs.Lookup("observations").DefValue = "", ""
}

// Run parses args, runs the command that they name, prints its error, and returns the exit code.
func (f *Factory) Run(ctx context.Context, root *cobra.Command, args []string) int {
	f.In = endingWith{ctx, f.In}
	defer func() { f.Live().Clear() }()
	if completing(args) {
		f.Err = io.Discard
		os.Stderr, _ = os.OpenFile(os.DevNull, os.O_WRONLY, 0) // which cobra writes to by itself
	}
	root.SetArgs(DashedKID(root, args))
	root.SetIn(f.In)
	root.SetOut(f.Out)
	root.SetErr(f.Err)
	if width := f.screen(f.Out).Width; width > 0 {
		fit(root, width)
	}
	if cmd, _, err := root.Find(args); err == nil {
		f.ran = cmd
	}
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		f.Notice("keypost: interrupted; what is done so far stays, and the same command goes on from there")
		if strings.HasPrefix(context.Cause(ctx).Error(), syscall.SIGTERM.String()) {
			return ExitTerminated
		}
		return ExitInterrupted
	case !f.started:
		err = usage(cmd, err)
	}
	return f.report(cmd, err)
}

// Command returns a command that does its work in run.
func (f *Factory) Command(use, short string, args cobra.PositionalArgs, run func(ctx context.Context, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
		f.Begin()
		return run(cmd.Context(), args)
	}}
}

// Begin marks the start of a command's own work: from now on an error has exit code 2 only if [Usage] or [Usagef] made it,
// or a package below reports a malformed argument.
func (f *Factory) Begin() { f.started = true }

// Change returns who changes a key set, when (now) and why, for a store that was opened to write. Each attempt of a write needs one of its
// own: a time before that of a change in between is refused.
func (f *Factory) Change(why string, force bool) keystore.Change {
	return keystore.Change{At: time.Now(), By: f.By, Why: why, Force: force}
}

// Notice prints a line for people on Err, which may be indented. A [Command] among args is printed so that it can be
// pasted.
func (f *Factory) Notice(format string, args ...any) {
	line := f.format(format, args...)
	indent := len(line) - len(strings.TrimLeft(line, " "))
	_, _ = io.WriteString(f.Live(), f.screen(f.Err).Notice(line[:indent]+OneLine(line), f.printed()))
}

// Warn is Notice with "warning: " before it.
func (f *Factory) Warn(format string, args ...any) { f.Notice("warning: "+format, args...) }

// maxLine bounds what is printed of one message, in characters: longer than any of ours, short enough that a server's
// page of HTML does not push everything else off the screen.
const maxLine = 4000

// OneLine makes text of files, servers and people safe for a terminal.
func OneLine(s string) string { return text.OneLine(s, maxLine) }

// Stamp returns t as RFC 3339 in UTC, to the second.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// defaultBy returns USER@HOST: a note for people, proof of nothing.
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

// Version returns what the binary was built from, and by which Go.
func Version() string { return build.Version() + " " + runtime.Version() }
