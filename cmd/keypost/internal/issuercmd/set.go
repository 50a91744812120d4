package issuercmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/view"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/party"
)

type setOptions struct {
	*cli.Factory
	policy view.PolicyFlags
	why    string
}

func newSet(f *cli.Factory) *cobra.Command {
	o := &setOptions{Factory: f}
	cmd := f.Command("set ISSUER", "Change an issuer's policy", cobra.ExactArgs(1), o.run)
	cmd.Long = "Change the lifetimes and relying parties that an issuer's policy declares. A flag that is not given changes nothing.\n" +
		"What is lowered goes on to bind the gates until the last copy or token from before has run out."
	o.policy.Register(cmd.Flags())
	cmd.Flags().StringVar(&o.why, "why", "", "the reason; it is recorded")
	return cmd
}

func (o *setOptions) run(ctx context.Context, args []string) error {
	f := o.Factory
	if !o.policy.Given() {
		return cli.Usagef("nothing to set was given")
	}
	s, err := f.Update(ctx, args[0], func(s keystore.KeySet) (keystore.KeySet, error) {
		policy, err := o.policy.Apply(s.Policy())
		if err != nil {
			return s, err
		}
		changed, err := s.SetPolicy(f.Change(o.why, false), policy)
		if err == nil && o.policy.PricesUnsaid() {
			f.Notice("%s", view.Prices(changed))
		}
		return changed, err
	})
	if err != nil {
		return err
	}
	view.Warn(f, s.Policy())
	for _, k := range s.Keys() {
		for _, err := range party.Refusals(s.Policy().RelyingParties, string(k.ID()), k.Alg()) {
			f.Warn("%v", err)
		}
	}
	for _, h := range s.Policy().HeldUntil {
		f.Notice("held: %s", view.HeldLine(h))
	}
	v := view.Of(s, time.Now())
	return f.Print(v, v.Table)
}
