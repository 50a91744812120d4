package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// dashedKID matches a key ID that begins with a hyphen, as one in 64 computed ones does, or a beginning of one: no group of short flags is
// that long. After a second hyphen it is only a whole computed one, of 43 characters: no long flag is that long.
var dashedKID = regexp.MustCompile(`^-([A-Za-z0-9_][A-Za-z0-9_-]{6,}|[A-Za-z0-9_-]{42})$`)

// DashedKID moves such a KID argument behind a "--", so that it is not read as flags and a rotation does not fail for one key in 64.
func DashedKID(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil || !slices.Contains(strings.Fields(cmd.Use), "KID") || slices.Contains(args, "--") {
		return args
	}
	for i, arg := range args {
		if i == 0 || !dashedKID.MatchString(arg) {
			continue
		}
		before, long := strings.CutPrefix(args[i-1], "--")
		if flag := cmd.Flag(before); !long || flag == nil || flag.NoOptDefVal != "" {
			return slices.Concat(args[:i], args[i+1:], []string{"--", arg})
		}
	}
	return args
}
