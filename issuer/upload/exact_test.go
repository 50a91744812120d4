package upload

import (
	"crypto/rsa"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/storetest"
)

// A copy holds a key only by its ID, its material and its algorithm; any other is replaced.
func TestACopyOfAnotherKeyIsReplaced(t *testing.T) {
	key := storetest.SyntheticRSA(t, 7)
	modulus := func(k keystore.VerificationKey) string {
		return base64.RawURLEncoding.EncodeToString(k.Key().(*rsa.PublicKey).N.Bytes()) //nolint:forcetypeassert // it is RSA
	}
	for name, change := range map[string][2]string{
		"nothing":           {"RS256", "RS256"},
		"another ID":        {string(key.ID()), string(key.ID()) + "x"},
		"another algorithm": {"RS256", "RS512"},
		"another material":  {modulus(key), modulus(storetest.SyntheticRSA(t, 9))},
	} {
		w, c := newWorld(t, named()), &fake{}
		w.change(func(s keystore.KeySet) (keystore.KeySet, error) { return s.Add(storetest.Change(0), key) })
		w.synced(c)
		right := string(c.jwks)
		c.jwks = []byte(strings.ReplaceAll(right, change[0], change[1]))
		r, err := w.sync(c)
		if err != nil || r.Uploaded != (name != "nothing") || string(c.jwks) != right {
			t.Errorf("%s: uploaded %t, %v, it holds %s", name, r.Uploaded, err, c.jwks)
		}
	}
}
