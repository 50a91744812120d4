// Package auditcmd has keypost audit: which keys of an issuer were trusted at a time.
package auditcmd

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore/audit"
)

type auditOptions struct {
	*cli.Factory
	at string
}

// NewCmdAudit returns audit.
func NewCmdAudit(f *cli.Factory) *cobra.Command {
	o := &auditOptions{Factory: f}
	cmd := f.Command("audit ISSUER", "Show which keys were trusted at a time, and who changed what until then", cobra.ExactArgs(1), o.run)
	cmd.Long = "Show which keys relying parties trusted at a time: those that the key set listed then, by its own dates and by those\n" +
		"of its gone keys, and those that had just left and that caches may still have held. -o json has the public keys too,\n" +
		"while the key set has them; a key that is gone has left its fingerprint. Below them: the changes until that time, of the\n" +
		"latest 50.\n\n" +
		"This is what the key set says. Anyone who may write the store can write other dates and other names: what the store\n" +
		"itself logs of its writers is the record."
	cmd.Flags().StringVar(&o.at, "at", "", "the `TIME`, as 2026-03-01T12:00:00Z or 2026-03-01 (then 00:00 UTC); default: now")
	return cmd
}

func (o *auditOptions) run(ctx context.Context, args []string) error {
	at, err := timeOf(o.at, time.Now())
	if err != nil {
		return err
	}
	s, err := o.Find(ctx, args[0])
	if err != nil {
		return err
	}
	r := audit.Of(s, at)
	return o.Print(r, func(w *terminal.Table) { o.table(w, r) })
}

// timeOf reads --at.
func timeOf(typed string, now time.Time) (time.Time, error) {
	if typed == "" {
		return now.UTC().Truncate(time.Second), nil
	}
	at, err := time.Parse(time.RFC3339, typed)
	if err != nil {
		at, err = time.Parse(time.DateOnly, typed)
	}
	switch {
	case err != nil:
		return at, cli.Usagef("--at %s is not a time such as 2026-03-01T12:00:00Z or 2026-03-01", typed)
	case at.After(now):
		return at, cli.Usagef("--at %s has not come yet", typed)
	}
	return at, nil
}

func (o *auditOptions) table(w *terminal.Table, r audit.Report) {
	w.Row("name:", r.Name)
	for _, u := range r.Issuers {
		w.Row("issuer:", u)
	}
	at := cli.Stamp(r.At)
	if len(o.at) == len(time.DateOnly) {
		at += " (a day without a time begins at 00:00 UTC)"
	}
	w.Row("trusted at:", at)
	w.Row()
	w.Row("KID", "FINGERPRINT (SHA-256)", "STATE", "LISTED FROM", "UNTIL")
	for _, k := range r.Keys {
		from, until := "unknown", "now"
		if !k.PublishedAt.IsZero() {
			from = cli.Stamp(k.PublishedAt)
		}
		if !k.LeftAt.IsZero() {
			until = cli.Stamp(k.LeftAt) + " (" + k.Left + "; caches until " + cli.Stamp(k.CachedUntil) + ")"
		}
		state := "listed"
		if !k.Listed {
			state = "cached"
		}
		w.Row(k.Kid, cmp.Or(string(k.Fingerprint), "unknown"), state, from, until)
	}
	if len(r.Keys) == 0 {
		w.Row("none that the key set knows of")
	}
	if len(r.Changes) > 0 {
		w.Row()
		view.HistoryRows(w, r.Changes)
	}
}
