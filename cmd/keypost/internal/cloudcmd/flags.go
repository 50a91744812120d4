// Package cloudcmd has what the commands of every cloud share: the flags for publishing an issuer, the journal on stderr in
// ccoctl's form, previews with their exit code, and what to do about errors and next. A cloud's package of commands keeps its
// own flags around [Flags], begins a command's work with [Flags.Begin], and ends it with [Run.Ended] and [Run.Result].
package cloudcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
)

// Flags are those that the commands of every cloud have.
type Flags struct {
	To            *install.Options // what they fill in; never nil
	Party         string           // the cloud as a relying party, as in a key set's policy: "aws"
	Copy          string           // what a new key set's policy calls the cloud's copy of the keys, in place of Party; empty for none
	DryRun, Diff  bool
	PublicKeyFile string

	common []*pflag.Flag // those that the cloud's group has for all of its commands
}

// Define registers all of the flags, for a command to take over those that it has. files are
// those of a dry run, with what they are for.
func (f *Flags) Define(all *pflag.FlagSet, files string) {
	all.StringVar(&f.To.Dir, "output-dir", "", "`DIR` for the files (default the current one)")
	all.BoolVar(&f.DryRun, "dry-run", false, "write "+files+", and call nobody")
	all.BoolVar(&f.Diff, "diff", false,
		"print what would be changed, and what is there beyond what is wanted; change nothing, and exit 3 if there is any")
	all.StringVar(&f.To.IssuerURL, "issuer-url", "", "the issuer URL, as in the tokens' iss")
	all.StringVar(&f.PublicKeyFile, "public-key-file", "", "`FILE` with the cluster's public key (default OUTPUT-DIR/"+ccoctl.PublicKeyName+")")
}

// Take registers those of a cloud's flags that a command has. Those that are common to the cloud's commands stand at its group, and
// Begin reads them from there.
func (f *Flags) Take(cmd *cobra.Command, all *pflag.FlagSet, common []string, names ...string) *pflag.FlagSet {
	f.common = nil
	for _, name := range common {
		f.common = append(f.common, all.Lookup(name))
	}
	for _, name := range names {
		cmd.Flags().AddFlag(all.Lookup(name))
	}
	return cmd.Flags()
}

// Group returns the commands of a cloud with the flags that are common to them.
func Group(use, short string, all *pflag.FlagSet, common []string, commands ...*cobra.Command) *cobra.Command {
	g := cli.Group(use, short, commands...)
	for _, name := range common {
		g.PersistentFlags().AddFlag(all.Lookup(name))
	}
	return g
}

// required is the annotation of a command with the common flags that it needs.
const required = "keypost.dev/required"

// Required has a command refuse to run without these flags.
func Required(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		if cmd.MarkFlagRequired(flag) != nil { // it is a common one
			if cmd.Annotations == nil {
				cmd.Annotations = map[string]string{}
			}
			cmd.Annotations[required] += " " + flag
		}
	}
}

// readCommon takes over the values of the common flags.
func (f *Flags) readCommon(cmd *cobra.Command) error {
	var missing []string
	for _, flag := range strings.Fields(cmd.Annotations[required]) {
		if !cmd.Flags().Changed(flag) {
			missing = append(missing, strconv.Quote(flag))
		}
	}
	if len(missing) > 0 { // in cobra's words
		return fmt.Errorf("required flag(s) %s not set", strings.Join(missing, ", "))
	}
	for _, own := range f.common {
		if given := cmd.Flag(own.Name); given.Changed {
			if err := own.Value.Set(given.Value.String()); err != nil {
				return err
			}
		}
	}
	return nil
}

// check returns an error for flags that are wrong by themselves. ccoctl accepts an empty string for every one of them.
func (f *Flags) check(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if err == nil && flag.Value.Type() == "string" && strings.TrimSpace(flag.Value.String()) == "" {
			err = cli.Usagef("--%s is empty", flag.Name)
		}
	})
	switch {
	case err != nil:
		return err
	case f.DryRun && f.Diff:
		return cli.Usagef("give --dry-run or --diff, not both")
	case f.To.IssuerURL == "":
		return nil
	}
	if _, err := keystore.ParseIssuerURL(f.To.IssuerURL, f.To.Dev); err != nil {
		return cli.Usage(err)
	}
	return nil
}

// checkOutputDir returns an error unless the directory exists or can be made, one level of it.
func (f *Flags) checkOutputDir() error {
	if f.To.Dir == "" {
		f.To.Dir = "." // for a command that writes no files it need not exist
		if dir, err := os.Getwd(); err == nil {
			f.To.Dir = dir
		}
		return nil
	}
	info, err := os.Stat(f.To.Dir)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("--output-dir %s is not a directory", f.To.Dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(filepath.Clean(f.To.Dir))
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		return cli.WithHint(fmt.Errorf("--output-dir %s cannot be made: there is no directory %s", f.To.Dir, parent), "mkdir -p %s", cli.Quoted(f.To.Dir))
	}
	return nil
}

// Path returns where a file of the output directory is, as ccoctl logs it: as the directory was given.
func (f *Flags) Path(name string) string {
	return filepath.Join(f.To.Dir, filepath.FromSlash(name))
}

// ReadIssuer says how a new issuer is published and where it is looked for. Other settings are those of issuer add and issuer set.
func (f *Flags) ReadIssuer(factory *cli.Factory) (err error) {
	f.To.Policy = view.NewPolicy(f.To.Dev)
	if f.To.Dev {
		f.To.Policy.MaxAge = keystore.DurationPtr(time.Second) // a run waits for as long
	}
	f.To.Policy.RelyingParties = []string{f.Party}
	f.To.Site.Connect = factory.Connect
	f.To.Site.Shield, err = observe.ReadShield()
	return err
}

// UseOwnPublicKey takes the public key of the output directory where --public-key-file is not given. Without either, the keys
// count that the store has; a dry run asks no store, and then says what is missing.
func (f *Flags) UseOwnPublicKey() {
	own := f.Path(ccoctl.PublicKeyName)
	if f.PublicKeyFile != "" {
		return
	}
	if _, err := os.Stat(own); f.DryRun || !errors.Is(err, fs.ErrNotExist) {
		f.PublicKeyFile = own
	}
}

// ReadNew reads the flags for what a creation publishes. It returns the key of --public-key-file, nil without that flag. How it is
// published is read too, except for a dry run, which publishes nothing.
func (f *Flags) ReadNew(factory *cli.Factory) (*install.PublicKey, error) {
	key, err := f.readPublicKey(factory)
	if err == nil && !f.DryRun {
		err = f.ReadIssuer(factory)
	}
	return key, err
}

func (f *Flags) readPublicKey(factory *cli.Factory) (*install.PublicKey, error) {
	if f.PublicKeyFile == "" {
		return nil, nil
	}
	keys, err := keysource.ReadFile(factory, f.PublicKeyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, cli.WithHint(err, "give the cluster's public key with --public-key-file FILE")
	case err != nil:
		return nil, err
	}
	return install.OnePublicKey(f.PublicKeyFile, keys)
}

// Verification returns the command that verifies a key set as this run has looked at it.
func (f *Flags) Verification(n keystore.Name) cli.Command {
	return cli.Verify(n, f.To.Dev, "")
}

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
