// Package completion answers a shell that asks how a line of keypost may go on: by what the store or the command itself knows. It
// promises to offer only words that no shell takes for more, and to be silent otherwise.
package completion

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

// patience bounds how long a shell waits for an answer, whatever the store, its network or its file system does.
const patience = 2 * time.Second

const noFiles = cobra.ShellCompDirectiveNoFileComp

// line is what somebody has typed of a command: its flags are parsed, and word is what is to be completed.
type line struct {
	*cli.Factory
	cmd  *cobra.Command
	args []string
	word string
}

// values returns what may stand at the end of a line.
type values func(ctx context.Context, l line) []string

// Complete gives each argument and each flag of a command, and of those below it, what completes its value.
func Complete(f *cli.Factory, cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			return argument(f, cmd, args)(cmd, args, word)
		}
	}
	each := func(flag *pflag.Flag) {
		if flag.NoOptDefVal == "" {
			_ = cmd.RegisterFlagCompletionFunc(flag.Name, value(f, flag)) // it fails for a flag that has one
		}
	}
	cmd.Flags().VisitAll(each)
	cmd.PersistentFlags().VisitAll(each)
	for _, c := range cmd.Commands() {
		Complete(f, c)
	}
}

// value returns what completes the value of a flag. Files and directories are known by what the flag calls its value (`FILE`, `DIR`),
// others by [cli.Choices] or by a [cli.Completion].
func value(f *cli.Factory, flag *pflag.Flag) cobra.CompletionFunc {
	switch value, _ := pflag.UnquoteUsage(flag); value {
	case "FILE":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	case "DIR":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	}
	switch cli.CompletionOf(flag) {
	case cli.OneOf:
		return by(f, choices(flag), noFiles)
	case cli.IssuerURLs:
		return by(f, issuerURLs, noFiles)
	case cli.KIDs:
		return by(f, kids(nil), noFiles)
	}
	return cobra.NoFileCompletions
}

// argument returns what completes an argument, by what the command's form says that it is.
func argument(f *cli.Factory, cmd *cobra.Command, args []string) cobra.CompletionFunc {
	switch kind := cli.Argument(cmd.Use, len(args)); {
	case kind == "ISSUER", kind == "NAME" && cmd.Name() != "add":
		return by(f, issuers, noFiles)
	case kind == "KID":
		return by(f, kids(map[string][]keystore.State{
			"promote": {keystore.Next, keystore.Retired}, "retire": {keystore.Active}, "remove": {keystore.Next, keystore.Retired},
		}[cmd.Name()]), noFiles)
	case kind == "DIR":
		return cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	}
	return cobra.NoFileCompletions
}

// by returns a completion by values: those that begin like the word are offered. What is not there in time is not offered.
func by(f *cli.Factory, all values, directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), patience)
		defer cancel()
		found := make(chan []string, 1)
		go func() { found <- all(ctx, line{f, cmd, args, word}) }()
		select {
		case list := <-found:
			return beginning(list, word), directive
		case <-ctx.Done(): // also where reading cannot be interrupted, such as from a file server that is gone
			return nil, directive
		}
	}
}

// plainWord is what every shell takes for one word that is itself, and no command of ours takes for a flag.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_@%+=:,./?-]*$`)

// beginning returns those of the values that begin with word, and that are plain words: others are left out, in all shells alike.
// Values are what a store or a file holds, and others may have chosen them: an imported kid may be `touch${IFS}x`. bash
// inserts what several values have in common without quoting it, and cobra's script evaluates the line at the next Tab, so that the
// value would run. A value that begins with a hyphen would be taken for a flag. After a tab comes what is said about a value.
func beginning(list []string, word string) []string {
	var some []string
	for _, v := range list {
		value, about, described := strings.Cut(v, "\t")
		if !strings.HasPrefix(value, word) || !plainWord.MatchString(value) {
			continue
		}
		if described {
			value += "\t" + cli.OneLine(about)
		}
		some = append(some, value)
	}
	return some
}

// choices completes one of a flag's choices, or, where several may stand in one value, the last of them.
func choices(flag *pflag.Flag) values {
	return func(_ context.Context, l line) (list []string) {
		before := ""
		if i := strings.LastIndex(l.word, ","); i >= 0 && flag.Value.Type() == "stringSlice" {
			before = l.word[:i+1]
		}
		for _, c := range cli.ChoicesOf(flag) {
			if !slices.Contains(strings.Split(before, ","), c) {
				list = append(list, before+c)
			}
		}
		return list
	}
}

// issuers completes the name of a key set, and an issuer URL that was begun.
func issuers(ctx context.Context, l line) (names []string) {
	if strings.HasPrefix(l.word, "https:") {
		return issuerURLs(ctx, l)
	}
	st, err := l.OpenStore(ctx)
	if err != nil {
		return nil
	}
	listed, _ := st.List(ctx) // without an answer nothing is offered
	for _, n := range slices.Sorted(maps.Keys(listed)) {
		if !slices.Contains(l.args, string(n)) {
			names = append(names, string(n))
		}
	}
	return names
}

// issuerURLs completes an issuer URL that is in use.
func issuerURLs(ctx context.Context, l line) (urls []string) {
	st, err := l.OpenStore(ctx)
	if err != nil {
		return nil
	}
	c, _ := catalog.ReadAll(ctx, st) // likewise
	for _, s := range c.Sets {
		for _, u := range s.Issuers() {
			if !s.Withdrawn() && !slices.Contains(l.args, u.String()) {
				urls = append(urls, u.String()+"\t"+string(s.Name()))
			}
		}
	}
	return urls
}

// set returns the key set that the first argument names; an empty one if there is none.
func (l line) set(ctx context.Context) keystore.KeySet {
	if len(l.args) == 0 {
		return keystore.KeySet{}
	}
	s, _ := l.Find(ctx, l.args[0])
	return s
}

// kids completes a key in one of the states, which are said beside it; nil is any.
func kids(states []keystore.State) values {
	return func(ctx context.Context, l line) (list []string) {
		for _, k := range l.set(ctx).Keys() {
			if states == nil || slices.Contains(states, k.State) {
				list = append(list, string(k.ID())+"\t"+string(k.State))
			}
		}
		return list
	}
}
