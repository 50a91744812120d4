package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
)

// HintedError carries what to do next.
type HintedError struct {
	err    error
	format string
	args   []any
}

func (e *HintedError) Error() string { return e.err.Error() }
func (e *HintedError) Unwrap() error { return e.err }

// Hint returns what to do next as it is printed.
func (e *HintedError) Hint(f *Factory) string { return f.format(e.format, e.args...) }

// WithHint adds to an error what to do about it. A [Command] among args is printed so that it can be pasted.
func WithHint(err error, format string, args ...any) error {
	return &HintedError{err, format, args}
}

// Command is a command of ours that somebody may want to type next: the words after "keypost". Its arguments come before its flags.
type Command []string

// Verify returns the command that compares what is served with the store, by the name of the key set. CAFile may be empty.
func Verify(n keystore.Name, dev bool, caFile string) Command {
	c := Command{"verify", string(n)}
	if dev {
		c = append(c, "--dev")
	}
	if caFile != "" {
		c = append(c, "--ca-file", caFile)
	}
	return c
}

// Paste is a line for a shell, of a program that is not ours.
type Paste string

// format is fmt.Sprintf, with every [Command] among args printed as Line does.
func (f *Factory) format(format string, args ...any) string {
	args = slices.Clone(args)
	for i, arg := range args {
		switch c := arg.(type) {
		case Command:
			args[i] = f.Line(c)
		case Paste:
			args[i] = f.remember(string(c))
		}
	}
	return fmt.Sprintf(format, args...)
}

// Line returns a command line that can be pasted into a shell: quoted, and with the flags of this run that say where things are,
// as far as the command has them and they may be printed. The next command has what the environment names. If
// an argument begins with a hyphen, as a kid may that somebody else chose, all stand at the end behind "--": they are not flags.
func (f *Factory) Line(c Command) string { return f.remember(f.line(c)) }

func (f *Factory) line(c Command) string {
	words := append([]string{"keypost"}, c...)
	if f.ran == nil {
		return Quoted(words...)
	}
	next, _, err := f.ran.Root().Find(c)
	if err != nil {
		return Quoted(words...)
	}
	names := []string{"ca-file", "vantage", "store", "observations"} // how an issuer is reached, and where things are
	if f.ran == next {                                               // and a cluster
		names = append([]string{"dev", "connect", "kubeconfig", "context", "apiserver", "service-account", "gone"}, names...)
	}
	for _, name := range names {
		flag := f.ran.Flag(name)
		if flag == nil || !flag.Changed || next.Flag(name) == nil || slices.Contains(words, "--"+name) || !f.showable(flag) {
			continue
		}
		words = append(words, flagWords(flag)...)
	}
	if next.Name() == "sync-keys" && f.Observations == "" && !slices.Contains(words, "--observations") { // without, it only says what is missing
		words = append(words, "--observations", UnknownPlace)
	}
	return Quoted(argumentsApart(words, next)...)
}

// remember notes a command, so that a screen keeps it whole.
func (f *Factory) remember(command string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.commands, command) {
		f.commands = append(f.commands, command)
	}
	return command
}

// printed returns the commands that this run has printed.
func (f *Factory) printed() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.commands)
}

// argumentsApart returns the words of a command with its arguments behind "--" if one of them begins with a hyphen.
func argumentsApart(words []string, cmd *cobra.Command) []string {
	first := len(strings.Fields(cmd.CommandPath()))
	end, apart := first, false
	for ; end < len(words); end++ {
		free := slices.Contains([]string{"KID", "DIR"}, Argument(cmd.Use, end-first)) // what may begin with a hyphen
		hyphen := strings.HasPrefix(words[end], "-")
		if hyphen && !free || Argument(cmd.Use, end-first) == "" {
			break
		}
		apart = apart || hyphen
	}
	if !apart {
		return words
	}
	return slices.Concat(words[:first], words[end:], []string{"--"}, words[first:end])
}

// UnknownPlace stands in a printed command for the place of observations where nothing says which it is: one that nobody chose would begin
// a second record.
const UnknownPlace = "URL"

// showable reports whether the value of a flag may be printed: a URL that cannot be read may hold anything, also a password.
func (f *Factory) showable(flag *pflag.Flag) bool {
	switch flag.Name {
	case "store":
		_, err := ParseStore(f.Store)
		return err == nil
	case "observations":
		_, err := f.observationsURL()
		return err == nil
	}
	return true
}

// Again returns the command of this run with the flags that it was given, but for some, and without -o.
func (f *Factory) Again(without ...string) Command {
	c := Command(strings.Fields(f.ran.CommandPath())[1:])
	c = append(c, f.ran.Flags().Args()...)
	f.ran.Flags().Visit(func(flag *pflag.Flag) {
		if !slices.Contains(append(without, "store", "observations", "output"), flag.Name) {
			c = append(c, flagWords(flag)...)
		}
	})
	return c
}

// flagWords returns a flag with its value, as it can be typed.
func flagWords(flag *pflag.Flag) []string {
	switch value := flag.Value.(type) {
	case pflag.SliceValue:
		var words []string
		for _, v := range value.GetSlice() {
			words = append(words, "--"+flag.Name, v)
		}
		return words
	default:
		switch {
		case flag.NoOptDefVal == value.String():
			return []string{"--" + flag.Name}
		case flag.NoOptDefVal != "":
			return []string{"--" + flag.Name + "=" + value.String()}
		case value.Type() == "stringToString":
			return []string{"--" + flag.Name, strings.TrimSuffix(strings.TrimPrefix(value.String(), "["), "]")}
		}
		return []string{"--" + flag.Name, value.String()}
	}
}

// Quoted joins words into a line for a POSIX shell.
func Quoted(words ...string) string { return text.Quoted(words...) }

// Steps prints what something waits for a person to do, as a numbered list, and the command to run then unless it is nil. A step that
// begins with "or, " stands in place of the others.
func (f *Factory) Steps(who string, steps []string, then Command) {
	f.Notice("%s waits for you:", who)
	for i, step := range steps {
		if strings.HasPrefix(step, "or, ") {
			f.Notice("  %s", step)
			continue
		}
		f.Notice("  %d. %s", i+1, step)
	}
	if then != nil {
		f.Notice("then: %s", then)
	}
}
