package azure_test

import (
	"fmt"
	"testing"
)

// arm makes a call as another program would.
func (w *world) arm(t *testing.T, method, path, version, body string) {
	t.Helper()
	must(t, w.Ask(method, path, version, body))
}

// credential writes a federated credential as another program would.
func (w *world) credential(t *testing.T, identity, name, issuer, subject, audience string) {
	t.Helper()
	w.arm(t, "PUT", identity+"/federatedIdentityCredentials/"+name, "2024-11-30",
		fmt.Sprintf(`{"properties":{"issuer":%q,"subject":%q,"audiences":[%q]}}`, issuer, subject, audience))
}
