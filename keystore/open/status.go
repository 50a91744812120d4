package open

import (
	"context"
	"errors"

	"github.com/keypost/keypost/keystore/kubestore"
)

// KeySetStatus opens u to write the status of its KeySet objects, which no other store has.
func (u URL) KeySetStatus(ctx context.Context) (*kubestore.Backend, error) {
	if u.scheme != schemeKubernetes {
		return nil, &URLError{Err: errors.New("only key sets in kubernetes://NAMESPACE have a status")}
	}
	return kubestore.Open(ctx, u.namespace, u.kubernetes)
}
