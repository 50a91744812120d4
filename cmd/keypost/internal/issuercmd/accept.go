package issuercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/cmd/keypost/internal/terminal"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

type acceptOptions struct {
	*cli.Factory
	why, fromURL, admin string
	served              int64
	verdict             catalog.Verdict
}

func newAccept(f *cli.Factory) *cobra.Command {
	o := &acceptOptions{Factory: f}
	cmd := f.Command("accept NAME --why REASON [--keep KID…] [--gone KID…] [--revoked KID…]", "Settle a key set whose stored version keypostd rejects", cobra.ExactArgs(1), o.run)
	cmd.Long = "Compare a stored key set with what is publicly served, and decide each key that only one of them has: --keep\n" +
		"publishes it, as active; --gone takes it out for good, and --revoked out of every other key set too. With --admin a\n" +
		"key that keypostd knows as revoked stays that. For a restored backup, a reverted commit, a pruned file.\n" +
		"A generation so high that nothing can follow it is lowered."
	fs := cmd.Flags()
	fs.StringVar(&o.why, "why", "", "the reason; it is recorded")
	fs.StringVar(&o.fromURL, "from-url", "", "https URL of the issuer or JWKS that is served (default the key set's issuer URL)")
	fs.Int64Var(&o.served, "served-generation", 0, "the generation that keypostd serves")
	fs.StringVar(&o.admin, "admin", "", "admin listener of the running keypostd, to ask for that generation")
	cli.Choices(fs, "admin", "http://127.0.0.1:9090")
	cmd.MarkFlagsMutuallyExclusive("served-generation", "admin")
	fs.StringArrayVar(&o.verdict.Keep, "keep", nil, "key to publish (repeatable)")
	fs.StringArrayVar(&o.verdict.Gone, "gone", nil, "key that is gone for good (repeatable)")
	fs.StringArrayVar(&o.verdict.Revoked, "revoked", nil, "key that is gone for good, and that no other key set may have: somebody else may hold its private half (repeatable)")
	return cmd
}

// disputeView is a dispute as it is printed.
type disputeView struct {
	Kid   keystore.KeyID `json:"kid"`
	Where string         `json:"where"`
}

func (o *acceptOptions) run(ctx context.Context, args []string) error {
	f := o.Factory
	if o.served < 0 || o.served > keystore.MaxGeneration {
		return cli.Usagef("--served-generation %d is not a generation", o.served)
	}
	st, err := f.OpenToWrite(ctx)
	if err != nil {
		return err
	}
	s, err := catalog.Load(ctx, st, keystore.Name(args[0]))
	if err != nil {
		return cli.WithHint(err, "accept decides about a document that can be read; put the last good one back first (from Git or a backup)")
	}
	served, gone, err := o.askServed(ctx, s)
	if err != nil {
		return err
	}
	var disputes []catalog.Dispute
	if o.admin != "" && o.fromURL == "" && served == 0 {
		f.Notice("keypostd serves no version of %s, so there is nothing to compare it with", s.Name())
	} else if disputes, err = o.disputes(ctx, s, gone); err != nil {
		return err
	}
	decisions, err := catalog.Decide(disputes, o.verdict)
	if err != nil {
		return o.undecided(s.Name(), err)
	}
	o.warnKept(disputes, decisions)
	lost := catalog.LostLines(s, gone)
	was := s.Generation()
	s, err = catalog.Accept(ctx, st, f.Change(o.why, false), catalog.Acceptance{Stored: s, Served: served, Decisions: append(decisions, lost...)})
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		f.Notice("%s put back that the stored version had lost", text.Count(len(lost), "line in gone is", "lines in gone are"))
	}
	if s.Generation() < was {
		f.Notice("the generation was %d, which nothing could follow; it is lowered to %d", was, s.Generation())
	}
	known, result := o.admin != "" || o.served != 0, fmt.Sprintf("generation %d", s.Generation())
	if !known {
		result += ", stored; not known whether any keypostd takes it"
	}
	if err := view.PrintChanged(f, s, "accepted "+string(s.Name()), result); err != nil || known {
		return err
	}
	f.Notice("it is not known which generation keypostd serves, and it may reject this one (same_generation, older_generation, generation_jump)")
	accept := cli.Command{"issuer", "accept", string(s.Name()), "--why", o.why}
	f.Steps(string(s.Name()), []string{
		"accept again, and ask keypostd: " + f.Line(append(slices.Clone(accept), "--admin", "URL")),
		"or, where you know what it serves: " + f.Line(append(accept, "--served-generation", "N")),
	}, nil)
	return nil
}

