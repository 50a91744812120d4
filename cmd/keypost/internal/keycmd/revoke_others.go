package keycmd

import (
	"context"
	"maps"
	"slices"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/catalog"
)

// warnElsewhere names the other key sets that publish the key which was revoked, or may: who has it signs on for their issuers.
func (o *revokeOptions) warnElsewhere(ctx context.Context, c keyChange) {
	st, err := o.OpenStore(ctx)
	var all catalog.Contents
	if err == nil {
		all, err = o.ReadAll(ctx, st)
	}
	if err != nil {
		o.Warn("whether another key set publishes the key too is unknown: %v", err)
		return
	}
	k, _ := c.before.Key(c.id)
	shared, _ := all.CheckKeys(c.before.Name(), []keystore.VerificationKey{k.VerificationKey}, true)
	for _, s := range shared {
		o.Warn("key set %q publishes the same key, and it goes on being trusted there: %s", s.In, cli.Command{"key", "revoke", string(s.In), string(s.Key), "--why", o.why})
	}
	for _, n := range slices.Sorted(maps.Keys(all.Unread)) {
		o.Warn("key set %q cannot be read, and may publish the same key; why it cannot be read: %s", n, cli.Command{"issuer", "list"})
	}
}
