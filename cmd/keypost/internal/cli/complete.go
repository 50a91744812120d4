package cli

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Completing reports whether a shell asks how a line may go on. Nothing but the answer may be seen then: an error is not an answer,
// and nobody is asked for anything.
func Completing(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// Quiet keeps programs that are started for credentials, and libraries, from the terminal of somebody who pressed Tab.
func Quiet() {
	if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
		os.Stdin, os.Stderr = null, null
	}
}

// choices is the annotation of a flag with its values.
const choices = "keypost.dev/choices"

// Choices says which values a flag has, or what its usual ones are, for shells to offer.
func Choices[S ~string](fs *pflag.FlagSet, flag string, values ...S) {
	for _, v := range values {
		_ = fs.SetAnnotation(flag, choices, append(fs.Lookup(flag).Annotations[choices], string(v))) // it fails only for a flag that is not defined
	}
}

// Complete has shells offer the names of key sets, and the values of flags that have [Choices], for a command and those below it.
func (f *Factory) Complete(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			switch kind := Argument(cmd.Use, len(args)); {
			case kind == "ISSUER", kind == "NAME" && cmd.Name() != "add":
				return f.names(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
			case kind == "DIR":
				return nil, cobra.ShellCompDirectiveFilterDirs
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
	each := func(flag *pflag.Flag) {
		if values := flag.Annotations[choices]; values != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	cmd.Flags().VisitAll(each)
	cmd.PersistentFlags().VisitAll(each)
	for _, c := range cmd.Commands() {
		f.Complete(c)
	}
}

// names returns the names of the store's key sets; none where it does not answer in two seconds. Shells evaluate what they are given, so
// that nothing else is offered: bash would run a file that is called $(…).
func (f *Factory) names(ctx context.Context) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if st, err := f.OpenStore(ctx); err == nil {
		listed, _ := st.List(ctx) // without an answer nothing is offered
		for _, n := range slices.Sorted(maps.Keys(listed)) {
			if n.Check() == nil {
				names = append(names, string(n))
			}
		}
	}
	return names
}

// Argument returns what the nth argument of a command is, such as ISSUER: the words of its form that no flag goes before. The
// last one with "…" goes on for ever. It is empty for an argument that the command does not take.
func Argument(use string, n int) string {
	words, kind := strings.Fields(use)[1:], ""
	for i, w := range words {
		if strings.Contains(w, "--") && !strings.Contains(w, "|--") || i > 0 && strings.Contains(words[i-1], "--") && !strings.Contains(words[i-1], "|--") {
			continue
		}
		word, _, several := strings.Cut(strings.Trim(w, "[]"), "…")
		if kind = word; n == 0 || several {
			return kind
		}
		n--
	}
	return ""
}
