// Package storecmd has the commands that copy key sets as documents or files: keypost store and keypost export.
package storecmd

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
	"github.com/keypost/keypost/keystore/replicate"
)

// NewCmdStore returns the group of commands.
func NewCmdStore(f *cli.Factory) *cobra.Command {
	return cli.Group("store", "Move and restore stores", newCopy(f), newRestore(f))
}

type copyOptions struct {
	*cli.Factory
	dryRun bool
}

func newCopy(f *cli.Factory) *cobra.Command {
	o := &copyOptions{Factory: f}
	cmd := f.Command("copy SRC DST", "Copy every key set from one store into another", cobra.ExactArgs(2), o.run)
	cmd.Long = "Copy every key set from one store into another; both are URLs as for --store. Nothing is removed, and nothing is\n" +
		"replaced by an older version, by one that lost a key or an issuer URL, or by one with an issuer URL of another key\n" +
		"set: those are refused, and the exit code is 1. Run it again after an interruption; what is there stays as it is."
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "print what would be copied and refused; write nothing")
	return cmd
}

func (o *copyOptions) run(ctx context.Context, args []string) error {
	source, err := cli.ParseStoreURL(args[0], "use")
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	from, err := cli.Opened(source.Backend(ctx))
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	to, err := o.destination(ctx, args[1])
	if err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	p := o.Live().Progress("copying", "documents read")
	outcomes, stopped := replicate.Copy(ctx, cli.Counting{Backend: from.Backend(), Listed: p.Of, Read: p.Done}, cli.Counting{Backend: to.Backend(), Listed: p.Of, Read: p.Done}, o.dryRun)
	p.End()
	if outcomes == nil {
		return fmt.Errorf("copy %s to %s: %w", args[0], args[1], stopped)
	}
	if err := o.Print(map[string]any{"dryRun": o.dryRun, "keySets": outcomes}, func(w *terminal.Table) { outcomeTable(w, outcomes, o.dryRun) }); err != nil {
		return err
	}
	if stopped != nil {
		return cli.WithHint(fmt.Errorf("the copying was interrupted: %w", stopped), "run the same command again")
	}
	return copyError(outcomes, o.dryRun, args[1])
}

// destination opens the store that is copied to.
func (o *copyOptions) destination(ctx context.Context, raw string) (*keystore.Store, error) {
	u, err := cli.ParseStoreURL(raw, "use")
	if err == nil {
		err = cli.CheckWritable(u)
	}
	switch {
	case err != nil:
		return nil, err
	case o.dryRun:
		return cli.Opened(u.Backend(ctx))
	}
	return cli.Opened(u.Create(ctx))
}

func outcomeTable(w *terminal.Table, outcomes []replicate.Outcome, dryRun bool) {
	w.Row("NAME", "RESULT", "SRC", "DST", "WHY")
	for _, o := range outcomes {
		why := o.Message
		if o.Reason != "" {
			why = string(o.Reason) + ": " + why
		}
		result := string(o.Verdict)
		if dryRun && o.Verdict == replicate.Copied {
			result = "would copy"
		}
		w.Row(o.Name, result, generation(o.Generation), generation(o.Was), why)
	}
}

// having returns the outcomes with a verdict.
func having(outcomes []replicate.Outcome, v replicate.Verdict) []replicate.Outcome {
	return slices.DeleteFunc(slices.Clone(outcomes), func(o replicate.Outcome) bool { return o.Verdict != v })
}

func generation(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// copyError returns an error for key sets that were not copied to the store dst.
func copyError(outcomes []replicate.Outcome, dryRun bool, dst string) error {
	refused, failed := having(outcomes, replicate.Refused), having(outcomes, replicate.Failed)
	if len(refused)+len(failed) == 0 {
		return nil
	}
	there := map[bool]string{false: "the others are in the destination", true: "nothing was written"}[dryRun]
	err := fmt.Errorf("%d of %d key sets were refused and %d could not be read or written; %s",
		len(refused), len(outcomes)-len(having(outcomes, replicate.Kept)), len(failed), there)
	const conflict = "an issuer URL belongs to one key set: find out which is the issuer's (url_conflict), and take the other out of the source, or withdraw it"
	conflicting := func(o replicate.Outcome) bool { return o.Reason == lastgood.ReasonURLConflict }
	if slices.ContainsFunc(refused, conflicting) {
		err = cli.WithHint(err, conflict)
	} else if len(refused) > 0 {
		err = cli.WithHint(err, "keep what the destination has, or decide about it there: %s", cli.Command{"issuer", "accept", string(refused[0].Name), "--why", "REASON", "--store", dst})
	}
	return err
}
