package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CheckArgs finds a command that does not exist, which cobra takes for an argument.
func CheckArgs(root *cobra.Command, args []string) (*cobra.Command, error) {
	if Completing(args) {
		return root, nil // half of a line, for a shell to complete
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		return cmd, err
	}
	if !cmd.HasSubCommands() {
		return cmd, nil
	}
	for i, arg := range rest {
		if !strings.HasPrefix(arg, "-") && (i == 0 || !takesValue(cmd, rest[i-1])) {
			return cmd, unknownCommand(cmd, arg)
		}
	}
	return cmd, nil
}

func unknownCommand(cmd *cobra.Command, name string) error {
	cmd.SuggestionsMinimumDistance = 2
	message := fmt.Sprintf("unknown command %q for %q", name, cmd.CommandPath())
	if like := cmd.SuggestionsFor(name); len(like) > 0 {
		message += "; did you mean " + strings.Join(like, " or ") + "?"
	}
	return errors.New(message)
}

// flagError reports what is wrong with a flag in our words: the parser's name the parts of its own source.
func flagError(cmd *cobra.Command, err error) error {
	if e, is := errors.AsType[*pflag.NotExistError](err); is && e.GetSpecifiedShortnames() == "" {
		return fmt.Errorf("unknown flag: --%s%s", e.GetSpecifiedName(), DidYouMean("--", Nearest(e.GetSpecifiedName(), flagNames(cmd))))
	}
	if e, is := errors.AsType[*pflag.NotExistError](err); is {
		letter := e.GetSpecifiedName()
		like := slices.DeleteFunc(flagNames(cmd), func(name string) bool { return !strings.EqualFold(name[:1], letter) })
		slices.Sort(like)
		return fmt.Errorf("unknown flag: -%s%s", letter, DidYouMean("--", strings.Join(slices.Compact(like), " or --")))
	}
	e, is := errors.AsType[*pflag.InvalidValueError](err)
	if !is {
		return err
	}
	need := map[string]string{
		"duration": "it must be a duration with its unit, such as 90s, 15m or 24h (one day is 24h)",
		"int64":    "it must be a whole number", "int": "it must be a whole number",
		"bool": "it must be true or false",
	}[e.GetFlag().Value.Type()]
	if need == "" {
		return err
	}
	return fmt.Errorf("--%s %q: %s", e.GetFlag().Name, e.GetValue(), need)
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	add := func(f *pflag.Flag) { names = append(names, f.Name) }
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return names
}

// DidYouMean returns a question to end an error with, or nothing if name is empty.
func DidYouMean(prefix, name string) string {
	if name == "" {
		return ""
	}
	return "; did you mean " + prefix + name + "?"
}

// Nearest returns the word in known from which word differs by a typing error or two, or "" if there is none.
func Nearest(word string, known []string) string {
	best, least := "", min(2, len(word)/2)+1
	for _, k := range known {
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance returns how many single changes turn a into b: a letter inserted, deleted or replaced, or two neighbours
// swapped.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

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
