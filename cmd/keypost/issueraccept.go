package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
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

// dispute is a key that only one side has.
type dispute struct {
	Kid    keystore.KeyID `json:"kid"`
	Where  string         `json:"where"`
	public keystore.VerificationKey
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
	s, err := load(ctx, st, name)
	if err != nil {
		return withHint(err, "accept decides about a document that can be read; put the last good one back first (from Git or a backup)")
	}
	served, lost, err := f.askServed(ctx, s)
	if err != nil {
		return err
	}
	var disputes []dispute
	if f.admin != "" && f.fromURL == "" && served == 0 {
		a.notice("keypostd serves no version of %s, so there is nothing to compare it with", name)
	} else if disputes, err = a.disputes(ctx, s, f); err != nil {
		return err
	}
	decisions, err := a.decide(disputes, f)
	if err != nil {
		return err
	}
	decisions = append(decisions, lost...)
	was := s.Generation()
	// The decisions are about this version; one that came in meanwhile may have other keys.
	s, err = keystore.Update(ctx, st, name, func(now keystore.KeySet) (keystore.KeySet, error) {
		if now.Digest() != s.Digest() {
			return now, fmt.Errorf("accept: key set %q was changed meanwhile; look at it and accept again", name)
		}
		return now.Accept(a.change(f.why, false), served, decisions)
	})
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
	v := viewOf(s, time.Now())
	return a.print(v, func(w *tabwriter.Writer) {
		row(w, "accepted "+string(s.Name()), result)
		row(w)
		keyRows(w, v.Keys)
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
	var lost []keystore.Decision
	for _, g := range report.Issuers[i].Gone {
		if line := (keystore.Gone{ID: g.Kid, Fingerprint: g.Fingerprint}); !s.Buried(line) {
			lost = append(lost, keystore.Decision{Lost: &line})
		}
	}
	return report.Issuers[i].Generation, lost, nil
}

// disputes reads what is served: key IDs and material, since a decision about a key needs both. A key that is served
// and gone in the store is decided already, if the store knows which key it was.
func (a *app) disputes(ctx context.Context, s keystore.KeySet, f *acceptFlags) ([]dispute, error) {
	from := f.fromURL
	if from == "" {
		from = urls(s)[0]
	}
	published, err := fetchJWKS(ctx, from, f.caFile)
	if err != nil {
		return nil, withHint(err, "name the place where the key set is served with --from-url URL, and a private CA with --ca-file")
	}
	var list []dispute
	for _, k := range published.Keys {
		stored, is := s.Key(k.ID())
		switch {
		case is && stored.Fingerprint() != k.Fingerprint():
			list = append(list, dispute{k.ID(), "served; the stored key of that ID is another one", k})
		case !is && !s.Buried(keystore.Gone{ID: k.ID(), Fingerprint: k.Fingerprint()}):
			list = append(list, dispute{k.ID(), "served, not stored", k})
		}
	}
	for _, k := range s.Keys() {
		if !slices.ContainsFunc(published.Keys, func(p keystore.VerificationKey) bool { return p.ID() == k.ID() }) {
			list = append(list, dispute{k.ID(), "stored, not served", k.VerificationKey})
		}
	}
	return list, nil
}

// decide makes a decision of every dispute, or lists those that are open.
func (a *app) decide(disputes []dispute, f *acceptFlags) ([]keystore.Decision, error) {
	keep, err := chosen(disputes, f.keep)
	if err != nil {
		return nil, fmt.Errorf("--keep: %w", err)
	}
	gone, err := chosen(disputes, f.gone)
	if err != nil {
		return nil, fmt.Errorf("--gone: %w", err)
	}
	var decisions []keystore.Decision
	var open []dispute
	for _, d := range disputes {
		switch {
		case keep[d.Kid] && gone[d.Kid]:
			return nil, usagef("key %s is both kept and gone", d.Kid)
		case keep[d.Kid]:
			decisions = append(decisions, keystore.Decision{Key: d.public, Keep: true})
		case gone[d.Kid]:
			decisions = append(decisions, keystore.Decision{Key: d.public})
		default:
			open = append(open, d)
		}
	}
	if len(open) > 0 {
		return nil, a.undecided(open)
	}
	return decisions, nil
}

func chosen(disputes []dispute, typed []string) (map[keystore.KeyID]bool, error) {
	var ids []keystore.KeyID
	for _, d := range disputes {
		ids = append(ids, d.Kid)
	}
	picked := map[keystore.KeyID]bool{}
	for _, t := range typed {
		id, err := match(ids, t)
		if err != nil {
			return nil, fmt.Errorf("of the keys in dispute: %w", err)
		}
		picked[id] = true
	}
	return picked, nil
}

func (a *app) undecided(open []dispute) error {
	err := a.print(map[string]any{"undecided": open}, func(w *tabwriter.Writer) {
		row(w, "UNDECIDED KID", "WHERE")
		for _, d := range open {
			row(w, d.Kid, d.Where)
		}
	})
	if err != nil {
		return err
	}
	var flags []string
	for _, d := range open {
		flags = append(flags, "--keep "+string(d.Kid))
	}
	return withHint(fmt.Errorf("%d keys are undecided, and nothing was changed", len(open)),
		"say for each of them whether the cluster may sign with it (%s) or it never comes back (--gone KID)", strings.Join(flags, " "))
}
