// Package keycmd has the commands of keypost key: they generate signing keys and move verification keys through their
// states.
package keycmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/gate"
	"github.com/keypost/keypost/keystore/outlook"
)

// NewCmdKey returns the group of commands.
func NewCmdKey(f *cli.Factory) *cobra.Command {
	list := f.Command("list ISSUER", "List an issuer's keys, and what each may do next", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		s, err := f.Find(ctx, args[0])
		if err != nil {
			return err
		}
		return listKeys(ctx, f, s)
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

// of returns a transition of the key that kid means, and notes the key set before it. It may be called several times, as others may
// change the key set at the same time.
func (c *keyChange) of(kid string, transition func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error)) func(keystore.KeySet) (keystore.KeySet, error) {
	return func(s keystore.KeySet) (keystore.KeySet, error) {
		k, err := catalog.Key(s, kid)
		if err != nil {
			return s, err
		}
		c.before, c.id = s, k.ID()
		return transition(s, k.ID())
	}
}

func printKeys(f *cli.Factory, s keystore.KeySet, now time.Time) error {
	v := view.Of(s, now)
	return f.Print(map[string]any{"name": v.Name, "generation": v.Generation, "keys": v.Keys}, func(w *terminal.Table) { view.KeyRows(w, v.Keys) })
}

// listed is a key with what it may do next.
type listed struct {
	view.Key
	Age  string    `json:"age"` // since it was published
	Next *nextStep `json:"next,omitempty"`
}

type nextStep struct {
	Step  keystore.RotationStep `json:"step"`
	Opens time.Time             `json:"opens,omitzero"` // when its gate opens by itself
	Gate  gate.Gate             `json:"gate,omitempty"` // the closed gate
	Need  string                `json:"need,omitempty"` // why it is closed
}

// listKeys prints the keys of s, and beside each the step that it takes next.
func listKeys(ctx context.Context, f *cli.Factory, s keystore.KeySet) error {
	c := f.Change("", false)
	v := view.Of(s, c.At)
	rows := []listed{}
	for i, k := range s.Keys() {
		row := listed{Key: v.Keys[i], Age: "<1m"}
		if age := c.At.Sub(k.PublishedAt).Truncate(time.Minute); age > 0 {
			row.Age = keystore.Duration(age).String()
		}
		var seen keystore.Observed
		if k.State == keystore.Next || len(s.Policy().Uploads()) > 0 { // nothing else waits for what is seen
			var err error
			if seen, err = observe.Recorded(ctx, f, s, k); err != nil {
				return err
			}
		}
		if step, closed := outlook.Of(c, s, k, seen); closed != nil {
			row.Next = &nextStep{step, cli.NotBefore(closed.Opens), closed.Gate, closed.Need}
			if closed.Gate == gate.GateCopies && f.Observations == "" {
				row.Next.Need = "whether uploaded copies have what is published was not looked at, as nothing says where observations are (--observations)"
			}
		} else if step != "" {
			row.Next = &nextStep{Step: step}
		}
		rows = append(rows, row)
	}
	return f.Print(map[string]any{"name": v.Name, "generation": v.Generation, "keys": rows}, func(w *terminal.Table) {
		w.Row("KID", "ALG", "STATE", "PUBLISHED", "AGE", "NEXT STEP")
		for _, r := range rows {
			w.Row(r.Kid, r.Alg, r.StateText(), cli.Stamp(r.PublishedAt), r.Age, r.Next)
		}
	})
}

// String returns the step for people.
func (n *nextStep) String() string {
	switch {
	case n == nil:
		return "signs"
	case n.Gate == "":
		return string(n.Step) + " now"
	case !n.Opens.IsZero():
		return string(n.Step) + " at " + cli.Stamp(n.Opens)
	}
	return string(n.Step) + ": " + n.Need
}
