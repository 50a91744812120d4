package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/keypost/keypost/keystore"
)

type revokeFlags struct {
	why, replacement string
	empty, force     bool
}

func (a *app) keyRevoke() *cobra.Command {
	f := &revokeFlags{}
	cmd := &cobra.Command{
		Use:   "revoke ISSUER KID --why REASON",
		Short: "Take a key out at once, whatever its state: it is in wrong hands",
		Args:  exactly(2),
		RunE:  a.do(func(ctx context.Context, args []string) error { return a.revoke(ctx, args, f) }),
	}
	fs := cmd.Flags()
	fs.StringVar(&f.why, "why", "", "the reason; it is recorded")
	fs.StringVar(&f.replacement, "replacement", "", "`FILE` with the public key that is active at once in its place")
	fs.BoolVar(&f.force, "force", false, "revoke although this machine's clock is behind a recorded time")
	fs.BoolVar(&f.empty, "leave-empty", false, "publish an empty JWKS if it was the last key")
	return cmd
}

func (a *app) revoke(ctx context.Context, args []string, f *revokeFlags) error {
	if f.why == "" {
		return usagef("key revoke needs --why REASON; it is recorded")
	}
	last, err := a.last(f)
	if err != nil {
		return err
	}
	c, err := a.changeKey(ctx, args, func(s keystore.KeySet, id keystore.KeyID) (keystore.KeySet, error) {
		return s.Revoke(a.change(f.why, f.force), id, last)
	})
	if err != nil {
		return err
	}
	a.notice("key %s is revoked; relying parties and caches may go on trusting it until %s", c.id, stamp(c.was.CopiesUntil(time.Now())))
	for _, k := range c.was.Keys() {
		if _, left := c.is.GoneLine(k.VerificationKey); left && k.ID() != c.id {
			a.notice("key %s is the same key under another kid, and is revoked too", k.ID())
		}
	}
	a.notice("purge the CDN, if there is one; sessions that AWS gave out already outlive the key by up to 12h")
	return a.printKeys(c.is)
}

func (a *app) last(f *revokeFlags) (keystore.RevokeOptions, error) {
	last := keystore.RevokeOptions{LeaveEmpty: f.empty}
	if f.replacement == "" {
		return last, nil
	}
	if f.empty {
		return last, usagef("give --replacement or --leave-empty, not both")
	}
	keys, err := a.readKeyFile(f.replacement)
	if err != nil {
		return last, err
	}
	if len(keys) != 1 {
		return last, usagef("--replacement %s holds %d keys, not one", f.replacement, len(keys))
	}
	last.Replacement = &keys[0]
	return last, nil
}
