package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/test/golden"
)

const commandsPreface = `# Commands of keypost

Made from the commands' own help by ` + "`KEYPOST_UPDATE=1 go test ./cmd/keypost -run TestCommandReference`" + `: edit that.

`

// TestCommandReference: docs/reference/commands.md is the help of every command.
func TestCommandReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(commandsPreface)
	root := newRoot(&cli.Factory{})
	b.WriteString(paragraphs(root.Long) + "\nEvery command takes:\n\n")
	flagTable(&b, root.PersistentFlags())
	b.WriteString("`keypost completion bash` (zsh, fish, powershell) prints a script that completes commands and flags; `keypost completion bash --help` says where it goes.\n\n")
	b.WriteString("| command | what it does |\n|---|---|\n")
	documented := documentedCommands()
	for _, c := range documented {
		if !c.HasSubCommands() {
			fmt.Fprintf(&b, "| [%s](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), cell(c.Short))
		}
	}
	b.WriteString("\n")
	for _, c := range documented {
		if c.HasSubCommands() {
			if c.HasPersistentFlags() {
				fmt.Fprintf(&b, "## %s\n\n%s. Each of its commands takes:\n\n", c.CommandPath(), c.Short)
				flagTable(&b, c.PersistentFlags())
			}
			continue
		}
		fmt.Fprintf(&b, "## %s\n\n%s.%s\n\n```text\nUsage: %s\n```\n\n", c.CommandPath(), c.Short, otherNames(c), c.UseLine())
		if c.Long != "" {
			b.WriteString(paragraphs(c.Long) + "\n")
		}
		if c.Example != "" {
			b.WriteString("```console\n" + prompted(c.Example) + "```\n\n")
		}
		flagTable(&b, c.NonInheritedFlags())
	}
	golden.Same(t, "../../docs/reference/commands.md", strings.TrimRight(b.String(), "\n")+"\n")
}

// documentedCommands are those that are keypost's own, groups before their commands.
func documentedCommands() (all []*cobra.Command) {
	walk(newRoot(&cli.Factory{}), func(c *cobra.Command) {
		if c.HasParent() && c.Name() != "help" && !strings.HasPrefix(c.CommandPath(), "keypost completion") && c.IsAvailableCommand() {
			all = append(all, c)
		}
	})
	return all
}

func otherNames(c *cobra.Command) string {
	if len(c.Aliases) == 0 {
		return ""
	}
	return " Also: `" + strings.Join(c.Aliases, "`, `") + "`."
}

// paragraphs joins the lines of each, as they were broken for a terminal.
func paragraphs(s string) string {
	var b strings.Builder
	for p := range strings.SplitSeq(s, "\n\n") {
		b.WriteString(strings.NewReplacer("<", "\\<", "*", "\\*", "_", "\\_").Replace(strings.Join(strings.Fields(p), " ")) + "\n\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// prompted puts a prompt before each command of an example.
func prompted(example string) string {
	var b strings.Builder
	continued := false
	for line := range strings.SplitSeq(strings.Trim(example, "\n"), "\n") {
		if line = strings.TrimPrefix(line, "  "); !continued {
			line = "$ " + line
		}
		continued = strings.HasSuffix(line, `\`)
		b.WriteString(line + "\n")
	}
	return b.String()
}

func flagTable(b *strings.Builder, flags *pflag.FlagSet) {
	rows := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		if rows++; rows == 1 {
			b.WriteString("| flag | what it does |\n|---|---|\n")
		}
		form, what := flagHelp(f)
		fmt.Fprintf(b, "| `%s` | %s |\n", form, cell(what))
	})
	if rows > 0 {
		b.WriteString("\n")
	}
}

// flagHelp returns a flag as it is given, and what --help says of it.
func flagHelp(f *pflag.Flag) (form, what string) {
	value, what := pflag.UnquoteUsage(f)
	if form = "--" + f.Name; f.Shorthand != "" {
		form = "-" + f.Shorthand + ", " + form
	}
	if shown, is := map[string]string{"stringArray": "string", "strings": "string,…", "stringToString": "KEY=VALUE,…"}[value]; is {
		value = shown
	}
	if value != "" {
		form += " " + value
	}
	if d := f.DefValue; d != "" && d != "false" && d != "[]" && d != "0" && d != "0s" && !strings.Contains(what, "default") {
		what += " (default " + d + ")"
	}
	return form, what
}

func cell(s string) string { return strings.NewReplacer("|", "\\|", "<", "\\<", "*", "\\*").Replace(s) }
