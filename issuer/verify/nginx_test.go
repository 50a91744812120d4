package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/verify/finding"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/test/authority"
	"github.com/keypost/keypost/test/golden"
	"github.com/keypost/keypost/test/nginx"
)

// nginxBefore is a real nginx before the world.
type nginxBefore struct {
	nginx.Server
	client *http.Client
}

// startNginx starts nginx with something of its own in its http and server blocks, and sends connections to the issuer's
// address there.
func (w *world) startNginx(t *testing.T, inHTTP, inServer string) *nginxBefore {
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
	n := &nginxBefore{Server: nginx.Start(t, dir, o)}
	w.options.Dial = to(n.Address)
	n.client = newClient(w.options.RootCAs, unhurried, w.options.Dial).http
	return n
}

// warm lets nginx read every document once.
func (n *nginxBefore) warm(t *testing.T) {
	t.Helper()
	for _, path := range []string{"", discoveryPath, keysPath, aliasPath} {
		resp, err := n.client.Get(testIssuer + path)
		check(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		check(t, errors.Join(err, resp.Body.Close()))
	}
}

// purge takes every copy out of the cache.
func (n *nginxBefore) purge(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.Dir, "cache", "*"))
	check(t, err)
	for _, f := range files {
		check(t, os.RemoveAll(f))
	}
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

func declareCDN(t *testing.T, w *world, origins ...string) {
	t.Helper()
	policy(func(p *keystore.Policy) { p.EdgeHold, p.Origins = keystore.DurationPtr(time.Hour), origins })(t, w)
}

const cachePass = `location / { proxy_pass https://%s; proxy_cache z; proxy_cache_key $uri; add_header X-Cache $upstream_cache_status always; %s }`

// nginxSetups have nginx as a cache or as a balancer.
func nginxSetups() []setup {
	return []setup{
		hangingBehindNginx(), missingAtNginx(), staleNginx(), balancedByNginx(),
		proxiedByNginx("nginx takes the issuer's path off", "proxy-path", "", "location /prod-a/ { proxy_pass https://%s/; }"),
		proxiedByNginx("nginx takes the issuer's path off and leaves a slash", "proxy-path", "", "location /prod-a { proxy_pass https://%s/; }"),
		proxiedByNginx("nginx takes the issuer's path off and leaves a slash, with Host as it came", "proxy-path", "", "location ^~ /prod-a { proxy_pass https://%s/; proxy_set_header Host $host; }"),
		proxiedByNginx("nginx passes on another Host", "proxy-host", "", "location / { proxy_pass https://%s; proxy_set_header X-Real-IP $remote_addr; }"),
		proxiedByNginx("nginx looks for files that it does not have", "discovery-not-found", "", "root ROOT; # %s\n"),
		proxiedByNginx("nginx denies that names with a dot are there", "discovery-not-found", `location ~ /\. { return 404; }`, "location /prod-a/ { proxy_pass https://%s; }"),
		proxiedByNginx("nginx asks for a password", "discovery-forbidden", "auth_basic keypost; auth_basic_user_file /dev/null;", "location / { proxy_pass https://%s; }"),
		proxiedByNginx("nginx lets its own network in", "discovery-forbidden", "allow 192.0.2.0/24; deny all;", "location / { proxy_pass https://%s; }"),
		proxiedByNginx("nginx hides names with a dot", "discovery-forbidden", `location ~ /\. { deny all; } location / { proxy_pass http://127.0.0.1:1; }`, "location /prod-a/ { proxy_pass https://%s; }"),
		proxiedByNginx("nginx lets a part of it through", "jwks-forbidden", `location ~ /keys\.json$ { return 403; }`, "location /prod-a/ { proxy_pass https://%s; }"),
	}
}

