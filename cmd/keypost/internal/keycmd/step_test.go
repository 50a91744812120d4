package keycmd

import (
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/gate"
)

// A key is confirmed as it is shown on a terminal, too, and by no less than names a key anywhere else.
func TestConfirmed(t *testing.T) {
	t.Parallel()
	const id = keystore.KeyID("sHmHzk8QJTYcAbCdEfGhIjKlMnOpQrStUvWxYz01234")
	for typed, want := range map[string]bool{"": false, "sHmHzk8": false, "sHmHzk8QJTYd": false, "sHmHzk8QJTYc": true, string(id): true} {
		o := step{confirm: typed, closed: &keystore.NotYetError{Gate: gate.GateUndeclared}}
		if err := o.confirmed(id); (err == nil) != want {
			t.Errorf("%q: %v", typed, err)
		}
	}
}
