package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keypost/keypost/issuer/verify/fetch"
	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/golden"
	"github.com/keypost/keypost/test/nginx"
)

// startNginx starts nginx with something of its own in its http and server blocks, and sends connections to the issuer's
// address there.
func (w *world) startNginx(t *testing.T, inHTTP, inServer string) nginx.Server {
	t.Helper()
	if _, err := nginx.Program(); errors.Is(err, exec.ErrNotFound) {
		t.Skip("nginx is not installed: test/tools/apt nginx")
	}
	dir := nginx.Directory(t)
	o := nginx.Options{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"),
		HTTP:   "proxy_ssl_server_name on; proxy_ssl_name oidc.example.com; proxy_set_header Host oidc.example.com;\n" + inHTTP,
		Server: "ssl_protocols TLSv1.2 TLSv1.3;\n" + strings.ReplaceAll(inServer, "ROOT", dir+"/html")}
	check(t, os.WriteFile(o.Key, w.pki.leaf.KeyPEM(t), 0o600))
	check(t, os.WriteFile(o.Cert, authority.ChainPEM(w.pki.leaf, w.pki.intermediate), 0o600))
	n := nginx.Start(t, dir, o)
	w.options.Dial = to(n.Address)
	return n
}

// address serves the world at an address of its own.
func (w *world) address(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = w.tls
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// varying is what differs from run to run.
var varying = regexp.MustCompile(`[A-Za-z0-9_-]{43}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// TestNginxStatic: what verify makes of documents in a public bucket, as nginx serves files. The findings were read by eye.
func TestNginxStatic(t *testing.T) {
	for name, headers := range map[string]string{
		"bucket":               "",
		"bucket-cache-control": `default_type application/json; add_header Cache-Control "public, max-age=3600";`,
		"bucket-binary":        `default_type binary/octet-stream; etag off;`,
		"bucket-no-store":      `default_type application/json; add_header Cache-Control "no-store";`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.startNginx(t, "", "root ROOT; "+headers)
			for path, document := range map[string]any{fetch.DiscoveryPath: w.discovery, fetch.KeysPath: member{"keys": w.jwks}} {
				file := filepath.Join(n.Dir, "html", "prod-a", path)
				check(t, os.MkdirAll(filepath.Dir(file), 0o755))
				raw, err := json.Marshal(document)
				check(t, err)
				check(t, os.WriteFile(file, raw, 0o600))
			}
			w.options.Token = w.token(t)
			golden.Same(t, filepath.Join("testdata", "peers", name+".txt"), told(Examine(t.Context(), w.options).Findings))
		})
	}
}

// told is what the table of keypost verify says, without what differs from run to run.
func told(findings []finding.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%s %s: %s\n", f.Severity, f.Code, varying.ReplaceAllString(f.Message(), "…"))
		if f.Repair != "" {
			fmt.Fprintf(&b, "  repair: %s\n", f.Repair)
		}
	}
	return b.String()
}
