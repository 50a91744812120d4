//go:build e2e

package e2e

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keypost/keypost/test/keys"
	"github.com/keypost/keypost/test/nginx"
	programs "github.com/keypost/keypost/test/process"
)

// blocks returns what a file of docs/cdn has for the http block, and what it has for the server block.
func blocks(t *testing.T, text string) (inHTTP, inServer string) {
	t.Helper()
	inHTTP, rest, _ := strings.Cut(text, "# server {")
	inServer, _, closed := strings.Cut(rest, "\n# }")
	if !closed {
		t.Fatal("there is no server block")
	}
	return inHTTP, inServer
}

// TestFallbackOrigin has nginx, as docs/cdn configures it, ask a directory that keypost export wrote when keypostd is stopped or hangs.
// The answers are keypostd's own, with a cache that has no copy of them.
func TestFallbackOrigin(t *testing.T) {
	ca := newAuthority(t)
	store := newStore(t, ca)
	var paths []string
	for _, name := range []string{"prod", "other"} {
		file := filepath.Join(t.TempDir(), name+".pub")
		writePublicKey(t, file, keys.NewEC())
		store.keypost(t, "issuer", "add", name, "--url", "https://"+cdnHost+"/"+name, "--public-key-file", file, "--stale-if-error", "24h").ok(t)
		paths = append(paths, "/"+name+"/.well-known/openid-configuration", "/"+name+"/keys.json", "/"+name+"/openid/v1/jwks", "/"+name)
	}
	const alias = "origin." + cdnHost
	origin, address := newOrigin(t, ca, store.store, cdnHost)
	aliased, aliasedAddress := newOrigin(t, ca, store.store, alias) // has a certificate only for its alias, as by ACME behind a CDN
	exported := nginx.Directory(t)
	store.keypost(t, "export", exported).ok(t)

	fallback := programs.FreeAddress(t)
	atEdge, onFallback, _ := strings.Cut(documented(t, "fallback.conf", "server FALLBACK", "server "+fallback, "/srv/keypost-export", exported,
		"/etc/ssl/certs/ca-certificates.crt", ca.file), "# On FALLBACK")
	upstream, location := blocks(t, atEdge)
	_, files := blocks(t, onFallback)
	cert, key := ca.issue(t, "fallback", cdnHost)
	asked := filepath.Join(nginx.Directory(t), "asked") // what the fallback was asked for, and what with
	nginx.Start(t, nginx.Directory(t), nginx.Options{Cert: cert, Key: key, Server: files + "\naccess_log " + asked + " asked;", Address: fallback,
		HTTP: `log_format asked '$request_method $host$request_uri "$http_x_origin_secret"';`})

	edgeTo := func(address, at string, own ...string) *http.Client {
		return impatient(nginxBefore(t, ca, nginx.Options{HTTP: upstream, Server: location, Address: at}, address, own...), ca)
	}
	edge := func() *http.Client { return edgeTo(address, "") }
	edgeOfAlias := func() *http.Client {
		return edgeTo(aliasedAddress, "", "proxy_ssl_name $host;", "proxy_ssl_name "+alias+";")
	}
	// answer returns the body and the headers that say what it is and how long it may be kept.
	answer := func(client *http.Client, path string) string {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		res, err := client.Get("https://" + cdnHost + path)
		must(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		must(t, err)
		said := []string{res.Status}
		for _, name := range []string{"Content-Type", "Cache-Control", "X-Content-Type-Options", "Strict-Transport-Security", "Access-Control-Allow-Origin", "X-Cache"} {
			said = append(said, name+": "+strings.Join(res.Header.Values(name), " | "))
		}
		return strings.Join(said, "\n") + "\n" + string(body)
	}
	own := map[string]string{}
	client := edge()
	for _, path := range paths {
		if own[path] = answer(client, path); !strings.HasPrefix(own[path], "200 ") {
			t.Fatal(own[path])
		}
	}
	same := func(what string) {
		t.Helper()
		for name, client := range map[string]*http.Client{"": edge(), ", asked as its alias": edgeOfAlias()} {
			began := time.Now()
			for _, path := range paths {
				if got := answer(client, path); got != own[path] {
					t.Errorf("%s%s: %s is\n%s\nand keypostd's is\n%s", what, name, path, got, own[path])
				}
			}
			t.Logf("%s%s: %d documents came in %v", what, name, len(paths), time.Since(began).Round(time.Millisecond))
		}
	}
	same("keypostd serving")
	if origin.requests(t) == 0 || aliased.requests(t) == 0 {
		t.Error("the documents came from the fallback, although keypostd serves")
	}
	t.Run("a stranger's Host puts nobody on the files", func(t *testing.T) {
		client, before := edge(), origin.requests(t)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+cdnHost+paths[0], nil)
		must(t, err)
		req.Host = "stranger.test" // for which neither has a certificate
		res, err := client.Do(req)
		must(t, err)
		must(t, res.Body.Close())
		if got := answer(client, paths[0]); res.StatusCode != http.StatusBadGateway || got != own[paths[0]] || origin.requests(t) == before {
			t.Errorf("a stranger's Host: %s, then keypostd is not asked for\n%s", res.Status, got)
		}
	})
	for _, o := range []*originServer{origin, aliased} {
		o.Signal(t, syscall.SIGSTOP)
	}
	same("keypostd hanging")
	t.Run("many at once, keypostd hanging", func(t *testing.T) {
		client := edge() // without a copy
		var wait sync.WaitGroup
		for range 30 {
			wait.Go(func() {
				res, err := client.Get("https://" + cdnHost + paths[1])
				if err != nil {
					t.Error(err)
					return
				}
				if res.Body.Close(); res.StatusCode != http.StatusOK {
					t.Error(res.Status)
				}
			})
		}
		wait.Wait()
	})
	for _, o := range []*originServer{origin, aliased} {
		o.Signal(t, syscall.SIGCONT)
		o.stop(t, 5*time.Second)
	}
	same("keypostd stopped")

	t.Run("the shield's secret stays with keypostd", func(t *testing.T) {
		text := read(t, asked)
		if !strings.Contains(string(text), "GET "+cdnHost+"/prod/keys.json") || strings.Contains(string(text), cdnSecret) {
			t.Errorf("the fallback was asked:\n%s", text)
		}
	})
	t.Run("verify finds nothing wrong with the files", func(t *testing.T) {
		text := store.keypost(t, "verify", "prod", "--connect", fallback, "--ca-file", ca.file, "-o", "json").ok(t)
		if n := strings.Count(text, `"severity": "`) - strings.Count(text, `"severity": "ok"`); n > 0 || !strings.Contains(text, `"severity": "ok"`) {
			t.Errorf("%d findings:\n%s", n, text)
		}
	})
	t.Run("nothing else is there", func(t *testing.T) {
		client := edge()
		for _, path := range []string{"/", "/prod/", "/prod/.well-known", "/prod/openid/v1", "/prod/keys.json/", "/nobody/keys.json", "/prod/../prod/keys.json/", "/prod/%2e%2e/%2e%2e/x"} {
			if got := answer(client, path); strings.HasPrefix(got, "200 ") || strings.HasPrefix(got, "3") || strings.Contains(got, "max-age=300") {
				t.Errorf("%s: %s", path, got)
			}
		}
	})
	file := filepath.Join(t.TempDir(), "new.pub")
	writePublicKey(t, file, keys.NewEC())
	store.keypost(t, "issuer", "set", "prod", "--reach", "private", "--edge-hold", "25h", "--origin", address, "--origin", fallback).ok(t)
	store.keypost(t, "key", "add", "prod", "--public-key-file", file).ok(t)
	if full { // a look takes ten seconds
		t.Run("a key that is not exported has not been seen", func(t *testing.T) {
			origin.up(t)
			edgeTo(address, "127.0.0.1:443") // it has no copy, and asks keypostd
			header := filepath.Join(t.TempDir(), "header")
			must(t, os.WriteFile(header, []byte("X-Origin-Secret: "+cdnSecret+"\n"), 0o600))
			seen := func() (all int) {
				env := []string{"KEYPOST_STORE=file://" + store.store, "KEYPOST_OBSERVATIONS=file://" + t.TempDir(), "SSL_CERT_FILE=" + ca.file, "KEYPOST_ORIGIN=" + address, "KEYPOST_ORIGIN_HEADER_FILE=" + header}
				text := command(t, env, "", binary("keypost"), "issuer", "observe", "prod", "-o", "json").ok(t)
				return strings.Count(text, `"seenSince"`)
			}
			if n := seen(); n != 1 {
				t.Errorf("%d keys have been seen everywhere, and the fallback has one", n)
			}
			store.keypost(t, "export", exported).ok(t)
			if n := seen(); n != 2 {
				t.Errorf("%d keys have been seen everywhere, and there are two", n)
			}
		})
	}
	store.keypost(t, "export", exported).ok(t)
	origin.stop(t, 5*time.Second)
	if got := answer(edge(), "/prod/keys.json"); strings.Count(got, `"kid"`) != 2 {
		t.Errorf("the new key is not there: %s", got)
	}
}
