package cloudcmd

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
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
		use, width := cmd.UseLine(), terminal.Of(cmd.Root().OutOrStdout(), os.Getenv).Width // w may be cobra's own buffer
		if width > 0 {
			use = terminal.Wrap(use, width, 2, 6)
		}
		_, _ = fmt.Fprintf(w, "Usage:\n  %s\n", use)
		section := func(title string, all *pflag.FlagSet, is func(name string) bool) {
			_, _ = fmt.Fprintf(w, "\n%s:\n%s", title, some(all, is).FlagUsagesWrapped(width))
		}
		own := cmd.NonInheritedFlags()
		own.AddFlagSet(cmd.Parent().PersistentFlags())
		grouped := ""
		for _, g := range helpGroups() {
			grouped += g.flags + " "
		}
		section("As in ccoctl", own, func(name string) bool { return !slices.Contains(strings.Fields(grouped), name) })
		for _, g := range helpGroups() {
			section(g.title, own, func(name string) bool { return slices.Contains(strings.Fields(g.flags), name) })
		}
		section("Of every command", cmd.Root().PersistentFlags(), func(string) bool { return true })
		return nil
	})
}

// some returns the flags whose names are right.
func some(all *pflag.FlagSet, is func(name string) bool) *pflag.FlagSet {
	group := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if is(f.Name) {
			group.AddFlag(f)
		}
	})
	return group
}
