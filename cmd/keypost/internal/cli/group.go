package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
)

// usage marks what cobra found wrong with the arguments.
func usage(cmd *cobra.Command, err error) error {
	if _, hinted := errors.AsType[*HintedError](err); hinted {
		return &usageError{err}
	}
	var want, got int
	form := strings.NewReplacer("requires at least", "accepts", "only ", "").Replace(err.Error())
	if n, _ := fmt.Sscanf(form, "accepts %d arg(s), received %d", &want, &got); n == 2 && got < want {
		err = fmt.Errorf("%s: %s is missing: %s", cmd.CommandPath(), Argument(cmd.Use, got), cmd.Use)
	} else if n == 2 {
		err = fmt.Errorf("%s: there is nothing that %q could be: %s", cmd.CommandPath(), cmd.Flags().Arg(want), cmd.Use)
	}
	return WithHint(&usageError{err}, "%s --help", cmd.CommandPath())
}

// CheckChoice returns an error of usage unless there are either arguments, which name issuers, or --all.
func CheckChoice(issuers []string, all bool) error {
	if (len(issuers) > 0) == all {
		return Usagef("give one or more issuers, or --all for every key set of the store")
	}
	return nil
}

var noResult = map[string]string{"result": "none"} //nolint:gochecknoglobals // nobody changes it

// WithoutResult marks commands that print nothing that -o could give another form.
func WithoutResult(commands ...*cobra.Command) {
	for _, c := range commands {
		c.Annotations = noResult
	}
}

// checkGlobals refuses what is wrong with flags that several commands have.
func (f *Factory) checkGlobals(cmd *cobra.Command) error {
	switch f.Output {
	case "table":
	case "wide":
		f.Output, f.whole = "table", true
	case "json", "yaml":
		if cmd.Annotations["result"] == noResult["result"] {
			return fmt.Errorf("-o %s: %s prints no result that could have that form", f.Output, cmd.CommandPath())
		}
	default:
		return fmt.Errorf("-o %s: it must be table, wide, json or yaml", f.Output)
	}
	for _, name := range []string{"why", "by"} {
		if flag := cmd.Flag(name); flag != nil && strings.ContainsFunc(flag.Value.String(), control) {
			return fmt.Errorf("--%s holds a control character", name)
		}
	}
	force, why := cmd.Flags().Lookup("force"), cmd.Flags().Lookup("why")
	switch {
	case why != nil && (why.Value.String() == "REASON" || why.Value.String() == "STATEMENT"): // pasted from a hint as it is
		return fmt.Errorf("--why %s stands for words of yours, which are recorded", why.Value)
	case why != nil && why.Changed && strings.TrimSpace(why.Value.String()) == "":
		return errors.New("--why is empty; give a reason, which is recorded")
	case force != nil && why != nil && force.Value.String() == "true" && !why.Changed:
		return errors.New("--force needs --why REASON, which is recorded")
	}
	return checkRequired(cmd)
}

// checkRequired returns an error unless the flags are given that a command's form names outside of brackets. The global ones may be
// in the environment.
func checkRequired(cmd *cobra.Command) error {
	var missing []string
	for word := range strings.FieldsSeq(cmd.Use) {
		name, is := strings.CutPrefix(word, "--")
		if is && !cmd.Flag(name).Changed && cmd.Root().PersistentFlags().Lookup(name) == nil {
			missing = append(missing, strconv.Quote(name))
		}
	}
	if len(missing) > 0 { // in cobra's words
		return fmt.Errorf("required flag(s) %s not set", strings.Join(missing, ", "))
	}
	return nil
}

// control reports whether r is a control character that no text for people has.
func control(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// helpCommand returns the command help. Unlike cobra's own, it fails if there is no such topic, and prints nothing of that.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "help [COMMAND…]",
		Short:       "Help about any command",
		Annotations: noResult,
		RunE: func(help *cobra.Command, args []string) error {
			cmd, rest, err := help.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return WithHint(fmt.Errorf("there is no help about %q", strings.Join(args, " ")), "keypost --help")
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// fit has the help of root, and of all commands below it, fit a terminal.
func fit(root *cobra.Command, width int) {
	usage := strings.ReplaceAll(root.UsageTemplate(), "FlagUsages", fmt.Sprintf("FlagUsagesWrapped %d", width))
	var each func(cmd *cobra.Command)
	each = func(cmd *cobra.Command) {
		cmd.SetUsageTemplate(strings.ReplaceAll(usage, "{{.UseLine}}", terminal.Wrap(cmd.UseLine(), width, 2, 6)))
		cmd.Long = terminal.Paragraphs(cmp.Or(cmd.Long, cmd.Short), width)
		cmd.Example = terminal.Shells(cmd.Example, width)
		for _, c := range cmd.Commands() {
			each(c)
			column := len("  ") + cmd.Commands()[0].NamePadding() + len(" ")
			c.Short = terminal.Wrap(c.Short, width, column, column)
		}
	}
	each(root)
}

// Group returns a command that only holds others; cobra by itself takes one without an argument for a request for help.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, Annotations: noResult, RunE: func(cmd *cobra.Command, _ []string) error {
		var verbs []string
		for _, c := range cmd.Commands() {
			verbs = append(verbs, c.Name())
		}
		return WithHint(fmt.Errorf("%s: say what to do: %s", cmd.CommandPath(), strings.Join(verbs, ", ")), "%s --help", cmd.CommandPath())
	}}
	g.AddCommand(commands...)
	return g
}
