// Package cloudcmd has what the commands of every cloud share: the flags for publishing an issuer, the log on stderr in ccoctl's
// form, previews with their exit code, and what to do about errors and next. A cloud's package of commands has one type around
// [Run], with the options that its flags fill in, and makes each command by [Run.Command].
package cloudcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/ccoctl"
	"github.com/keypost/keypost/provision/install"
)

// Run is what the flags of a cloud's commands say, and the run of one of them. All of its commands share it: a process runs one.
type Run struct {
	*cli.Factory
	To     *install.Options // that the flags fill in: those of the cloud
	Party  string           // the cloud as a relying party, as in a key set's policy: "aws"
	Copy   string           // what a new key set's policy calls the cloud's copy of the keys, in place of Party; empty for none
	All    *pflag.FlagSet   // every flag of the cloud's, each with its usual usage
	Common []string         // those that each of its commands has

	Ready func() error          // returns an error for flags of the cloud's that are wrong by themselves, and makes up what none says
	Hint  func(err error) error // adds to an error of the cloud's packages what to do about it; nil for any other

	DryRun, Diff  bool
	PublicKeyFile string

	Move   install.Move // of a live cluster from an old issuer to this one; without OldKeys, which Moving adds
	Finish bool         // take the trust in the old issuer away
	jwks   string       // where the old issuer's keys are read; empty for the issuer itself
	unread bool         // they could not be

	cmd *cobra.Command // that is run
	log *log.Logger    // in ccoctl's form, since scripts look for its lines
}

// Define registers the flags that every cloud has. files are those of a dry run, with what they are for.
func (r *Run) Define(files string) {
	r.All = pflag.NewFlagSet("", pflag.ContinueOnError)
	r.All.StringVar(&r.To.Dir, "output-dir", "", "`DIR` for the files (default the current one)")
	r.All.BoolVar(&r.DryRun, "dry-run", false, "write "+files+", and call nobody")
	r.All.BoolVar(&r.Diff, "diff", false,
		"print what would be changed, and what is there beyond what is wanted; change nothing, and exit 3 if there is any")
	r.All.StringVar(&r.To.IssuerURL, "issuer-url", "", "the issuer URL, as in the tokens' iss")
	r.All.StringVar(&r.PublicKeyFile, "public-key-file", "", "`FILE` with the cluster's public key (default OUTPUT-DIR/"+ccoctl.PublicKeyName+")")
	r.All.BoolVar(&r.To.Dev, "dev", false, "a development issuer of keypostd --dev, for an emulator of the cloud: its URL may have a port, and waits are short")
	r.defineMove()
}

// Requests registers the flags that say which CredentialsRequests there are. pruned is what --prune takes away.
func (r *Run) Requests(dir *string, techPreview, prune *bool, pruned string) {
	r.All.StringVar(dir, "credentials-requests-dir", "", "`DIR` with CredentialsRequests (oc adm release extract --credentials-requests)")
	r.All.BoolVar(techPreview, "enable-tech-preview", false, "also the CredentialsRequests of tech preview features")
	r.All.BoolVar(prune, "prune", false, "take away what no CredentialsRequest asks for: "+pruned)
}

// needless is the annotation of a flag of ccoctl's that has nothing to do here.
const needless = "keypost.dev/needless"

// Needless hides flags of ccoctl's that have nothing to do here: they are taken, and told.
func (r *Run) Needless(flags ...string) {
	for _, name := range flags {
		flag := r.All.Lookup(name)
		flag.Hidden, flag.Annotations = true, map[string][]string{needless: {}}
	}
}

// Group returns the commands of the cloud with the flags that are common to them.
func (r *Run) Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := cli.Group(use, short, append([]*cobra.Command{r.createKeyPair()}, commands...)...)
	for _, name := range r.Common {
		g.PersistentFlags().AddFlag(r.All.Lookup(name))
	}
	return g
}

// Command returns a command that takes only flags, and does its work in do. flags are those that it has beside the common ones, each
// as its name, NAME=USAGE with a usage of its own, or NAME+=MORE to add to the usual one.
func (r *Run) Command(c cobra.Command, do func(ctx context.Context) error, flags ...string) *cobra.Command {
	c.Args = cobra.ExactArgs(0)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		err := r.begin(cmd)
		if err == nil {
			err = r.Ready()
		}
		if err == nil {
			err = do(cmd.Context())
		}
		return r.hinted(err)
	}
	for _, f := range flags {
		name, usage, other := strings.Cut(f, "=")
		name, more := strings.CutSuffix(name, "+")
		flag := *r.All.Lookup(name)
		switch {
		case more:
			flag.Usage += usage
		case other:
			flag.Usage = usage
		}
		c.Flags().AddFlag(&flag)
	}
	return &c
}

// Verb returns the name of the command that is run.
func (r *Run) Verb() string { return r.cmd.Name() }

// Has reports whether the command that is run has a flag.
func (r *Run) Has(flag string) bool { return r.cmd.Flag(flag) != nil }

// Given reports whether a flag was given.
func (r *Run) Given(flag string) bool { return r.cmd.Flags().Changed(flag) }

