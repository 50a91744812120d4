package cli

import (
	"os"
	"strings"

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

// plainDescriptions takes the back-ticks out of what flags are for: they tell the help what a value is called, and cobra hands them
// to shells as they stand.
func plainDescriptions(cmd *cobra.Command) {
	plain := func(flag *pflag.Flag) { flag.Usage = strings.ReplaceAll(flag.Usage, "`", "") }
	cmd.Flags().VisitAll(plain)
	cmd.PersistentFlags().VisitAll(plain)
	for _, c := range cmd.Commands() {
		plainDescriptions(c)
	}
}

// Completion is what completes the value of a flag: an annotation beside its definition.
type Completion string

// The completions. A flag without one completes to nothing, or to the files that its usage names.
const (
	OneOf      Completion = "one of" // Choices
	IssuerURLs Completion = "issuer URLs"
	KIDs       Completion = "kids" // of the key set that the first argument names
)

// completes is the annotation of a flag with its completion, and with its choices.
const completes = "keypost.dev/completes"

// Of marks the flags that are completed so.
func (c Completion) Of(fs *pflag.FlagSet, flags ...string) {
	for _, flag := range flags {
		_ = fs.SetAnnotation(flag, completes, []string{string(c)}) // it fails only for a flag that is not defined, which a test would find
	}
}

// Choices says which values a flag has, or what its usual ones are, for shells to offer.
func Choices(fs *pflag.FlagSet, flag string, values ...string) {
	_ = fs.SetAnnotation(flag, completes, append([]string{string(OneOf)}, values...)) // likewise
}

// CompletionOf returns what completes a flag; empty for one without.
func CompletionOf(flag *pflag.Flag) Completion {
	if c := flag.Annotations[completes]; len(c) > 0 {
		return Completion(c[0])
	}
	return ""
}

// ChoicesOf returns the values of a flag whose completion is [OneOf].
func ChoicesOf(flag *pflag.Flag) []string { return flag.Annotations[completes][1:] }

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
