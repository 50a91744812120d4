package storecmd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/issuer/export"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/lastgood"
)

// NewCmdExport returns export.
func NewCmdExport(f *cli.Factory) *cobra.Command {
	cmd := f.Command("export DIR [ISSUER…]", "Write the served documents as files", cobra.MinimumNArgs(1), func(ctx context.Context, args []string) error {
		return exportRun(ctx, f, args[0], args[1:])
	})
	cmd.Long = "Write what keypostd serves as files HOST/PATH/.well-known/openid-configuration, keys.json and openid/v1/jwks below\n" +
		"DIR, for a static server or a bucket. Nothing in DIR is removed, and no key of an earlier export is dropped unless\n" +
		"the key set says that it is gone. Of two key sets with one issuer URL neither is written."
	cmd.Example = "  keypost export /srv/www --store file:///srv/keysets"
	return cmd
}

// exportRun exports the issuers, all if there are none.
func exportRun(ctx context.Context, f *cli.Factory, dir string, issuers []string) error {
	st, err := f.OpenStore(ctx)
	if err != nil {
		return err
	}
	sets, failed, err := exportSets(ctx, f, st, issuers)
	if err != nil {
		return err
	}
	root, err := openExport(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	files := []export.File{}
	for _, s := range sets {
		if s.Withdrawn() {
			f.Notice("key set %q is withdrawn; what an earlier export left of it is not removed", s.Name())
			continue
		}
		written, err := export.Write(root, s)
		if err != nil {
			failed = append(failed, fmt.Errorf("export key set %q: %w", s.Name(), exportHint(err, s.Name())))
			continue
		}
		files = append(files, written...)
	}
	if err := f.Print(map[string]any{"files": files}, func(w *terminal.Table) { exportTable(w, files) }); err != nil {
		return err
	}
	return errors.Join(failed...)
}

// exportSets returns the key sets to export, and what is wrong with those that are left out. The whole store is read also
// for one key set, since another one may have its issuer URL.
func exportSets(ctx context.Context, f *cli.Factory, st *keystore.Store, issuers []string) (sets []keystore.KeySet, failed []error, err error) {
	c, err := f.ReadAll(ctx, st)
	if err != nil {
		return nil, nil, err
	}
	wanted := c.Sets
	if len(issuers) == 0 {
		for _, err := range c.Unread {
			failed = append(failed, err)
		}
	} else {
		wanted = nil
	}
	for _, i := range issuers {
		s, err := catalog.Find(ctx, st, i)
		if err != nil {
			return nil, nil, err
		}
		wanted = append(wanted, s)
	}
	rejected := c.Rejected()
	for _, s := range wanted {
		if r := rejected[s.Name()]; r != nil {
			failed = append(failed, rejectedError(s.Name(), r))
			continue
		}
		sets = append(sets, s)
	}
	return sets, failed, nil
}

// rejectedError returns the error for a key set that keypostd would not serve from this store.
func rejectedError(n keystore.Name, r *lastgood.Rejection) error {
	err := fmt.Errorf("export key set %q: %s, so it is not exported (%s)", n, r.Message, r.Reason)
	if r.Is(lastgood.ReasonURLConflict) {
		return cli.WithHint(err, "find out which of the two is the issuer's, and withdraw the other: take its document out of the store, or %s",
			cli.Command{"issuer", "remove", "NAME", "--confirm-url", "URL", "--why", "REASON"})
	}
	return err
}

func exportTable(w *terminal.Table, files []export.File) {
	for _, f := range files {
		state := "unchanged"
		if f.Written {
			state = "written"
		}
		w.Row(f.Name, state)
	}
}

// openExport opens DIR so that nothing below it, such as a link that someone put there, leads out of it.
func openExport(dir string) (*os.Root, error) {
	if err := cli.MakeDir("export to "+dir, dir, 0o755); err != nil { // public documents
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("export to %s: %w", dir, cli.Reason(err))
	}
	return root, nil
}

// exportHint adds what to do about a file that is in the way.
func exportHint(err error, n keystore.Name) error {
	if foreign, ok := errors.AsType[*export.ForeignError](err); ok {
		return cli.WithHint(foreign, "look at it and move it away")
	}
	if dropped, ok := errors.AsType[*export.DroppedError](err); ok {
		return cli.WithHint(dropped, "move the file away, or decide about it: %s", cli.Command{"issuer", "accept", string(n), "--why", "REASON"})
	}
	return err
}
