package cloudcmd

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpGroup is what some flags are for.
type helpGroup struct{ title, flags string }

// helpGroups are the flags of create-all that ccoctl does not have.
func helpGroups() []helpGroup {
	return []helpGroup{
		{"The issuer", "issuer-url dev"},
		{"Safety", "account adopt diff prune tighten"},
		{"Rarely needed", "allowed-audience attribute-condition audience client-id cloud help max-trust-length thumbprint"},
	}
}

// GroupHelp has the help of a command with many flags print them in groups. What no group names is as in ccoctl.
func GroupHelp(cmd *cobra.Command) {
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		w := cmd.OutOrStderr()
		_, _ = fmt.Fprintf(w, "Usage:\n  %s\n", cmd.UseLine())
		own := cmd.NonInheritedFlags()
		own.AddFlagSet(cmd.Parent().PersistentFlags())
		grouped := ""
		for _, g := range helpGroups() {
			grouped += g.flags + " "
		}
		printFlags(w, "As in ccoctl", own, func(name string) bool { return !slices.Contains(strings.Fields(grouped), name) })
		for _, g := range helpGroups() {
			printFlags(w, g.title, own, func(name string) bool { return slices.Contains(strings.Fields(g.flags), name) })
		}
		printFlags(w, "Of every command", cmd.Root().PersistentFlags(), func(string) bool { return true })
		return nil
	})
}

func printFlags(w io.Writer, title string, all *pflag.FlagSet, is func(name string) bool) {
	group := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if is(f.Name) {
			group.AddFlag(f)
		}
	})
	_, _ = fmt.Fprintf(w, "\n%s:\n%s", title, group.FlagUsages())
}
