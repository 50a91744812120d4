// Package keycmd has the commands of keypost key: they generate signing keys and move verification keys through their
// states.
package keycmd

import (
	"context"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

// NewCmdKey returns the group of commands.
func NewCmdKey(f *cli.Factory) *cobra.Command {
	list := f.Command("list ISSUER", "List an issuer's keys", cli.Exactly(1), func(ctx context.Context, args []string) error {
		s, err := f.Find(ctx, args[0])
		if err != nil {
			return err
		}
		return printKeys(f, s, time.Now())
	})
	list.Aliases = []string{"ls"}
	remove := newRemove(f)
	remove.SuggestFor = []string{"delete", "rm"}
	g := cli.Group("key", "Generate keys, and move them through their states",
		newGenerate(f), list, newAdd(f), newPromote(f), newRetire(f), remove, newRevoke(f))
	g.Aliases = []string{"keys"}
	return g
}

// keyChange is a stored change of one key.
type keyChange struct {
	before, after keystore.KeySet
	id            keystore.KeyID
}

// change applies a transition to the key that the arguments ISSUER KID mean. Transition may be called several
// times, as the key set may be changed by others at the same time.
func change(ctx context.Context, f *cli.Factory, args []string, transition func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error)) (keyChange, error) {
	var c keyChange
	var err error
	c.after, err = f.Update(ctx, args[0], func(s keystore.KeySet) (keystore.KeySet, error) {
		k, err := catalog.Key(s, args[1])
		if err != nil {
			return s, err
		}
		c.before, c.id = s, k.ID()
		return transition(s, k.ID())
	})
	return c, err
}

func printKeys(f *cli.Factory, s keystore.KeySet, now time.Time) error {
	v := view.Of(s, now)
	return f.Print(map[string]any{"name": v.Name, "generation": v.Generation, "keys": v.Keys}, func(w *tabwriter.Writer) { view.KeyRows(w, v.Keys) })
}
