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

// AddOptions are the flags and arguments of key add.
type AddOptions struct {
	f      *cli.Factory
	issuer string
	keys   keysource.Flags
}

// NewCmdAdd returns key add. It calls runF, if there is one, in place of its work.
func NewCmdAdd(f *cli.Factory, runF func(*AddOptions) error) *cobra.Command {
	o := &AddOptions{f: f}
	cmd := &cobra.Command{
		Use:   "add ISSUER KEYS",
		Short: "Publish a further key, as next: it must not sign yet",
		Long:  "KEYS is --public-key-file FILE…, --jwks FILE|URL, or --kubeconfig FILE [--context NAME].",
		Args:  cli.Exactly(1),
		RunE: f.Do(func(ctx context.Context, args []string) error {
			o.issuer = args[0]
			if runF != nil {
				return runF(o)
			}
			return addRun(ctx, o)
		}),
	}
	o.keys.Register(cmd.Flags())
	return cmd
}

func addRun(ctx context.Context, o *AddOptions) error {
	f := o.f
	if err := o.keys.Check(); err != nil {
		return err
	}
	m, err := o.keys.Read(ctx, f)
	if err != nil {
		return err
	}
	st, err := f.OpenToWrite(ctx)
	if err != nil {
		return err
	}
	s, err := catalog.Find(ctx, st, o.issuer)
	if err != nil {
		return err
	}
	fresh := unpublished(f, s, m)
	if len(fresh) > 0 {
		s, err = keystore.Update(ctx, st, s.Name(), func(s keystore.KeySet) (keystore.KeySet, error) {
			return addAll(s, f.Change("", false), fresh)
		})
	}
	if err != nil {
		return err
	}
	for _, k := range fresh {
		opens, _ := s.EarliestPromotion(k.ID(), time.Now())
		f.Notice("key %s may be promoted at %s at the earliest, if it is observed everywhere from now on", k.ID(), cli.Stamp(opens))
	}
	return printKeys(f, s)
}

// unpublished leaves out what is published already, so that a command can be repeated, and of a list what is gone: a
// cluster knows an old key for up to a year after relying parties stopped trusting it.
func unpublished(f *cli.Factory, s keystore.KeySet, m keysource.Material) []keystore.VerificationKey {
	var fresh []keystore.VerificationKey
	for _, k := range m.Keys {
		have, published := s.Key(k.ID())
		gone := slices.ContainsFunc(s.Gone(), func(g keystore.Gone) bool { return g.ID == k.ID() })
		switch {
		case published && have.Equal(k):
			f.Notice("key %s is published already (%s)", k.ID(), view.StateText(s, have, time.Now()))
		case gone && m.Listed:
			f.Notice("key %s is gone and stays so", k.ID())
		default:
			fresh = append(fresh, k)
		}
	}
	return fresh
}

func addAll(s keystore.KeySet, c keystore.Change, keys []keystore.VerificationKey) (keystore.KeySet, error) {
	var err error
	for _, k := range keys {
		if s, err = s.Add(c, k); err != nil {
			return s, err
		}
	}
	return s, nil
}
