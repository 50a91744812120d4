package storecmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/internal/regular"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

type restoreOptions struct {
	*cli.Factory
	from, why string
	force     bool
}

func newRestore(f *cli.Factory) *cobra.Command {
	o := &restoreOptions{Factory: f}
	cmd := f.Command("restore NAME --from FILE|ADMIN-URL", "Put the last good version of a key set back", cobra.ExactArgs(1), o.run)
	cmd.Long = "Write the last good version of a key set over a document that is broken, lost or older. --from names a copy of the\n" +
		"document, from a backup, Git or the directory of a mirror, or the admin listener of a keypostd or mirror that has it.\n" +
		"The version gets the next generation. What is gone by either version stays gone. A stored version that is not older\n" +
		"is replaced with --force only, so is one that is broken, and one that was withdrawn never."
	cmd.Example = "  keypost store restore prod-a --from http://127.0.0.1:9090\n" +
		"  keypost store restore prod-a --from backup/prod-a.yaml --force --why 'the document is broken'"
	fs := cmd.Flags()
	fs.StringVar(&o.from, "from", "", "`FILE` with the document, or URL of the admin listener of a keypostd or mirror (http://127.0.0.1:9090)")
	fs.StringVar(&o.why, "why", "", "the reason; it is recorded")
	fs.BoolVar(&o.force, "force", false, "replace a stored version that is not older; needs --why")
	return cmd
}

func (o *restoreOptions) run(ctx context.Context, args []string) error {
	name := keystore.Name(args[0])
	if err := catalog.CheckName(name); err != nil {
		return err
	}
	good, err := o.read(ctx, name)
	if err != nil {
		return err
	}
	st, err := o.OpenToWrite(ctx)
	if err != nil {
		return err
	}
	stored, rev, loaded := st.Load(ctx, name)
	if errors.Is(loaded, keystore.ErrNotFound) {
		if err := o.checkFree(ctx, st, good); err != nil {
			return err
		}
	}
	why := fmt.Sprintf("generation %d was restored from %s", good.Generation(), cli.OneLine(o.from))
	if o.why != "" {
		why = o.why + "; " + why
	}
	next, err := catalog.Restore(o.Change(why, o.force), good, stored, loaded)
	if later, is := errors.AsType[*catalog.NotOlderError](err); is && later.Stored == 0 {
		return cli.WithHint(fmt.Errorf("key set %q: %w", name, err), "mend the document; or lose what it says with --force --why REASON, and revoke again whatever it revoked")
	} else if is {
		return cli.WithHint(fmt.Errorf("key set %q: %w", name, err), "look at both versions (keypost issuer show %s); to replace the stored one nevertheless: --force --why REASON", name)
	}
	if err != nil {
		return fmt.Errorf("key set %q: %w", name, err)
	}
	if _, err := st.Replace(ctx, rev, next); err != nil {
		return fmt.Errorf("restore key set %q: %w", name, err)
	}
	if err := view.PrintChanged(o.Factory, next, "restored "+string(name), fmt.Sprintf("generation %d", next.Generation())); err != nil {
		return err
	}
	o.Notice("a keypostd that serves another version may refuse this one")
	o.Steps(string(name), []string{
		"see whether one does: " + o.Line(cli.Command{"issuer", "list", "--admin", "URL"}),
		"if so, settle it: " + o.Line(cli.Command{"issuer", "accept", string(name), "--admin", "URL", "--why", "REASON"}),
	}, nil)
	return nil
}

// read reads the last good version.
func (o *restoreOptions) read(ctx context.Context, n keystore.Name) (s keystore.KeySet, err error) {
	var doc []byte
	if strings.Contains(o.from, "://") {
		doc, err = service.AskDocument(ctx, o.from, n)
	} else if doc, err = regular.Read(o.from, keystore.MaxDocument); err != nil {
		err = fmt.Errorf("--from %s: %w", o.from, cli.Reason(err))
	}
	if err != nil {
		return s, err
	}
	if s, err = keystore.Parse(n, doc); err != nil {
		return s, fmt.Errorf("--from %s: %w", cli.OneLine(o.from), err)
	}
	return s, nil
}

// checkFree returns an error if another key set has an issuer URL of one that is lost. A document that cannot be read is warned of: else one
// that is broken would keep every other from being restored.
func (o *restoreOptions) checkFree(ctx context.Context, st *keystore.Store, s keystore.KeySet) error {
	all, err := o.ReadAll(ctx, st)
	if err != nil {
		return err
	}
	o.WarnOthers(slices.Sorted(maps.Keys(all.Unread)), nil)
	err = all.CheckFree(keystore.Spec{Name: s.Name(), Issuers: s.Issuers()})
	if catalog.KindOf(err) == catalog.Unread {
		o.Warn("%v", err)
		return nil
	}
	return err
}
