package keycmd

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

type addOptions struct {
	*cli.Factory
	keys  keysource.Flags
	force bool
	why   string
}

func newAdd(f *cli.Factory) *cobra.Command {
	o := &addOptions{Factory: f}
	cmd := f.Command("add ISSUER KEYS", "Publish a further key, as next: it must not sign yet", cobra.ExactArgs(1), o.run)
	cmd.Long = "KEYS is --public-key-file FILE…, --jwks FILE|URL, or --kubeconfig FILE [--context NAME]."
	fs := cmd.Flags()
	o.keys.Register(fs)
	fs.BoolVar(&o.force, "force", false, "add it although another key set has revoked it, a declared relying party refuses its tokens, or the file is a certificate (needs --why)")
	fs.StringVar(&o.why, "why", "", "the reason; it is recorded")
	return cmd
}

func (o *addOptions) run(ctx context.Context, args []string) error {
	if err := o.keys.Check(); err != nil {
		return err
	}
	o.keys.Certificates = o.force
	m, err := o.keys.Read(ctx, o.Factory)
	if err != nil {
		return err
	}
	st, err := o.OpenToWrite(ctx)
	if err != nil {
		return err
	}
	s, err := catalog.Find(ctx, st, args[0])
	if err != nil {
		return err
	}
	now := time.Now()
	fresh := unpublished(o.Factory, s, m, now)
	if len(fresh) > 0 {
		if err := o.CheckTaken(s.Policy(), o.force, fresh...); err != nil {
			return err
		}
		if err := (cli.Others{Factory: o.Factory, Store: st, Force: o.force}).Check(ctx, s.Name(), fresh...); err != nil {
			return err
		}
		s, err = keystore.Update(ctx, st, s.Name(), func(s keystore.KeySet) (keystore.KeySet, error) {
			c := o.Change(o.why, o.force)
			for _, k := range fresh {
				var err error
				if s, err = s.Add(c, k); err != nil {
					return s, err
				}
			}
			return s, nil
		})
	}
	if err != nil {
		return err
	}
	now = time.Now()
	for _, k := range fresh {
		listed, _ := s.Key(k.ID())
		opens := s.Gates().EarliestPromotion(listed, keystore.Observed{Since: now})
		o.Notice("key %s may be promoted at %s at the earliest, if it is observed everywhere from now on", k.ID(), cli.Stamp(opens))
	}
	if len(fresh) > 0 {
		o.SayCopies(s)
	}
	return printKeys(o.Factory, s, now)
}

// unpublished leaves out what is published already, so that a command can be repeated, and of a list what is gone: a
// cluster knows an old key for up to a year after relying parties stopped trusting it.
func unpublished(f *cli.Factory, s keystore.KeySet, m keysource.Material, now time.Time) []keystore.VerificationKey {
	var fresh []keystore.VerificationKey
	for _, k := range m.Keys {
		have, published := s.Key(k.ID())
		gone := slices.ContainsFunc(s.Gone(), func(g keystore.Gone) bool { return g.ID == k.ID() })
		switch {
		case published && have.Equal(k):
			f.Notice("key %s is published already (%s)", k.ID(), view.StateText(s, have, now))
		case gone && m.Listed:
			f.Notice("key %s is gone and stays so", k.ID())
		default:
			fresh = append(fresh, k)
		}
	}
	return fresh
}