// proxiedByNginx has nginx before a server that does what keypostd does with hosts and paths that it does not know. The repair is
// the block that the finding prints, in place of the one for the issuer; the rest of nginx's configuration stays.
func proxiedByNginx(name, cause, rest, location string) setup {
	var behind string
	return setup{name, cause, "", func(t *testing.T, w *world) {
		sound := *w
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Host != "oidc.example.com" || r.TLS.ServerName != "oidc.example.com" || !strings.HasPrefix(r.URL.Path, "/prod-a") || strings.HasPrefix(r.URL.Path, "/prod-a/prod-a") {
				answer(http.StatusNotFound, "Cache-Control: public, max-age=60", "not found\n")(rw, r)
				return
			}
			sound.serve(rw, r)
		}))
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.TLS = w.tls
		server.StartTLS()
		t.Cleanup(server.Close)
		behind = server.Listener.Addr().String()
		w.startNginx(t, "", rest+fmt.Sprintf(location, behind))
	}, func(t *testing.T, w *world) {
		printed := ""
		for _, f := range w.found {
			if f.Code == cause {
				printed = regexp.MustCompile(`location [^}]*}`).FindString(f.Repair)
			}
		}
		w.startNginx(t, "", rest+strings.ReplaceAll(printed, "KEYPOSTD", behind))
	}}
}

func hangingBehindNginx() setup {
	var hangs atomic.Bool
	return setup{"an origin that hangs behind nginx with a good copy", "origin-silent", "", func(t *testing.T, w *world) {
		sound, origin := *w, *w
		origin.replace = map[string]http.HandlerFunc{"/prod-a" + discoveryPath: func(rw http.ResponseWriter, r *http.Request) {
			if hangs.Load() {
				<-r.Context().Done()
				return
			}
			sound.serve(rw, r)
		}}
		at := origin.address(t)
		declareCDN(t, w, "203.0.113.1")
		w.options.patience = impatient
		w.startNginx(t, "", fmt.Sprintf(cachePass, at, "")).warm(t)
		front := w.options.Dial
		w.options.Dial = func(ctx context.Context, network, asked string) (net.Conn, error) {
			if strings.HasPrefix(asked, "203.0.113.1:") {
				return to(at)(ctx, network, asked)
			}
			return front(ctx, network, asked)
		}
		hangs.Store(true)
	}, func(*testing.T, *world) { hangs.Store(false) }}
}

func missingAtNginx() setup {
	var cache *nginxBefore
	return setup{"a 404 that nginx holds", "jwks-404-cached", "", func(t *testing.T, w *world) {
		origin := *w
		origin.replace = map[string]http.HandlerFunc{"/prod-a" + keysPath: http.NotFound}
		declareCDN(t, w)
		cache = w.startNginx(t, "", fmt.Sprintf(cachePass, origin.address(t), "proxy_cache_valid 404 10m;"))
		cache.warm(t)
		origin.replace = nil
	}, func(t *testing.T, _ *world) { cache.purge(t) }}
}

func staleNginx() setup {
	var cache *nginxBefore
	return setup{"nginx holds every copy for an hour, whatever Cache-Control says", "key-missing", "", func(t *testing.T, w *world) {
		origin := *w
		origin.header = http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"public, max-age=60"}, "Etag": {`"x"`}}
		declareCDN(t, w)
		cache = w.startNginx(t, "", fmt.Sprintf(cachePass, origin.address(t), "proxy_ignore_headers Cache-Control; proxy_cache_valid 200 1h;"))
		cache.warm(t)
		w.storeKey(t, stale, newECKey(t))
		w.heal(t)
		origin.jwks = w.jwks
	}, func(t *testing.T, _ *world) { cache.purge(t) }}
}

func balancedByNginx() setup {
	var replica *world
	return setup{"one of three replicas behind nginx is stale", "replica-stale", "", func(t *testing.T, w *world) {
		before := *w
		replica = &before
		w.storeKey(t, stale, newECKey(t))
		w.heal(t)
		now := *w
		w.startNginx(t, fmt.Sprintf("upstream replicas { server %s; server %s; server %s; }", now.address(t), replica.address(t), now.address(t)),
			"location / { proxy_pass https://replicas; }")
	}, func(_ *testing.T, w *world) { replica.jwks = w.jwks }}
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
			for path, document := range map[string]any{discoveryPath: w.discovery, keysPath: member{"keys": w.jwks}} {
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
		if f.Check == "speed" {
			continue
		}
		fmt.Fprintf(&b, "%s %s: %s\n", f.Severity, f.Code, varying.ReplaceAllString(f.Message(), "…"))
		if f.Repair != "" {
			fmt.Fprintf(&b, "  repair: %s\n", f.Repair)
		}
	}
	return b.String()
}
