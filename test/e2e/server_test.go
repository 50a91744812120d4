//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

const admin = "http://127.0.0.1:9090"

// server is keypostd and the directory it serves, written by the command line.
type server struct {
	*process
	ca    *authority
	store string // directory
}

func binary(name string) string { return filepath.Join(os.Getenv("KEYPOST_E2E_BIN"), name) }

// newStore makes an empty directory and a server for it that does not run yet.
func newStore(t *testing.T, ca *authority) *server {
	t.Helper()
	return &server{ca: ca, store: t.TempDir()}
}

// run starts keypostd on port 443 of every name in this network.
func (s *server) run(t *testing.T) {
	t.Helper()
	cert, key := s.ca.issue(t, "keypostd", "oidc.keypost.test", "*.oidc.keypost.test")
	config := filepath.Join(t.TempDir(), "keypostd.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `dir: %s
issuerURLs: ["https://oidc.keypost.test/{name}", "https://{name}.oidc.keypost.test"]
listen:
  address: "127.0.0.1:443"
  drainDelay: 0s
  tls: {mode: files, files: [{cert: %s, key: %s}]}
admin: {address: "127.0.0.1:9090"}
allowEmpty: true
`, s.store, cert, key), 0o600))
	s.process = start(t, "keypostd", binary("keypostd"), "--config", config)
	s.await(t, "ready", func(ctx context.Context) error {
		return expect(ctx, http.DefaultClient, admin+"/readyz", "")
	})
}

// keypost runs the command line on the server's store.
func (s *server) keypost(t *testing.T, args ...string) result {
	t.Helper()
	return command(t, []string{"KEYPOST_STORE=file://" + s.store}, "", binary("keypost"), args...)
}

// publish adds an issuer for a cluster and waits until its documents are served.
func (s *server) publish(t *testing.T, c *cluster, keys ...string) {
	t.Helper()
	s.keypost(t, append([]string{"issuer", "add", c.name, "--url", c.issuer}, keys...)...).ok(t)
	await(t, c.issuer+" is served", func(ctx context.Context) error {
		return expect(ctx, s.ca.client(), c.issuer+"/keys.json", "")
	})
}

// get fetches a document that must be there.
func get(t *testing.T, client *http.Client, url string) []byte {
	t.Helper()
	body, err := fetch(t.Context(), client, url, "")
	must(t, err)
	return body
}

// object reads one JSON object.
func object(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return o
}
