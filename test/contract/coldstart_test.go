package contract

import (
	"os"
	"testing"

	"github.com/keypost/keypost/keystore"
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
