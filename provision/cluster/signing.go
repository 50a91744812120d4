package cluster

import (
	"cmp"
	"context"
	"slices"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/rotation"
)

// Signing is a cluster in a rotation of its signing key. It needs the permissions of Signers. It writes
// nothing: the private key never leaves the place where it was made.
type Signing struct{ Access }

var _ rotation.Cluster = Signing{}

// mintedFor is the audience of the tokens that show who signs with what. Nobody accepts it.
const mintedFor = "keypost.invalid"

// Signers implements [rotation.Cluster] by a token of each kube-apiserver.
func (c Signing) Signers(ctx context.Context) (map[string]keystore.KeyID, error) {
	all, err := signers(ctx, c.Access, minLifetime, mintedFor)
	if len(all) == 0 {
		return nil, err
	}
	kids := make(map[string]keystore.KeyID, len(all))
	for _, s := range all {
		kids[s.Address] = s.KeyID
	}
	return kids, err
}

// Lists implements [rotation.Cluster] by the JWKS of each kube-apiserver.
func (c Signing) Lists(ctx context.Context, k keystore.VerificationKey) (map[string]bool, error) {
	lists := map[string]bool{}
	var failed error
	err := c.each(ctx, func(address string, server api) {
		keys, _, err := server.keys(ctx)
		if err != nil {
			failed = cmp.Or(failed, err)
			return
		}
		lists[address] = slices.ContainsFunc(keys, k.Equal)
	})
	return lists, cmp.Or(err, failed)
}

// Stage implements [rotation.Cluster]. The error is always a [*rotation.ByHandError].
func (c Signing) Stage(_ context.Context, k keystore.Key) error {
	return rotation.ByHand(k.ID())
}
