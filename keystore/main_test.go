package keystore_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

func TestMain(m *testing.M) {
	keystore.Follows = func(is keystore.KeySet, was *keystore.KeySet) error {
		var before *lastgood.Summary
		if was != nil {
			s := lastgood.SummaryOf(*was)
			before = &s
		}
		after := lastgood.SummaryOf(is)
		if r := after.Follows(before); r != nil {
			return fmt.Errorf("%s: %s", r.Reason, r.Message)
		}
		return nil
	}
	os.Exit(m.Run())
}
