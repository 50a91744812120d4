package keycmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
	"github.com/keypost/keypost/keystore/party"
)

// warnElsewhere names the other key sets that publish the key which was revoked, or may: anyone who has it signs on for their issuers.
// The error is about a replacement that another key set has revoked: it is published, and somebody else may have it.
func (o *revokeOptions) warnElsewhere(ctx context.Context, st *keystore.Store, c keyChange, replacement *keystore.VerificationKey) error {
	k, _ := c.before.Key(c.id)
	name := c.before.Name()
	all, err := o.ReadAll(ctx, st, name)
	if err != nil {
		o.Warn("whether another key set publishes the key too is unknown: %v", err)
		return nil
	}
	shared, _ := all.CheckKeys(name, []keystore.VerificationKey{k.VerificationKey}, true)
	for _, s := range shared {
		o.Warn("key set %q publishes the same key, and it goes on being trusted there: %s", s.In, cli.Command{"key", "revoke", string(s.In), string(s.Key), "--why", o.why})
	}
	for _, n := range slices.Sorted(maps.Keys(all.Unread)) {
		o.Warn("key set %q cannot be read, and may publish the same key; why it cannot be read: %s", n, cli.Command{"issuer", "list"})
	}
	if replacement == nil {
		return nil
	}
	all.Sets = append(all.Sets, c.before) // what a key set published before is not in question
	keys := []keystore.VerificationKey{*replacement}
	shared, err = all.CheckKeys(name, keys, o.force)
	if err != nil {
		return cli.WithHint(fmt.Errorf("the key is revoked, and its replacement is published, but somebody else may have that one: %w", err), "make a new key, and replace this one too: %s",
			cli.Command{"key", "revoke", string(name), string(replacement.ID()), "--why", o.why, "--replacement", "FILE"})
	}
	o.WarnOthers(nil, shared)
	return nil
}

// notRevoked adds to an error that left a key as it was that it did, and what ends its trust nevertheless.
func (o *revokeOptions) notRevoked(args []string, c keyChange, err error) error {
	kind := catalog.KindOf(err)
	noKey := kind == catalog.NoKey || kind == catalog.KeyGone || kind == catalog.BadPrefix
	_, high := errors.AsType[*keystore.GenerationError](err)
	if o.refused || noKey || kind == catalog.Ambiguous || high || cli.Misused(err) {
		return err
	}
	_, broken := errors.AsType[*keystore.BrokenError](err)
	unknown := kind == catalog.NoKeySet || kind == catalog.MayBeOne // of a URL: the document that has it may be broken
	_, hinted := errors.AsType[*cli.HintedError](err)
	name, issuer := args[0], "https://HOST/PATH"
	if catalog.IsURL(name) {
		name, issuer = "NAME", name
	}
	if c.before.Name() != "" { // it was read, and the write failed
		issuer = c.before.Issuers()[0].String()
		err = fmt.Errorf("whether key %s is revoked is unknown: %w", args[1], err)
	} else {
		err = fmt.Errorf("key %s is not revoked: %w", args[1], err)
	}
	o.Notice("until the key is revoked, only these lines end the trust in it, for the issuer %s:", issuer)
	for _, name := range party.Common() {
		for _, line := range party.EndOfTrust(name, issuer, "the key is revoked") {
			o.sayTrust(line)
		}
	}
	switch {
	case broken:
		return cli.WithHint(err, "put the last good version back, from the admin listener of a keypostd or mirror or from a file; then revoke again what the broken one revoked, and run this again: %s",
			cli.Command{"store", "restore", name, "--from", "URL", "--force", "--why", "the document is broken"})
	case unknown || errors.Is(err, keystore.ErrNotFound):
		return cli.WithHint(err, "if it is none of those that keypost issuer list shows, put its last good version back, from the admin listener of a keypostd or mirror or from a file, and run this again: %s", cli.Command{"store", "restore", name, "--from", "URL"})
	case hinted:
		return err
	}
	return cli.WithHint(err, "run this again once the store answers: %s", o.Again())
}
