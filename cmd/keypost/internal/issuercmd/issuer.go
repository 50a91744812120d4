// Package issuercmd has the commands of keypost issuer: they add, list, show, change and withdraw key sets, and accept
// one that keypostd rejects.
package issuercmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/internal/text"
)

// NewCmdIssuer returns the group of commands.
func NewCmdIssuer(f *cli.Factory) *cobra.Command {
	add, list, show, remove := newAdd(f), newList(f), newShow(f), newRemove(f)
	add.SuggestFor, show.SuggestFor, remove.SuggestFor = []string{"create", "new"}, []string{"get", "describe"}, []string{"delete", "rm", "withdraw"}
	list.Aliases = []string{"ls"}
	g := cli.Group("issuer", "Add, change, show and remove issuers", add, newSet(f), list, show, newObserve(f), newAccept(f), remove)
	g.Aliases = []string{"issuers"}
	return g
}

func newShow(f *cli.Factory) *cobra.Command {
	cmd := f.Command("show ISSUER", "Show an issuer's keys, policy and history", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		s, err := f.Find(ctx, args[0])
		if err != nil {
			return err
		}
		v := view.Of(s, time.Now())
		var known bool
		if v.Uploads, known, err = observe.UploadsOf(ctx, f, s); err != nil {
			return err
		}
		if !known {
			f.Notice("what relying parties hold of this issuer's keys (%s) is recorded with the observations: give --observations", text.Count(len(s.Policy().Uploads()), "copy", "copies"))
		}
		return f.Print(v, v.Table)
	})
	return cmd
}
