package filestore

import (
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) keystore.Store { return open(t, t.TempDir()) })
}

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
