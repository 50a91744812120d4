package rotatecmd

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

type startOptions struct {
	*cli.Factory
	keys   keysource.Flags
	dryRun bool
	why    string
}

func newStart(f *cli.Factory) *cobra.Command {
	o := &startOptions{Factory: f}
	cmd := f.Command("start ISSUER [KEYS]", "Begin to replace the keys that sign by another one, and publish that", cli.Exactly(1), o.run)
	cmd.Long = "KEYS is one key, by --public-key-file FILE, --jwks FILE|URL, or --kubeconfig FILE [--context NAME]; without it, the\n" +
		"key of the key set that is next. The cluster must not sign with it before it is promoted: keypost rotate step says when.\n" +
		"Nothing but the publication happens here. With --dry-run, print when each step could be taken."
	cmd.Example = "  keypost key generate --out next\n" +
		"  keypost rotate start prod-a --public-key-file next/sa.pub --store file:///srv/keysets\n" +
		"  keypost rotate step prod-a --store file:///srv/keysets --observations file:///srv/observations"
	fs := cmd.Flags()
	o.keys.Register(fs)
	f.ObservationsFlag(fs)
	fs.BoolVar(&o.dryRun, "dry-run", false, "change nothing; print the timetable")
	fs.StringVar(&o.why, "why", "", "the reason; it is recorded")
	return cmd
}

func (o *startOptions) run(ctx context.Context, args []string) error {
	if o.keys.Given() {
		if err := o.keys.Check(); err != nil {
			return err
		}
	}
	st, err := o.OpenStore(ctx)
	if err != nil {
		return err
	}
	s, err := catalog.Find(ctx, st, args[0])
	if err != nil {
		return err
	}
	k, err := o.key(ctx, s)
	if err != nil {
		return err
	}
	if err := (cli.Others{Factory: o.Factory, Store: st}).Check(ctx, s.Name(), k); err != nil {
		return err
	}
	begin := func(s keystore.KeySet) (keystore.KeySet, error) { return s.StartRotation(o.Change(o.why, false), k) }
	if o.dryRun {
		s, err = begin(s)
	} else {
		s, err = o.Update(ctx, string(s.Name()), begin)
	}
	if under, is := errors.AsType[*keystore.RotationError](err); is {
		return cli.WithHint(err, "%s, or %s", cli.Command{"rotate", "status", string(under.KeySet)}, cli.Command{"rotate", "rollback", string(under.KeySet), "--why", "REASON"})
	}
	if err != nil {
		return err
	}
	one, err := stateOf(ctx, o.Factory, s)
	if err != nil {
		return err
	}
	if !o.dryRun {
		o.Notice("key %s is published; no signer may use it before it is promoted: %s", k.ID(), cli.Command{"rotate", "step", string(s.Name())})
	}
	return o.Print(one, func(w *tabwriter.Writer) { table(w, []state{one}) })
}

// key returns the key to rotate to.
func (o *startOptions) key(ctx context.Context, s keystore.KeySet) (keystore.VerificationKey, error) {
	var choice []keystore.VerificationKey
	if o.keys.Given() {
		m, err := o.keys.Read(ctx, o.Factory)
		if err != nil {
			return keystore.VerificationKey{}, err
		}
		for _, k := range m.Keys { // a list also has the keys of today and of yesterday
			have, published := s.Key(k.ID())
			_, gone := s.GoneLine(k)
			if old := gone || published && have.State != keystore.Next; !old || !m.Listed {
				choice = append(choice, k)
			}
		}
		if len(choice) != 1 {
			return keystore.VerificationKey{}, fmt.Errorf("start rotation: the source has %d keys that %q does not list yet or lists as next; give one", len(choice), s.Name())
		}
		return choice[0], nil
	}
	for _, k := range s.Keys() {
		if k.State == keystore.Next {
			choice = append(choice, k.VerificationKey)
		}
	}
	if len(choice) != 1 {
		return keystore.VerificationKey{}, cli.WithHint(fmt.Errorf("start rotation: key set %q has %d keys that are next; say which one to rotate to", s.Name(), len(choice)),
			"make one with %s and give it with --public-key-file", cli.Command{"key", "generate", "--out", "DIR"})
	}
	return choice[0], nil
}
