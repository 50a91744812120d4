package awscmd

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// run is one run of a command.
type run struct {
	*cli.Factory
	f       *Options
	journal *journal
}

// work makes a cobra RunE of a command's own work.
func work(factory *cli.Factory, f *Options, do func(ctx context.Context, r *run) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := f.check(cmd); err != nil {
			return err
		}
		factory.Begin()
		if cmd.Flags().Lookup("output-dir") != nil {
			if err := f.checkOutputDir(); err != nil {
				return err
			}
		}
		f.usual = !cmd.Flags().Changed("client-id")
		r := &run{Factory: factory, f: f, journal: newJournal(factory.Err)}
		defer r.journal.clear()
		return r.hinted(do(cmd.Context(), r))
	}
}

// path is where a file of the output directory is, as ccoctl logs it: as the directory was given.
func (f *Options) path(name string) string {
	return filepath.Join(f.outputDir, filepath.FromSlash(name))
}

// mode is what the flags ask to do about a difference.
func (f *Options) mode() install.Mode {
	switch {
	case f.dryRun:
		return install.DryRun
	case f.diff:
		return install.Preview
	}
	return install.Apply
}

func (f *Options) target() install.Target {
	return install.Target{Region: f.region, Account: f.account}
}

func (f *Options) ownership() install.Ownership {
	return install.Ownership{Tags: f.tags, Adopt: f.adopt, Tighten: f.tighten}
}

// keyStore is the store that --store names.
func (r *run) keyStore() install.KeyStore {
	k := install.KeyStore{By: r.By, Open: r.OpenStore, Create: r.CreateStore, Check: func() error {
		_, err := cli.ParseStore(r.Store)
		return err
	}}
	if k.Check() == nil { // what cannot be parsed may have a password in it
		k.Name = r.Store
	}
	return k
}

// site is how the issuer is reached.
func (f *Options) site() (install.Site, error) {
	if err := cli.CheckConnect(f.connect); err != nil {
		return install.Site{}, err
	}
	roots, err := cli.ReadRoots(f.caFile)
	return install.Site{Roots: roots, Connect: f.connect}, err
}

// keySetPolicy is the policy that the flags ask for.
func (f *Options) keySetPolicy() (keystore.Policy, error) {
	policy := view.NewPolicy()
	policy.RelyingParties = []string{"aws"}
	policy, err := f.policy.Apply(policy)
	if err == nil {
		err = policy.Check(f.dev)
	}
	if err != nil {
		return policy, cli.Usage(err)
	}
	return policy, nil
}

// look is the command that compares what is served with the store, reached as by this run.
func (f *Options) look(s keystore.KeySet) cli.Command {
	look := cli.Command{"verify", string(s.Name())}
	if f.dev {
		look = append(look, "--dev")
	}
	if f.caFile != "" {
		look = append(look, "--ca-file", f.caFile)
	}
	if f.connect != "" {
		look = append(look, "--connect", f.connect)
	}
	return look
}

// report prints what a run reports. It is safe for concurrent use.
func (r *run) report(e install.Event) {
	switch e := e.(type) {
	case install.Line:
		r.journal.printf("%s", string(e))
	case install.Wait:
		r.journal.wait(e)
	case install.Progress:
		r.journal.show("%d of %d changes made", e.Made, e.Total)
	case install.Warning:
		r.journal.clear()
		r.Warn("%s", string(e))
	case install.KeyIsNext:
		r.journal.clear()
		r.Warn("key %s is next in key set %q: the cluster may sign with it only once it is active (%s)", e.Key, e.KeySet,
			cli.Command{"key", "promote", string(e.KeySet), string(e.Key)})
	case install.UnknownKey:
		r.journal.clear()
		r.Warn("%s publishes the key %s, which the cluster does not know: whoever holds it can speak for the cluster, "+
			"also under %s; %s ends that", e.Old, e.Key, e.New, cli.Command{"key", "revoke", string(e.KeySet), string(e.Key), "--why", "REASON"})
	case install.UnreadKeySet:
		r.journal.clear()
		r.Warn("key set %q cannot be read; keypost issuer list says why", e.Name)
	}
}

// differsError ends a run of --diff that found something to change, or something beyond what is wanted.
type differsError struct{ actions, extra int }

func (e *differsError) Error() string {
	var found []string
	if e.actions > 0 {
		found = append(found, plural(e.actions, "thing differs", "things differ"))
	}
	if e.extra > 0 {
		found = append(found, plural(e.extra, "thing is there beyond what is wanted", "things are there beyond what is wanted"))
	}
	return strings.Join(found, ", ") + "; nothing was changed"
}

// ExitCode is for [cli.Factory.Run].
func (e *differsError) ExitCode() int { return cli.ExitDiffer }

// plural returns a number and its noun.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// show prints a preview for --diff. The error says that there is a difference.
func (r *run) show(v *plan.Preview) error {
	if err := v.Write(r.Out); err != nil || v.Empty() {
		return err
	}
	return &differsError{len(v.Changes), len(v.Extra)}
}
