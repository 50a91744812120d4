package awscmd

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/provision/install"
	"github.com/keypost/keypost/provision/plan"
)

// run is one run of a command.
type run struct {
	*cli.Factory
	*flags
	journal *journal
}

// work makes a cobra RunE of a command's own work.
func work(factory *cli.Factory, f *flags, do func(ctx context.Context, r *run) error) func(*cobra.Command, []string) error {
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
		f.Usual = !cmd.Flags().Changed("client-id")
		r := &run{Factory: factory, flags: f, journal: newJournal(factory.Err)}
		f.Store, f.Report = r.keyStore(), r.report
		switch {
		case f.dryRun:
			f.Mode = install.DryRun
		case f.diff:
			f.Mode = install.Preview
		}
		defer r.journal.clear()
		return r.hinted(do(cmd.Context(), r))
	}
}

// path is where a file of the output directory is, as ccoctl logs it: as the directory was given.
func (f *flags) path(name string) string {
	return filepath.Join(f.Dir, filepath.FromSlash(name))
}

// keyStore is the store that --store names.
func (r *run) keyStore() install.KeyStore {
	store, err := cli.ParseStore(r.Store)
	k := install.KeyStore{By: r.By, InDir: store.Dir != "", Open: r.OpenStore, Create: r.CreateStore, Check: func() error { return err }}
	if err == nil { // what cannot be parsed may have a password in it
		k.Name = r.Store
	}
	return k
}

// readIssuerFlags reads the flags for how a new issuer is published and where it is looked for.
func (f *flags) readIssuerFlags() error {
	policy := view.NewPolicy(false)
	policy.RelyingParties = []string{"aws"}
	policy, err := f.policy.Apply(policy)
	if err == nil {
		err = policy.Check(f.Dev)
	}
	if err != nil {
		return cli.Usage(err)
	}
	if err := cli.CheckConnect(f.connect); err != nil {
		return err
	}
	f.Policy, f.Site.Connect = policy, f.connect
	f.Site.RootCAs, err = cli.ReadRoots(f.caFile)
	return err
}

// report prints what a run reports, and after a warning what to do about it. It is safe for concurrent use.
func (r *run) report(e install.Event) {
	advice := ""
	switch e.Kind {
	case install.Line:
		r.journal.printf("%s", e.Text)
		return
	case install.Wait:
		r.journal.wait(e)
		return
	case install.Progress:
		r.journal.show("%s", e.Text)
		return
	case install.KeyIsNext:
		advice = " (" + r.Line(cli.Command{"key", "promote", string(e.KeySet), string(e.Key)}) + ")"
	case install.UnknownKey:
		advice = "; " + r.Line(cli.Command{"key", "revoke", string(e.KeySet), string(e.Key), "--why", "REASON"}) + " ends that"
	case install.UnreadKeySet:
		advice = "; keypost issuer list says why"
	}
	r.journal.clear()
	r.Warn("%s%s", e.Text, advice)
}

// differsError ends a run of --diff that found something to change, or something beyond what is wanted.
type differsError struct{ actions, extra int }

func (e *differsError) Error() string {
	var found []string
	if e.actions > 0 {
		found = append(found, text.Count(e.actions, "thing differs", "things differ"))
	}
	if e.extra > 0 {
		found = append(found, text.Count(e.extra, "thing is there beyond what is wanted", "things are there beyond what is wanted"))
	}
	return strings.Join(found, ", ") + "; nothing was changed"
}

// ExitCode is for [cli.Factory.Run].
func (e *differsError) ExitCode() int { return cli.ExitDiffer }

// ended prints what a call of package install has returned with --diff: a preview, and an error if there is a
// difference. It reports whether nothing else is to be printed.
func (r *run) ended(v *plan.Preview, err error) (bool, error) {
	r.journal.clear()
	if v == nil || err != nil {
		return err != nil, err
	}
	if err := v.Write(r.Out); err != nil || v.Empty() {
		return true, err
	}
	return true, &differsError{len(v.Changes), len(v.Extra)}
}
