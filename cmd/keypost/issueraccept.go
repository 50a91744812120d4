package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

type acceptFlags struct {
	why, fromURL, admin, caFile string
	served                      int64
	keep, gone                  []string
}

func (a *app) issuerAccept() *cobra.Command {
	f := &acceptFlags{}
	cmd := &cobra.Command{
		Use:   "accept NAME --why REASON [--keep KID…] [--gone KID…]",
		Short: "Settle a key set whose stored version keypostd rejects",
		Long: "Compare a stored key set with what is publicly served, and decide each key that only one of them has: --keep\n" +
			"publishes it, as active; --gone takes it out for good. For a restored backup, a reverted commit, a pruned file.\n" +
			"A generation so high that nothing can follow it is lowered.",
		Args: exactly(1),
		RunE: a.do(func(ctx context.Context, args []string) error { return a.accept(ctx, keystore.Name(args[0]), f) }),
	}
	fs := cmd.Flags()
	fs.StringVar(&f.why, "why", "", "the reason; it is recorded")
	fs.StringVar(&f.fromURL, "from-url", "", "https URL of the issuer or JWKS that is served (default the key set's issuer URL)")
	fs.StringVar(&f.caFile, "ca-file", "", "PEM file with the CA of that URL, instead of the system's")
	fs.Int64Var(&f.served, "served-generation", 0, "the generation that keypostd serves")
	fs.StringVar(&f.admin, "admin", "", "admin listener of the running keypostd, to ask for that generation")
	fs.StringArrayVar(&f.keep, "keep", nil, "key to publish (repeatable)")
	fs.StringArrayVar(&f.gone, "gone", nil, "key that is gone for good (repeatable)")
	return cmd
}

// disputeView is a dispute as it is printed.
type disputeView struct {
	Kid   keystore.KeyID `json:"kid"`
	Where catalog.Side   `json:"where"`
}

func (a *app) accept(ctx context.Context, name keystore.Name, f *acceptFlags) error {
	if f.why == "" {
		return usagef("issuer accept needs --why REASON; it is recorded")
	}
	if f.served != 0 && f.admin != "" {
		return usagef("give --served-generation or --admin, not both")
	}
	if f.served < 0 || f.served > keystore.MaxGeneration {
		return usagef("--served-generation %d is no generation", f.served)
	}
	st, err := a.openToWrite(ctx)
	if err != nil {
		return err
	}
	s, err := catalog.Load(ctx, st, name)
	if err != nil {
		return withHint(err, "accept decides about a document that can be read; put the last good one back first (from Git or a backup)")
	}
	served, lost, err := f.askServed(ctx, s)
	if err != nil {
		return err
	}
	var disputes []catalog.Dispute
	if f.admin != "" && f.fromURL == "" && served == 0 {
		a.notice("keypostd serves no version of %s, so there is nothing to compare it with", name)
	} else if disputes, err = f.disputes(ctx, s); err != nil {
		return err
	}
	decisions, err := catalog.Decide(disputes, catalog.Verdict{Keep: f.keep, Gone: f.gone})
	if err != nil {
		return a.undecided(err)
	}
	was := s.Generation()
	s, err = catalog.Accept(ctx, st, a.change(f.why, false), catalog.Acceptance{Stored: s, Served: served, Decisions: append(decisions, lost...)})
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		a.notice("%d lines in gone are put back that the stored version had lost", len(lost))
	}
	if s.Generation() < was {
		a.notice("the generation was %d, which nothing could follow; it is lowered to %d", was, s.Generation())
	}
	known := f.admin != "" || f.served != 0
	if !known {
		a.notice("nothing says which generation keypostd serves: it may reject this one (same_generation, older_generation, generation_jump); " +
			"accept again with --admin URL or --served-generation N to settle that")
	}
	return a.printAccepted(s, known)
}

// printAccepted promises nothing about keypostd unless it is known what that serves.
func (a *app) printAccepted(s keystore.KeySet, known bool) error {
	result := fmt.Sprintf("generation %d", s.Generation())
	if !known {
		result += ", stored; not known whether any keypostd takes it"
	}
	v := view.Of(s, time.Now())
	return a.print(v, func(w *tabwriter.Writer) {
		row(w, "accepted "+string(s.Name()), result)
		row(w)
		view.KeyRows(w, v.Keys)
	})
}

// askServed returns the generation that keypostd serves, and the lines in gone that it knows and s has lost. Nobody has
// to decide about those: what is gone stays gone.
func (f *acceptFlags) askServed(ctx context.Context, s keystore.KeySet) (int64, []keystore.Decision, error) {
	if f.admin == "" {
		return f.served, nil, nil
	}
	report, err := askAdmin(ctx, f.admin)
	if err != nil {
		return 0, nil, err
	}
	i := slices.IndexFunc(report.Issuers, func(is issuer.Status) bool { return is.Name == s.Name() })
	if i < 0 {
		return 0, nil, nil // it serves none
	}
	var gone []keystore.Gone
	for _, g := range report.Issuers[i].Gone {
		gone = append(gone, keystore.Gone{ID: g.Kid, Fingerprint: g.Fingerprint})
	}
	return report.Issuers[i].Generation, catalog.LostLines(s, gone), nil
}

// disputes compares a key set with what is served.
func (f *acceptFlags) disputes(ctx context.Context, s keystore.KeySet) ([]catalog.Dispute, error) {
	from := f.fromURL
	if from == "" {
		from = s.Issuers()[0].String()
	}
	published, err := keysource.FetchJWKS(ctx, from, f.caFile)
	if err != nil {
		return nil, withHint(err, "name the place where the key set is served with --from-url URL, and a private CA with --ca-file")
	}
	return catalog.Disputes(s, published.Keys), nil
}

// undecided words an error of catalog.Decide, and lists the keys that are open.
func (a *app) undecided(err error) error {
	if e, is := errors.AsType[*catalog.VerdictError](err); is && e.Err != nil {
		flag := "--keep"
		if e.Gone {
			flag = "--gone"
		}
		return fmt.Errorf("%s: %w", flag, err)
	}
	e, is := errors.AsType[*catalog.UndecidedError](err)
	if !is {
		return err
	}
	var open []disputeView
	var flags []string
	for _, d := range e.Open {
		open = append(open, disputeView{d.Key.ID(), d.Side})
		flags = append(flags, "--keep "+string(d.Key.ID()))
	}
	if err := a.print(map[string]any{"undecided": open}, func(w *tabwriter.Writer) {
		row(w, "UNDECIDED KID", "WHERE")
		for _, d := range open {
			row(w, d.Kid, d.Where)
		}
	}); err != nil {
		return err
	}
	return withHint(err, "say for each of them whether the cluster may sign with it (%s) or it never comes back (--gone KID)", strings.Join(flags, " "))
}
