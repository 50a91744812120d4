package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/test/commands"
)

// Every command that the documentation and the help tell people to type names a command that exists, with flags and
// arguments that it takes.
func TestDocumentedCommandsParse(t *testing.T) {
	all, err := commands.All("../..")
	if err != nil {
		t.Fatal(err)
	}
	walk(newRoot(&cli.Factory{}), func(c *cobra.Command) {
		examples, err := commands.Notes(c.CommandPath()+" --help", c.Example)
		if err != nil {
			t.Error(err)
		}
		all = append(all, examples...)
	})
	mine := commands.For(all, "keypost")
	if len(mine) < 30 {
		t.Fatalf("only %d commands were found", len(mine))
	}
	for _, c := range mine {
		if err := takes(c.Words[1:], c.Mention); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// Every command of a document that reads or writes key sets says where they are, or its document says before it that KEYPOST_STORE
// does: typed as it stands it would end with "no store" else.
func TestDocumentedCommandsNameTheirStore(t *testing.T) {
	all, err := commands.All("../..")
	if err != nil {
		t.Fatal(err)
	}
	needed := 0
	for _, c := range commands.For(all, "keypost") {
		if !needsStore(c.Words[1:]) {
			continue
		}
		needed++
		if !c.Stored && !slices.ContainsFunc(c.Words, func(w string) bool { return w == "--store" || strings.HasPrefix(w, "--store=") }) {
			t.Errorf("%s: give it --store, or say before it that KEYPOST_STORE is set", c)
		}
	}
	if needed < 100 {
		t.Errorf("only %d commands were seen to need a store", needed)
	}
}

// needsStore reports whether a command ends with an error where neither --store nor KEYPOST_STORE says where key sets are. One
// without any argument only stands for the command as such.
func needsStore(args []string) bool {
	root := newRoot(&cli.Factory{})
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(cli.DashedKIDs(root, args))
	if err != nil || len(rest) == 0 || slices.Contains(rest, "--help") {
		return false
	}
	switch group, _, _ := strings.Cut(strings.TrimPrefix(cmd.CommandPath(), "keypost "), " "); group {
	case "issuer", "key", "rotate", "audit", "export", "mirror", "watch":
		return cmd.Name() != "generate"
	case "azure":
		given := func(flag string) bool { return slices.Contains(rest, flag) }
		return slices.Contains([]string{"create-all", "create-oidc-issuer"}, cmd.Name()) && !given("--dry-run") || cmd.Name() == "migrate" && !given("--finish")
	case "verify": // of an issuer by its URL it needs none
		return cmd.ParseFlags(rest) == nil && slices.ContainsFunc(cmd.Flags().Args(), func(a string) bool { return !strings.Contains(a, "://") && a != "URL" })
	}
	return false
}

// takes says what keypost would find wrong with its arguments before it does anything.
func takes(args []string, mention bool) error {
	f := &cli.Factory{}
	root := newRoot(f)
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(cli.DashedKIDs(root, args))
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	for _, flag := range []string{"help", "version"} {
		if given := cmd.Flag(flag); given != nil && given.Changed {
			return nil
		}
	}
	if mention && len(rest) == 0 && cmd != root {
		return nil
	}
	given := cmd.Flags().Args()
	if cmd.HasSubCommands() {
		return fmt.Errorf("it needs one of the commands below %s, not %q", cmd.CommandPath(), given)
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	for _, flag := range strings.Fields(cmd.Annotations["keypost.dev/required"]) {
		if !cmd.Flags().Changed(flag) {
			return fmt.Errorf("it needs --%s", flag)
		}
	}
	if err := cmd.ValidateFlagGroups(); err != nil {
		return err
	}
	if f.Store != "" && !strings.Contains(f.Store, "$") && f.Store != "STORE" {
		if _, err := cli.ParseStore(f.Store); err != nil {
			return err
		}
	}
	return cmd.ValidateArgs(given)
}

func walk(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, child := range c.Commands() {
		walk(child, visit)
	}
}
