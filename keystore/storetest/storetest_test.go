package storetest_test

import (
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

func TestMemStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) keystore.Store { return storetest.NewMemStore(t) })
}
