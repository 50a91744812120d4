package contract

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/pubkey"
	"github.com/keypost/keypost/keystore/storetest"
)

// The directory is the last good state, whole: a start while its writer is away serves every issuer.
func TestColdStartDuringAnOutage(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	must(t, os.Chmod(e.dir, 0o555)) // anyone who writes it is gone
	t.Cleanup(func() { must(t, os.Chmod(e.dir, 0o755)) })
	if os.Getuid() == 0 {
		e.uid = 65534
	}
	v := ready(t, e.settings)
	c := v.client(t)
	must(t, checkKeys(c, urlA+"/keys.json", []keystore.VerificationKey{e.stays, e.alsoStays}, []keystore.VerificationKey{e.leaked}))
	must(t, checkKeys(c, urlShared+"/keys.json", []keystore.VerificationKey{e.stays, e.alsoStays}, []keystore.VerificationKey{e.leaked}))
	must(t, checkKeys(c, urlB+"/keys.json", nil, nil))
}

// A server of the same kind printed a body as a format, so that such a kid came out as something else.
func TestKidWithPercentSigns(t *testing.T) {
	t.Parallel()
	const kid = `100%s%d%!v(MISSING)%%2F`
	data, err := json.Marshal(jose.JSONWebKey{Key: storetest.Key(t).Key(), KeyID: kid})
	must(t, err)
	keys, err := pubkey.Parse("test", data)
	must(t, err)
	e := newEstate(t)
	e.create("prod-k", []string{"https://oidc.example.com/prod-k"}, keys...)
	v := ready(t, e.settings)
	_, body := get(t, v.client(t), "https://oidc.example.com/prod-k/keys.json")
	var set jose.JSONWebKeySet
	must(t, json.Unmarshal([]byte(body), &set))
	if len(set.Key(kid)) != 1 {
		t.Errorf("no key %q in %s", kid, body)
	}
}
