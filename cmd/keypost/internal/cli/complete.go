package cli

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/keystore"
)

// Completing reports whether a shell asks how a line may go on. Nothing but the answer may be seen then: an error is no answer,
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

// completionTime bounds how long a shell waits for an answer, whatever the store, its network or its file system does.
const completionTime = 2 * time.Second

const (
	noFiles = cobra.ShellCompDirectiveNoFileComp
	unended = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace // a value that is not whole yet
)

// choices is the annotation of a flag whose values are known.
const choices = "keypost.dev/choices"

// Choices says which values a flag has, or what its usual ones are, for shells to offer.
func Choices(fs *pflag.FlagSet, flag string, values ...string) {
	_ = fs.SetAnnotation(flag, choices, values) // it fails only for a flag that is not defined, which a test would find
}

// Completion is what completes the value of a flag: an annotation beside its definition.
type Completion string

// The completions that ask somebody. A flag without one, and without choices, completes to nothing, or to the files that its usage names.
const (
	StoreURLs  Completion = "store URLs"
	IssuerURLs Completion = "issuer URLs"
	KIDs       Completion = "kids"     // of the key set that the first argument names, as are vantages and origins
	Vantages   Completion = "vantages" // of its policy
	Origins    Completion = "origins"
	Contexts   Completion = "contexts" // of the kubeconfig
)

// completes is the annotation of a flag with its completion.
const completes = "keypost.dev/completes"

// Of marks the flags that are completed so.
func (c Completion) Of(fs *pflag.FlagSet, flags ...string) {
	for _, flag := range flags {
		_ = fs.SetAnnotation(flag, completes, []string{string(c)}) // it fails only for a flag that is not defined, which a test would find
	}
}

// by returns what completes a value so.
func (f *Factory) by(c Completion) cobra.CompletionFunc {
	switch c {
	case StoreURLs:
		return f.completion(storeURLs, unended)
	case IssuerURLs:
		return f.completion(issuerURLs, noFiles)
	case KIDs:
		return f.completion(func(ctx context.Context, l line) []string { return l.kids(ctx, "") }, noFiles)
	case Vantages:
		return f.completion(ofPolicy(func(p keystore.Policy) []string { return p.ObserveFrom }), noFiles)
	case Origins:
		return f.completion(ofPolicy(func(p keystore.Policy) []string { return p.Origins }), noFiles)
	case Contexts:
		return f.completion(contexts, noFiles)
	}
	return cobra.NoFileCompletions
}

// complete gives each argument and each flag of a command, and of those below it, what completes its value.
func (f *Factory) complete(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = f.completeArg
	}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { f.completeFlag(cmd, flag) })
	cmd.PersistentFlags().VisitAll(func(flag *pflag.Flag) { f.completeFlag(cmd, flag) })
	for _, c := range cmd.Commands() {
		f.complete(c)
	}
}

func (f *Factory) completeFlag(cmd *cobra.Command, flag *pflag.Flag) {
	complete := f.flagValue(flag)
	if complete != nil {
		_ = cmd.RegisterFlagCompletionFunc(flag.Name, complete) // it fails for a flag that has one
	}
}

// flagValue returns what completes the value of a flag; nil for a flag without a value. Files and directories are known by what the
// flag calls its value (`FILE`, `DIR`), others by Choices or by a Completion.
func (f *Factory) flagValue(flag *pflag.Flag) cobra.CompletionFunc {
	value, _ := pflag.UnquoteUsage(flag)
	switch {
	case flag.NoOptDefVal != "":
		return nil
	case flag.Annotations[choices] != nil:
		return choose(flag)
	case value == "FILE":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	case value == "DIR":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	case flag.Annotations[completes] != nil:
		return f.by(Completion(flag.Annotations[completes][0]))
	}
	return cobra.NoFileCompletions
}

// choose completes one of a flag's choices, or, where several may stand in one value, the last of them.
func choose(flag *pflag.Flag) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		before := ""
		if i := strings.LastIndex(word, ","); i >= 0 && flag.Value.Type() == "stringSlice" {
			before = word[:i+1]
		}
		var list []string
		for _, c := range flag.Annotations[choices] {
			if !slices.Contains(strings.Split(before, ","), c) {
				list = append(list, before+c)
			}
		}
		return beginning(list, word), noFiles
	}
}

// completeArg completes an argument by what the command's form says that it is.
func (f *Factory) completeArg(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	kind := argument(cmd.Use, len(args))
	switch {
	case kind == "ISSUER", kind == "NAME" && cmd.Name() != "add":
		return f.completion(issuers, noFiles)(cmd, args, word)
	case kind == "KID":
		return f.completion(func(ctx context.Context, l line) []string { return l.kids(ctx, cmd.Name()) }, noFiles)(cmd, args, word)
	case kind == "SRC", kind == "DST":
		return f.completion(storeURLs, unended)(cmd, args, word)
	case kind == "DIR":
		return nil, cobra.ShellCompDirectiveFilterDirs
	case kind == "COMMAND":
		return commands(cmd.Root(), args, word), noFiles
	case kind == "KEYS" && word == "": // these are flags
		return []string{"--public-key-file", "--jwks", "--kubeconfig"}, noFiles
	}
	return nil, noFiles
}

// argument returns what the nth argument of a command is, such as ISSUER: the words of its form that no flag goes before. The
// last one with "…" goes on for ever. It is empty for an argument that the command does not take.
func argument(use string, n int) string {
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

// commands completes the words of a command.
func commands(root *cobra.Command, words []string, word string) []string {
	cmd, rest, err := root.Find(words)
	if err != nil || len(rest) > 0 {
		return nil
	}
	var list []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			list = append(list, c.Name()+"\t"+c.Short)
		}
	}
	return beginning(list, word)
}
