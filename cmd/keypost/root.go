package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/keystore/open"
)

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
it opens · 130 interrupted with Ctrl-C (143: by SIGTERM); a second one ends the
program at once, whatever it waits for`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // misuse says what is wrong with a command that is none
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Annotations:   noResult,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return a.checkGlobals(cmd)
		},
	}
	root.SetVersionTemplate("keypost {{.Version}}\n")
	fs := root.PersistentFlags()
	fs.StringVar(&a.store, "store", strings.TrimSpace(os.Getenv("KEYPOST_STORE")), "where key sets are kept: "+open.Forms+" (default $KEYPOST_STORE)")
	fs.StringVarP(&a.output, "output", "o", "table", "form of results: table, json or yaml")
	fs.StringVar(&a.by, "by", defaultBy(), "who is recorded as the author of a change")
	fs.Lookup("by").DefValue = "USER@HOST"
	fs.Lookup("store").DefValue = ""
	a.storeFlag = fs.Lookup("store")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(a.issuer(), a.key(), a.verify(), a.export(), a.storeGroup(), a.mirror(), a.aws(), a.versionCommand())
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.RunE = group(c.Use, c.Short).RunE
			withoutResult(c.Commands()...)
		}
		if c.Name() == "mirror" {
			withoutResult(c)
		}
	}
	return root
}

// noResult marks commands that print nothing that -o could give another form.
var noResult = map[string]string{"result": "none"} //nolint:gochecknoglobals // nobody changes it

func withoutResult(commands ...*cobra.Command) {
	for _, c := range commands {
		c.Annotations = noResult
	}
}

// checkGlobals refuses what is wrong with flags that several commands have.
func (a *app) checkGlobals(cmd *cobra.Command) error {
	switch a.output {
	case "table":
	case "json", "yaml":
		if cmd.Annotations["result"] == noResult["result"] {
			return fmt.Errorf("-o %s: %s prints no result that could have that form", a.output, cmd.CommandPath())
		}
	default:
		return fmt.Errorf("-o %s: it must be table, json or yaml", a.output)
	}
	for _, name := range []string{"why", "by"} {
		if f := cmd.Flag(name); f != nil && strings.ContainsFunc(f.Value.String(), control) {
			return fmt.Errorf("--%s holds a control character", name)
		}
	}
	force, why := cmd.Flags().Lookup("force"), cmd.Flags().Lookup("why")
	switch {
	case why != nil && why.Changed && strings.TrimSpace(why.Value.String()) == "":
		return errors.New("--why is empty; give a reason, which is recorded")
	case force != nil && why != nil && force.Value.String() == "true" && !why.Changed:
		return errors.New("--force needs --why REASON, which is recorded")
	}
	return nil
}

// control reports whether r is a control character that no text for people has.
func control(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, as --version does",
		Args:  exactly(0),
		RunE: a.do(func(context.Context, []string) error {
			return a.print(map[string]string{"version": version()}, func(w *tabwriter.Writer) { row(w, "keypost "+version()) })
		}),
	}
}

// helpCommand is cobra's, but that a topic which does not exist is an error.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "help [COMMAND…]",
		Short:       "Help about any command",
		Annotations: noResult,
		RunE: func(help *cobra.Command, args []string) error {
			cmd, rest, err := help.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return withHint(fmt.Errorf("there is no help about %q", strings.Join(args, " ")), "keypost --help")
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// group is a command that only holds others; cobra by itself takes one without an argument for a request for help.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, Annotations: noResult, RunE: func(cmd *cobra.Command, _ []string) error {
		var verbs []string
		for _, c := range cmd.Commands() {
			verbs = append(verbs, c.Name())
		}
		return withHint(fmt.Errorf("%s: say what to do: %s", cmd.CommandPath(), strings.Join(verbs, ", ")), "%s --help", cmd.CommandPath())
	}}
	g.AddCommand(commands...)
	return g
}
