package keycmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/cmd/keypost/internal/keysource"
	"github.com/keypost/keypost/cmd/keypost/internal/observe"
	"github.com/keypost/keypost/issuer/verify"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

type revokeOptions struct {
	*cli.Factory
	why, replacement   string
	caFile             string
	empty, force, wait bool
}

func newRevoke(f *cli.Factory) *cobra.Command {
	o := &revokeOptions{Factory: f}
	cmd := f.Command("revoke ISSUER KID --why REASON", "Take a key out at once, whatever its state: it is in wrong hands", cli.Exactly(2), o.run)
	fs := cmd.Flags()
	fs.StringVar(&o.why, "why", "", "the reason; it is recorded")
	fs.StringVar(&o.replacement, "replacement", "", "`FILE` with the public key that is active at once in its place")
	fs.BoolVar(&o.force, "force", false, "revoke although this machine's clock is behind a recorded time, or another key set has revoked the replacement")
	fs.BoolVar(&o.empty, "leave-empty", false, "publish an empty JWKS if it was the last key")
	fs.BoolVar(&o.wait, "wait", false, "then look, at every address and origin, until none publishes the key any more; may be run again for a key that is revoked")
	fs.StringVar(&o.caFile, "ca-file", "", "with --wait: PEM file with the CA of the issuer, instead of the system's")
	return cmd
}

func (o *revokeOptions) run(ctx context.Context, args []string) error {
	if o.why == "" {
		return cli.Usagef("key revoke needs --why REASON; it is recorded")
	}
	roots, err := cli.ReadRoots(o.caFile)
	if err != nil {
		return err
	}
	last, err := o.last()
	if err != nil {
		return err
	}
	if last.Replacement != nil {
		if err := o.checkReplacement(ctx, args[0], *last.Replacement); err != nil {
			return err
		}
	}
	c, err := change(ctx, o.Factory, args, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
		return s.Revoke(o.Change(o.why, o.force), id, last)
	})
	if gone, is := errors.AsType[*catalog.NoKeyError](err); is && gone.Gone && o.wait { // an earlier run has revoked it
		return o.awaitGone(ctx, args[0], verify.Network{RootCAs: roots})
	}
	if err != nil {
		return err
	}
	warnNoneActive(o.Factory, c.after)
	now := time.Now()
	o.Notice("key %s is revoked; relying parties and caches may go on trusting it until %s", c.id, cli.Stamp(c.before.CopiesUntil(now, keystore.Cache{})))
	for _, t := range stillTrusting(c.before, now) {
		o.Notice("  %s", t)
	}
	for _, k := range c.before.Keys() {
		if _, left := c.after.GoneLine(k.VerificationKey); left && k.ID() != c.id {
			o.Notice("key %s is the same key under another kid, and is revoked too", k.ID())
		}
	}
	if err := printKeys(o.Factory, c.after, now); err != nil || !o.wait {
		return err
	}
	return o.awaitGone(ctx, string(c.after.Name()), verify.Network{RootCAs: roots})
}

// lookAgain is how long --wait waits between two looks, each of which takes ten seconds.
const lookAgain = 5 * time.Second

// awaitGone looks until nothing that answers for an issuer publishes a key that is gone.
func (o *revokeOptions) awaitGone(ctx context.Context, issuer string, network verify.Network) error {
	st, err := o.OpenStore(ctx)
	if err != nil {
		return err
	}
	for said := ""; ; {
		s, err := catalog.Find(ctx, st, issuer)
		if err != nil {
			return err
		}
		var left []string
		for _, t := range observe.Targets(s) {
			sight, err := network.Compare(ctx, t, func(ctx context.Context) (keystore.KeySet, error) { return catalog.Load(ctx, st, s.Name()) })
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			left = append(left, unfinished(t, sight, err)...)
		}
		if len(left) == 0 {
			o.Notice("no address or origin of %q publishes a key that is gone; copies of relying parties last as printed above, or as keypost verify says", s.Name())
			return nil
		}
		if now := strings.Join(left, "; "); now != said {
			o.Notice("waiting: %s", now)
			said = now
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
}

// unfinished returns what a look at an issuer URL leaves open: keys that are gone and still there, and what was not seen.
func unfinished(t verify.Target, s verify.Sight, err error) (left []string) {
	if err != nil {
		return []string{err.Error()}
	}
	for _, f := range s.Findings {
		if f.Severity == finding.Fail || f.Code == "key-cached" {
			left = append(left, f.Message())
		}
	}
	if s.NotCompared != "" {
		left = append(left, fmt.Sprintf("%s: %s", t.URL, s.NotCompared))
	}
	return append(left, s.Look.Gaps...)
}

func (o *revokeOptions) checkReplacement(ctx context.Context, issuer string, k keystore.VerificationKey) error {
	st, err := o.OpenStore(ctx)
	if err != nil {
		return err
	}
	s, err := catalog.Find(ctx, st, issuer)
	if err != nil {
		return err
	}
	return cli.Others{Factory: o.Factory, Store: st, Force: o.force}.Check(ctx, s.Name(), k)
}

func (o *revokeOptions) last() (keystore.RevokeOptions, error) {
	last := keystore.RevokeOptions{LeaveEmpty: o.empty}
	if o.replacement == "" {
		return last, nil
	}
	if o.empty {
		return last, cli.Usagef("give --replacement or --leave-empty, not both")
	}
	keys, err := keysource.ReadFile(o.Factory, o.replacement)
	if err != nil {
		return last, err
	}
	if len(keys) != 1 {
		return last, cli.Usagef("--replacement %s holds %d keys, not one", o.replacement, len(keys))
	}
	last.Replacement = &keys[0]
	return last, nil
}

// stillTrusting returns, for each relying party that the policy declares, until when it may trust a key that left at a time,
// and what ends that sooner. The cluster itself reads its own files, which no document of ours changes.
func stillTrusting(s keystore.KeySet, at time.Time) []string {
	parties := s.Policy().RelyingParties
	if len(parties) == 0 {
		parties = []string{"relying parties, none of which is declared,"}
	}
	var lines []string
	for _, party := range parties {
		lines = append(lines, fmt.Sprintf("%s until %s: %s", party, cli.Stamp(s.CopiesOf(party, at, keystore.Cache{})), sooner(party)))
	}
	return append(lines,
		"caches in front of keypostd: purge them, also of copies that are stale; a purge that only marks copies stale ends nothing",
		"the cluster's own kube-apiservers, without end: take the key's file out of --service-account-key-file on each control-plane node and restart kube-apiserver; on OpenShift it stands in ConfigMap bound-sa-token-signing-certs of openshift-kube-apiserver")
}

// sooner returns what makes a relying party forget a key before its copy has run out.
func sooner(party string) string {
	switch party {
	case "aws":
		return "nothing makes STS fetch sooner; sessions that it has given out live on for up to 12h: for each role that the cluster assumes, deny requests with aws:TokenIssueTime before now (IAM console: Revoke active sessions)"
	case "gcp":
		return "a provider with an uploaded JWKS keeps the key until another one is uploaded; access tokens that it has given out live on for up to 1h, or disable the service accounts"
	case "entra":
		return "delete the federated credentials that name this issuer to end it now; access tokens that it has given out live on for an hour and more"
	case "vault":
		return "write the auth method's configuration again (vault write auth/NAME/config), which drops its copy; revoke leases with vault lease revoke -prefix"
	case "kube-apiserver":
		return "restart it, which drops its copy"
	}
	return "restart or reconfigure what holds a copy"
}
