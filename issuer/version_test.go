package issuer

import (
	"testing"

	"github.com/keypost/keypost/keystore"
)

func testVersion(t *testing.T, d doc) *version {
	t.Helper()
	v, err := newVersion(d.parse(t), keystore.DefaultCache())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVersionCountsKeysByState(t *testing.T) {
	v := testVersion(t, doc{
		name: "a", generation: 1, keys: []keystore.VerificationKey{key(t, 1), key(t, 2), key(t, 3), key(t, 4)},
		states: []keystore.State{keystore.Retired, keystore.Next, keystore.Active, keystore.Next}})
	if want := [3]int{2, 1, 1}; v.states != want {
		t.Errorf("next, active, retired = %v, want %v", v.states, want)
	}
}
