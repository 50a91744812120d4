package storetest_test

import (
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(t *testing.T) keystore.Backend { return storetest.NewMemory(t) })
}