// createKeyPair returns the command create-key-pair, which is the same in every cloud.
func (r *Run) createKeyPair() *cobra.Command {
	return &cobra.Command{
		Use:   "create-key-pair",
		Short: "Make the key pair that a cluster signs its tokens with",
		Long: "Make the key pair that a cluster signs its service account tokens with, and put the private half where the\n" +
			"installer takes it from. Key files that are there already are used and never overwritten.",
		Args: cobra.ExactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.begin(cmd); err != nil {
				return err
			}
			if err := install.CreateKeyPair(*r.To); err != nil {
				return r.hinted(err)
			}
			return r.Result(map[string]string{"privateKeyFile": r.Path(ccoctl.PrivateKeyName), "publicKeyFile": r.Path(ccoctl.PublicKeyName)})
		},
	}
}

// begin checks the flags that every cloud has, and fills in where a command reports, in which mode it is, and its store.
func (r *Run) begin(cmd *cobra.Command) error {
	r.cmd = cmd
	if err := r.check(); err != nil {
		return err
	}
	r.Begin()
	if err := r.checkOutputDir(); err != nil {
		return err
	}
	r.log = log.New(r.Live(), "", log.LstdFlags)
	r.To.Store, r.To.Report = r.keyStore(), r.report
	switch {
	case r.DryRun:
		r.To.Mode = install.DryRun
	case r.Diff:
		r.To.Mode = install.Preview
	}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if _, is := flag.Annotations[needless]; is {
			r.Warn("--%s is not needed: keypostd serves the documents, so that there is no storage to keep them in", flag.Name)
		}
	})
	return nil
}

// check returns an error for flags that are wrong by themselves. ccoctl accepts an empty string for every one of them.
func (r *Run) check() error {
	empty := ""
	r.cmd.Flags().Visit(func(flag *pflag.Flag) {
		if flag.Value.Type() == "string" && strings.TrimSpace(flag.Value.String()) == "" {
			empty = cmp.Or(empty, flag.Name)
		}
	})
	switch {
	case empty != "":
		return cli.Usagef("--%s is empty", empty)
	case r.DryRun && r.Diff:
		return cli.Usagef("give --dry-run or --diff, not both")
	case r.To.IssuerURL == "":
		return nil
	}
	if _, err := keystore.ParseIssuerURL(r.To.IssuerURL, r.To.Dev); err != nil {
		return cli.Usage(err)
	}
	return nil
}

// checkOutputDir returns an error unless the directory exists or can be made, one level of it.
func (r *Run) checkOutputDir() error {
	if r.To.Dir == "" {
		r.To.Dir = "." // for a command that writes no files it need not exist
		if dir, err := os.Getwd(); err == nil {
			r.To.Dir = dir
		}
		return nil
	}
	info, err := os.Stat(r.To.Dir)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("--output-dir %s is not a directory", r.To.Dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(filepath.Clean(r.To.Dir))
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		return cli.WithHint(fmt.Errorf("--output-dir %s cannot be made: there is no directory %s", r.To.Dir, parent), "mkdir -p %s", cli.Quoted(r.To.Dir))
	}
	return nil
}

// Path returns where a file of the output directory is, as ccoctl logs it: as the directory was given.
func (r *Run) Path(name string) string {
	return filepath.Join(r.To.Dir, filepath.FromSlash(name))
}

// keyStore is the store that --store names.
func (r *Run) keyStore() install.KeyStore {
	_, err := cli.ParseStore(r.Store)
	k := install.KeyStore{
		Change: func() keystore.Change { return r.Change("", false) },
		Open:   r.OpenStore, Create: r.CreateStore, Check: func() error { return err },
	}
	if err == nil { // what cannot be parsed may have a password in it
		k.Name = r.Store
	}
	return k
}

// WithoutStore makes --store optional: what only asks a store more than it must goes on without.
func (r *Run) WithoutStore() {
	if r.Store == "" {
		r.To.Store = install.KeyStore{}
	}
}

// progressEvery is how long nothing is printed, where lines do not change, before a wait is: seldom enough for a CI log to stay
// readable, often enough that nobody takes the program for dead. Waits are reported every other second, so that nothing is
// silent for more than 15 seconds.
const progressEvery = 10 * time.Second

// report prints what a run reports, and after a warning what to do about it. It is safe for concurrent use.
func (r *Run) report(e install.Event) {
	advice := ""
	switch e.Kind {
	case install.Line:
		r.log.Print(cli.OneLine(e.Text))
		return
	case install.Wait:
		if !r.Live().Draw(e.Text) && r.Live().Silent() >= progressEvery {
			r.log.Print(cli.OneLine(e.Text))
		}
		return
	case install.Progress:
		r.Live().Draw(e.Text)
		return
	case install.KeyIsNext:
		advice = " (" + r.Line(cli.Command{"key", "promote", string(e.KeySet), string(e.Key)}) + ")"
	case install.UnknownKey:
		advice = "; to end that: " + r.Line(cli.Command{"key", "revoke", string(e.KeySet), string(e.Key), "--why", "REASON"})
	case install.UnreadKeySet:
		advice = "; why: " + r.Line(cli.Command{"issuer", "list"})
	}
	r.Warn("%s%s", e.Text, advice)
}
