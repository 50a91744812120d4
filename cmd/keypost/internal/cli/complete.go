package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// completing reports whether a shell asks how a line may go on. Nothing but the answer may be seen then: an error is not an answer.
func completing(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// choices is the annotation of a flag with its values.
const choices = "keypost.dev/choices"

// Choices says which values a flag has, or what its usual ones are, for shells to offer.
func Choices[S ~string](fs *pflag.FlagSet, flag string, values ...S) {
	for _, v := range values {
		_ = fs.SetAnnotation(flag, choices, append(fs.Lookup(flag).Annotations[choices], string(v))) // it fails only for a flag that is not defined
	}
}

// complete has shells offer the values of flags that have [Choices], and directories where an argument is one, for a command and those
// below it. No store is asked: opening one may start the credential program of a kubeconfig.
func complete(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if Argument(cmd.Use, len(args)) == "DIR" {
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
		complete(c)
	}
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
