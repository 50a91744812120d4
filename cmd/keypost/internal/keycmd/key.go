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
	list, remove := NewCmdList(f, nil), NewCmdRemove(f, nil)
	list.Aliases, remove.SuggestFor = []string{"ls"}, []string{"delete", "rm"}
	g := cli.Group("key", "Generate keys, and move them through their states",
		NewCmdGenerate(f, nil), list, NewCmdAdd(f, nil), NewCmdPromote(f, nil), NewCmdRetire(f, nil), remove, NewCmdRevoke(f, nil))
	g.Aliases = []string{"keys"}
	return g
}

// keyChange is what a command on one key did.
type keyChange struct {
	was, is keystore.KeySet
	id      keystore.KeyID
}

// change applies a transition to the key that the arguments ISSUER KID mean. It may call transition several times.
func change(ctx context.Context, f *cli.Factory, args []string, transition func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error)) (keyChange, error) {
	var c keyChange
	var err error
	c.is, err = f.Update(ctx, args[0], func(s keystore.KeySet) (keystore.KeySet, error) {
		k, err := catalog.Key(s, args[1])
		if err != nil {
			return s, err
		}
		c.was, c.id = s, k.ID()
		return transition(s, k.ID())
	})
	return c, err
}

func printKeys(f *cli.Factory, s keystore.KeySet) error {
	v := view.Of(s, time.Now())
	return f.Print(map[string]any{"name": v.Name, "generation": v.Generation, "keys": v.Keys}, func(w *tabwriter.Writer) { view.KeyRows(w, v.Keys) })
}
