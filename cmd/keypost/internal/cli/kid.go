package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// dashedKID matches a key ID that begins with a hyphen, as one in 64 computed ones does, or a beginning of one: no group of short flags is
// that long.
var dashedKID = regexp.MustCompile(`^-[A-Za-z0-9_][A-Za-z0-9_-]{6,}$`)

// DashedKID moves such a KID argument behind a "--", so that it is not read as flags and a rotation does not fail for one key in 64.
func DashedKID(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil || !slices.Contains(strings.Fields(cmd.Use), "KID") || slices.Contains(args, "--") {
		return args
	}
	for i, arg := range args {
		if !dashedKID.MatchString(arg) {
			continue
		}
		before, long := strings.CutPrefix(args[i-1], "--") // the command's name is before it, at least
		if flag := cmd.Flag(before); !long || flag == nil || flag.NoOptDefVal != "" {
			return slices.Concat(args[:i], args[i+1:], []string{"--", arg})
		}
	}
	return args
}
