// Package auditcmd has keypost audit: which keys of an issuer were trusted at a time.
package auditcmd

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore/audit"
	"github.com/keypost/keypost/keystore/history"
)

type auditOptions struct {
	*cli.Factory
	at, from string
}

// NewCmdAudit returns audit.
func NewCmdAudit(f *cli.Factory) *cobra.Command {
	o := &auditOptions{Factory: f}
	cmd := f.Command("audit ISSUER", "Show which keys were trusted when, and whether history is whole", cli.Exactly(1), o.run)
	cmd.Long = "Show which keys relying parties trusted at a time: those that the key set listed then, by its own dates and by those\n" +
		"of its gone keys, and those that had just left and that caches may still have held. -o json has the public keys too,\n" +
		"while the key set has them; a key that is gone has left its fingerprint.\n\n" +
		"Each generation names the one before by a digest of its content and its line of history. An edit by hand, a line that\n" +
		"was changed, dropped or put in, or a version that was made from another one breaks that chain, and the exit code is 1.\n" +
		"Where nothing shows whether it is whole (no digests, as before keypost recorded them; members that only a newer\n" +
		"keypost knows), the answer says so, and the exit code is 0. It is no proof: whoever may write the store can write other dates, and a chain that fits them. What the store itself logs of\n" +
		"its writers is the record. A digest that was kept elsewhere (keypostd logs one with each publication) shows with\n" +
		"--descends-from whether this key set is a later version of that one."
	cmd.Flags().StringVar(&o.at, "at", "", "the `TIME`, as 2026-03-01T12:00:00Z or 2026-03-01 (then 00:00 UTC); default: now")
	cmd.Flags().StringVar(&o.from, "descends-from", "", "`GENERATION:DIGEST` of an earlier version, which this one has to descend from")
	return cmd
}

func (o *auditOptions) run(ctx context.Context, args []string) error {
	at, err := timeOf(o.at, time.Now())
	if err != nil {
		return err
	}
	head, err := headOf(o.from)
	if err != nil {
		return err
	}
	s, err := o.Find(ctx, args[0])
	if err != nil {
		return err
	}
	r := audit.Of(s, at)
	if head != (history.Head{}) {
		r.Expect(s, head)
	}
	if err := o.Print(r, func(w *tabwriter.Writer) { o.table(w, r) }); err != nil {
		return err
	}
	if r.Chain.State == audit.Broken {
		return cli.WithHint(errors.New("the history of the key set is not whole"), "compare it with what the store itself keeps: git log, versions of the bucket, the audit log of the API server")
	}
	return nil
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
		return at, cli.Usagef("--at %s is no time such as 2026-03-01T12:00:00Z or 2026-03-01", typed)
	case at.After(now):
		return at, cli.Usagef("--at %s has not come yet", typed)
	}
	return at, nil
}

// headOf reads --descends-from.
func headOf(typed string) (h history.Head, err error) {
	if typed == "" {
		return h, nil
	}
	generation, digest, _ := strings.Cut(typed, ":")
	h.Generation, err = strconv.ParseInt(generation, 10, 64)
	h.Digest = history.Digest(digest)
	if err != nil || h.Generation < 1 || digest == "" {
		return h, cli.Usagef("--descends-from %s is no GENERATION:DIGEST, as keypost audit and the log of keypostd have them", typed)
	}
	return h, nil
}

func (o *auditOptions) table(w *tabwriter.Writer, r audit.Report) {
	cli.Row(w, "name:", r.Name)
	for _, u := range r.Issuers {
		cli.Row(w, "issuer:", u)
	}
	at := cli.Stamp(r.At)
	if len(o.at) == len(time.DateOnly) {
		at += " (a day without a time begins at 00:00 UTC)"
	}
	cli.Row(w, "trusted at:", at)
	cli.Row(w)
	cli.Row(w, "KID", "FINGERPRINT (SHA-256)", "STATE", "LISTED FROM", "UNTIL")
	for _, k := range r.Keys {
		from, until := "unknown", "now"
		if !k.PublishedAt.IsZero() {
			from = cli.Stamp(k.PublishedAt)
		}
		if !k.LeftAt.IsZero() {
			until = cli.Stamp(k.LeftAt) + " (" + k.Left + "; caches until " + cli.Stamp(k.CachedUntil) + ")"
		}
		state := cmp.Or(string(k.State), "unknown")
		if !k.Listed {
			state = "cached"
		}
		cli.Row(w, k.Kid, cmp.Or(string(k.Fingerprint), "unknown"), state, from, until)
	}
	switch {
	case r.TooEarly() && !r.MadeAt.IsZero():
		cli.Row(w, "none: the key set did not exist yet; it was made at "+cli.Stamp(r.MadeAt))
	case r.TooEarly():
		cli.Row(w, "none: the key set has nothing from then; its oldest date is "+cli.Stamp(r.OldestAt))
	case len(r.Keys) == 0:
		cli.Row(w, "none")
	case r.Chain.State != audit.Whole:
		cli.Row(w)
		cli.Row(w, "The states are by the dates of the keys, which nothing shows to be as they were written: no line of history counts.")
	}
	cli.Row(w)
	view.ChainRows(w, r.Generation, r.Chain)
}
