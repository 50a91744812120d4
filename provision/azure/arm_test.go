package azure_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/fakeazure"
)

// arm makes a call as another program would.
func (w *world) arm(t *testing.T, method, path, version, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://management.azure.com"+path+"?api-version="+version, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+fakeazure.AccessToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.Client().Do(req)
	must(t, err)
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	if resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
}

// credential writes a federated credential as another program would.
func (w *world) credential(t *testing.T, identity, name, issuer, subject, audience string) {
	t.Helper()
	w.arm(t, "PUT", identity+"/federatedIdentityCredentials/"+name, "2024-11-30",
		fmt.Sprintf(`{"properties":{"issuer":%q,"subject":%q,"audiences":[%q]}}`, issuer, subject, audience))
}
