package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// dashedKid matches a key ID that begins with a hyphen, as one in 64 computed ones does, or a prefix of one that is at
// least 8 characters long: a group of short flags is never that long. After a second hyphen it matches only a whole
// computed key ID (43 characters), since no long flag has such a length.
var dashedKid = regexp.MustCompile(`^-([A-Za-z0-9_][A-Za-z0-9_-]{6,}|[A-Za-z0-9_-]{42})$`)

// takesKID reports whether one of a command's arguments is a key ID.
func takesKID(cmd *cobra.Command) bool { return slices.Contains(strings.Fields(cmd.Use), "KID") }

// DashedKIDs moves such a KID argument, which is always the last, behind a "--", so that it is not read as flags and
// a rotation does not fail for one key in 64.
func DashedKIDs(root *cobra.Command, args []string) []string {
	cmd, _, err := root.Find(args)
	if err != nil || !takesKID(cmd) || slices.Contains(args, "--") {
		return args
	}
	var rest, kids []string
	for i, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if dashedKid.MatchString(arg) && cmd.Flag(name) == nil && (i == 0 || !takesValue(cmd, args[i-1])) {
			kids = append(kids, arg)
			continue
		}
		rest = append(rest, arg)
	}
	if len(kids) == 0 {
		return args
	}
	return append(append(rest, "--"), kids...)
}

// takesValue reports whether arg is a flag whose value is the next argument.
func takesValue(cmd *cobra.Command, arg string) bool {
	name, isLong := strings.CutPrefix(arg, "--")
	if !isLong {
		return arg == "-o"
	}
	f := cmd.Flag(name)
	return f != nil && f.NoOptDefVal == ""
}