// unreported is what to know where only the public documents are compared, which do not have the lines in gone.
const unreported = "nothing shows which keys were revoked since; ask keypostd with --admin URL"

// warnKept warns of kept keys that may have been revoked.
func (o *acceptOptions) warnKept(disputes []catalog.Dispute, decisions []keystore.Decision) {
	if o.admin != "" {
		return
	}
	for _, d := range decisions {
		if d.Keep && slices.ContainsFunc(disputes, func(x catalog.Dispute) bool { return x.Key.ID() == d.Key.ID() && x.Stored() }) {
			o.Warn("key %s is kept, and %s. One that knows it as revoked rejects this version, and serves the key after a restart", d.Key.ID(), unreported)
		}
	}
}

// askServed returns the generation that keypostd serves, and the lines in gone of that version.
func (o *acceptOptions) askServed(ctx context.Context, s keystore.KeySet) (int64, []keystore.Gone, error) {
	if o.admin == "" {
		return o.served, nil, nil
	}
	report, err := service.AskAdmin(ctx, o.admin)
	if err != nil {
		return 0, nil, err
	}
	i := slices.IndexFunc(report.Issuers, func(is issuer.Status) bool { return is.Name == s.Name() })
	if i < 0 {
		return 0, nil, nil // it serves none
	}
	var gone []keystore.Gone
	for _, g := range report.Issuers[i].Gone {
		gone = append(gone, keystore.Gone{ID: g.Kid, Fingerprint: g.Fingerprint, Why: g.Why})
	}
	return report.Issuers[i].Generation, gone, nil
}

// disputes compares a key set with what is served; gone are the lines in gone of that version.
func (o *acceptOptions) disputes(ctx context.Context, s keystore.KeySet, gone []keystore.Gone) ([]catalog.Dispute, error) {
	from := cmp.Or(o.fromURL, s.Issuers()[0].String())
	published, err := keysource.FetchJWKS(ctx, from)
	if err != nil && from == o.fromURL {
		// Under one of keypostd's hostAliases the discovery document names the issuer's own host, which may lead elsewhere.
		if here, err2 := keysource.FetchJWKS(ctx, from+issuer.JWKSPath); err2 == nil {
			o.Notice("compared with the keys at %s", here.URL)
			published, err = here, nil
		}
	}
	if err != nil {
		return nil, cli.WithHint(err, "name the place where the key set is served: --from-url URL; for a private CA set SSL_CERT_FILE")
	}
	return catalog.Disputes(s, published.Keys, gone), nil
}

// undecided words an error of catalog.Decide, and lists the keys that are open.
func (o *acceptOptions) undecided(n keystore.Name, err error) error {
	f := o.Factory
	e, is := errors.AsType[*catalog.UndecidedError](err)
	if !is {
		return err
	}
	var open []disputeView
	var keep, gone []string
	stored := false // whether a key is in dispute that may have been revoked
	for _, d := range e.Open {
		open = append(open, disputeView{d.Key.ID(), d.Side})
		stored = stored || d.Stored()
		if d.Gone {
			gone = append(gone, cli.Quoted("--gone", string(d.Key.ID())))
		} else {
			keep = append(keep, cli.Quoted("--keep", string(d.Key.ID())))
		}
	}
	if err := f.Print(map[string]any{"undecided": open}, func(w *terminal.Table) {
		w.Row("UNDECIDED KID", "WHERE")
		for _, d := range open {
			w.Row(d.Kid, d.Where)
		}
	}); err != nil {
		return err
	}
	var steps []string
	if len(gone) > 0 {
		steps = append(steps, "add what was revoked or removed, which never returns: "+strings.Join(gone, " "))
	}
	if len(keep) > 0 {
		steps = append(steps, "for each of these, say that the cluster may sign with it: "+strings.Join(keep, " "),
			"or, if it never comes back: --gone KID; if somebody else may hold its private half: --revoked KID")
	}
	f.Steps(string(n), steps, nil)
	if stored && o.admin == "" {
		return cli.WithHint(err, "%s", unreported)
	}
	return err
}
