package main

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

func (a *app) issuer() *cobra.Command {
	add, list, show, remove := a.issuerAdd(), a.issuerList(), a.issuerShow(), a.issuerRemove()
	add.SuggestFor, show.SuggestFor, remove.SuggestFor = []string{"create", "new"}, []string{"get", "describe"}, []string{"delete", "rm", "withdraw"}
	list.Aliases = []string{"ls"}
	g := group("issuer", "Add, change, show and remove issuers", add, a.issuerSet(), list, show, a.issuerAccept(), remove)
	g.Aliases = []string{"issuers"}
	return g
}

func (a *app) issuerShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show ISSUER",
		Short: "Show an issuer's keys, policy and history",
		Args:  exactly(1),
		RunE: a.do(func(ctx context.Context, args []string) error {
			st, err := a.openStore(ctx)
			if err != nil {
				return err
			}
			s, err := catalog.Find(ctx, st, args[0])
			if err != nil {
				return err
			}
			v := view.Of(s, time.Now())
			return a.print(v, v.Table)
		}),
	}
}

func (a *app) issuerSet() *cobra.Command {
	var p policyFlags
	cmd := &cobra.Command{
		Use:   "set ISSUER",
		Short: "Change an issuer's policy",
		Long: "Change the lifetimes and relying parties that an issuer's policy declares. A flag that is not given changes nothing.\n" +
			"What is lowered goes on to bind the gates until the last copy or token from before has run out.",
		Args: exactly(1),
		RunE: a.do(func(ctx context.Context, args []string) error { return a.setPolicy(ctx, args[0], &p) }),
	}
	p.Register(cmd.Flags())
	return cmd
}

func (a *app) setPolicy(ctx context.Context, issuer string, p *policyFlags) error {
	if !p.Given() {
		return usagef("nothing to set was given")
	}
	s, err := a.update(ctx, issuer, func(s keystore.KeySet) (keystore.KeySet, error) {
		policy, err := p.Apply(s.Policy())
		if err != nil {
			return s, err
		}
		return s.SetPolicy(a.change("", false), policy)
	})
	if err != nil {
		return err
	}
	a.warnPolicy(s.Policy())
	for _, h := range s.Policy().HeldUntil {
		a.notice("held: %s", view.HeldLine(h))
	}
	v := view.Of(s, time.Now())
	return a.print(v, v.Table)
}

// update changes the key set that an ISSUER argument means.
func (a *app) update(ctx context.Context, issuer string, change func(keystore.KeySet) (keystore.KeySet, error)) (keystore.KeySet, error) {
	st, err := a.openToWrite(ctx)
	if err != nil {
		return keystore.KeySet{}, err
	}
	s, err := catalog.Find(ctx, st, issuer)
	if err != nil {
		return s, err
	}
	changed, err := keystore.Update(ctx, st, s.Name(), change)
	return changed, cli.AtGate(err, s)
}

type removeFlags struct {
	confirm, why string
	force        bool
}

func (a *app) issuerRemove() *cobra.Command {
	var f removeFlags
	cmd := &cobra.Command{
		Use:   "remove ISSUER --confirm-url URL --why REASON",
		Short: "Withdraw an issuer for good",
		Long: "Withdraw an issuer: its documents are served no more, and its URL is not given out again by accident. The\n" +
			"document stays as a tombstone; deleting its file would change nothing.",
		Args: exactly(1),
		RunE: a.do(func(ctx context.Context, args []string) error { return a.removeIssuer(ctx, args[0], f) }),
	}
	fs := cmd.Flags()
	fs.StringVar(&f.confirm, "confirm-url", "", "the issuer URL, typed once more")
	fs.StringVar(&f.why, "why", "", "the reason; it is recorded")
	fs.BoolVar(&f.force, "force", false, "withdraw it although a key is active: tokens that it signs are refused from then on")
	return cmd
}

func (a *app) removeIssuer(ctx context.Context, issuer string, f removeFlags) error {
	if f.confirm == "" || f.why == "" {
		return usagef("issuer remove needs --confirm-url URL and --why REASON")
	}
	s, err := a.update(ctx, issuer, func(s keystore.KeySet) (keystore.KeySet, error) {
		if !slices.Contains(urls(s), f.confirm) {
			return s, withHint(usagef("--confirm-url %s is no URL of key set %q", f.confirm, s.Name()), "%s", command{"issuer", "show", string(s.Name())})
		}
		return s.Withdraw(a.change(f.why, f.force))
	})
	if err != nil {
		return err
	}
	for _, u := range urls(s) {
		a.notice("remove the IAM OIDC identity provider of %s in every account as well; whoever gets the host name next could speak for it", u)
	}
	return a.print(view.Of(s, time.Now()), func(w *tabwriter.Writer) {
		row(w, fmt.Sprintf("withdrawn %s (generation %d)", s.Name(), s.Generation()))
	})
}
