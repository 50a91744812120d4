package issuercmd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

type acceptOptions struct {
	*cli.Factory
	why, admin string
	verdict    catalog.Verdict
}

func newAccept(f *cli.Factory) *cobra.Command {
	o := &acceptOptions{Factory: f}
	cmd := f.Command("accept NAME --why REASON [--keep KID…] [--gone KID…] [--revoked KID…]", "Settle a key set whose stored version keypostd rejects", cobra.ExactArgs(1), o.run)
	cmd.Long = "Compare a stored key set with what is publicly served, and decide each key that only one of them has: --keep\n" +
		"publishes it, as active; --gone takes it out for good, and --revoked out of every other key set too. With --admin a\n" +
		"key that keypostd knows as revoked stays that. For a restored backup, a reverted commit, a pruned file. The new\n" +
		"generation is later than the one that keypostd serves (--admin), and than what keypost watch recorded (--observations).\n" +
		"One so high that nothing can follow it is lowered."
	fs := cmd.Flags()
	fs.StringVar(&o.why, "why", "", "the reason; it is recorded")
	fs.StringVar(&o.admin, "admin", "", "admin listener of the running keypostd, to ask which generation it serves, and what is gone there")
	cli.Choices(fs, "admin", "http://127.0.0.1:9090")
	fs.StringArrayVar(&o.verdict.Keep, "keep", nil, "key to publish (repeatable)")
	fs.StringArrayVar(&o.verdict.Gone, "gone", nil, "key that is gone for good (repeatable)")
	fs.StringArrayVar(&o.verdict.Revoked, "revoked", nil, "key that is gone for good, and that no other key set may have: somebody else may hold its private half (repeatable)")
	return cmd
}

// asServed is what is known of the version that is served.
type asServed struct {
	generation int64 // 0 if none is, or it is not known
	keys       []keystore.VerificationKey
	gone       []keystore.Gone
}

func (o *acceptOptions) run(ctx context.Context, args []string) error {
	f := o.Factory
	st, err := f.OpenToWrite(ctx)
	if err != nil {
		return err
	}
	s, err := catalog.Load(ctx, st, keystore.Name(args[0]))
	if err != nil {
		return cli.WithHint(err, "accept decides about a document that can be read; put the last good one back first (from Git or a backup)")
	}
	there, err := o.ask(ctx, s)
	if err != nil {
		return err
	}
	disputes := catalog.Disputes(s, there.keys, there.gone)
	decided, err := catalog.Decide(disputes, o.verdict)
	if err != nil {
		return o.undecided(s.Name(), err)
	}
	o.warnKept(disputes, decided.Keep)
	lost := catalog.LostLines(s, there.gone)
	decided.Gone = append(decided.Gone, lost...)
	was := s.Generation()
	s, err = catalog.Accept(ctx, st, f.Change(o.why, false), catalog.Acceptance{Stored: s, Served: there.generation, Decided: decided})
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		f.Notice("%s put back that the stored version had lost", text.Count(len(lost), "line in gone is", "lines in gone are"))
	}
	if s.Generation() < was {
		f.Notice("the generation was %d, which nothing could follow; it is lowered to %d", was, s.Generation())
	}
	known, result := there.generation != 0 || o.admin != "", fmt.Sprintf("generation %d", s.Generation())
	if !known {
		result += ", stored; not known whether any keypostd takes it"
	}
	if err := view.PrintChanged(f, s, "accepted "+string(s.Name()), result); err != nil || known {
		return err
	}
	f.Notice("it is not known which generation keypostd serves, and it may reject this one (same_generation, older_generation, generation_jump); accept again, and ask it: %s",
		cli.Command{"issuer", "accept", string(s.Name()), "--why", o.why, "--admin", "URL"})
	return nil
}

// unreported is what to know where only the public documents are compared, which do not have the lines in gone.
const unreported = "nothing shows which keys were revoked since; ask keypostd with --admin URL"

// warnKept warns of kept keys that may have been revoked.
func (o *acceptOptions) warnKept(disputes []catalog.Dispute, kept []keystore.VerificationKey) {
	if o.admin != "" {
		return
	}
	for _, k := range kept {
		if slices.ContainsFunc(disputes, func(x catalog.Dispute) bool { return x.Key.ID() == k.ID() && x.Stored() }) {
			o.Warn("key %s is kept, and %s. One that knows it as revoked rejects this version, and serves the key after a restart", k.ID(), unreported)
		}
	}
}

// ask returns what is served of s, and how far generations have come.
func (o *acceptOptions) ask(ctx context.Context, s keystore.KeySet) (there asServed, err error) {
	if o.admin != "" {
		report, err := service.AskAdmin(ctx, o.admin)
		if err != nil {
			return there, err
		}
		status, _ := report.Of(s.Name())
		there.generation = status.Generation
		for _, g := range status.Gone {
			there.gone = append(there.gone, keystore.Gone{ID: g.Kid, Fingerprint: g.Fingerprint, Why: g.Why})
		}
	}
	if o.admin != "" && there.generation == 0 {
		o.Notice("keypostd serves no version of %s, so there is nothing to compare it with", s.Name())
		for _, k := range s.Keys() {
			there.keys = append(there.keys, k.VerificationKey)
		}
	} else {
		published, err := keysource.FetchJWKS(ctx, s.Issuers()[0].String())
		if err != nil {
			return there, cli.WithHint(err, "run this where %s can be read; for a private CA set SSL_CERT_FILE", s.Issuers()[0])
		}
		there.keys = published.Keys
	}
	records, err := observe.Records(ctx, o.Factory, s)
	for _, r := range records {
		if older := r.Older(s); older != nil {
			there.generation = max(there.generation, older.Recorded)
		}
	}
	return there, err
}

// undecided adds to an error of catalog.Decide what is to be decided of each key that is open.
func (o *acceptOptions) undecided(n keystore.Name, err error) error {
	e, is := errors.AsType[*catalog.UndecidedError](err)
	if !is {
		return err
	}
	var steps []string
	stored := false // whether a key is in dispute that may have been revoked
	for _, d := range e.Open {
		with := func(flag string) string { return cli.Quoted(flag, string(d.Key.ID())) }
		what := with("--keep") + " if the cluster may sign with it; if it never comes back, " + with("--gone") + "; if somebody else may hold its private half, " + with("--revoked")
		if d.Gone {
			what = "it never returns: " + with("--gone")
		}
		steps = append(steps, fmt.Sprintf("key %s, %s: %s", d.Key.ID(), d.Side, what))
		stored = stored || d.Stored()
	}
	o.Steps(string(n), steps, nil)
	if stored && o.admin == "" {
		return cli.WithHint(err, "%s", unreported)
	}
	return err
}
