package s3store

import (
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

func TestConformance(t *testing.T) {
	sv := gateway(t)
	storetest.Run(t, func(t *testing.T) keystore.Backend { return open(t, sv.url, newPrefix()) })
}
