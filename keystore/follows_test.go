package keystore

import "testing"

// Follows is what package lastgood says of a version after the last good one (nil for none): nil when it may take its
// place. That package imports this one, so that tests inside of this package cannot import it. TestMain sets it.
var Follows func(is KeySet, was *KeySet) error

// follows fails unless publishers take over a version after another one.
func follows(t *testing.T, name string, is KeySet, was *KeySet) {
	t.Helper()
	if err := Follows(is, was); err != nil {
		t.Errorf("%s: generation %d is refused: %v", name, is.Generation(), err)
	}
}
