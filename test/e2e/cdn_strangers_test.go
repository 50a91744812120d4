//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/keypost/keypost/test/keys"
)

// TestStrangersBehindCaches has a stranger ask small caches for thousands of paths, hosts and URLs, then stops keypostd: the documents
// are still there. Each guard of docs/cdn is taken out once, and then they are not.
func TestStrangersBehindCaches(t *testing.T) {
	ca := newAuthority(t)
	store := newStore(t, ca)
	file := t.TempDir() + "/key.pub"
	writePublicKey(t, file, keys.NewEC())
	store.keypost(t, "issuer", "add", "prod", "--url", "https://"+cdnHost+"/prod", "--public-key-file", file, "--stale-if-error", "24h").ok(t)
	tlsOrigin, tlsAddress := newOrigin(t, ca, store.store, cdnHost)
	plainOrigin, plainAddress := newOrigin(t, ca, store.store, "")
	const asked = 2000
	small := []string{"keys_zone=keypost:10m", "keys_zone=keypost:64k"} // some 350 copies
	instead := func(own ...string) edge { return nginxEdge(t, ca, tlsOrigin, tlsAddress, append(small, own...)...) }
	varnish := func(own ...string) edge { return varnishEdge(t, ca, plainOrigin, plainAddress, "1m", own...) }
	cases := []struct {
		what  string
		edge  edge
		keeps bool // the documents, after all of it
	}{
		{"as documented", nginxEdge(t, ca, tlsOrigin, tlsAddress, small...), true},
		{"with 404s kept", instead("proxy_no_cache $keypost_new_404;", ""), false},
		{"with the query kept", instead("proxy_cache_key $host$keypost_path;", "proxy_cache_key $host$request_uri;"), false},
		{"as documented", varnish(), true},
		{"with 404s kept", varnish("set beresp.uncacheable = true;\n\t\tset beresp.ttl = 1s;", "set beresp.ttl = 60s;"), false},
		{"with Host as it came", varnish(`set req.http.Host = regsub(`, `set req.http.X-Host = regsub(`), false},
		{"with the query kept", varnish(`set req.url = regsub(req.url, "\?.*$", "");`, ""), false},
		{"with URLs of any scheme kept", varnish(`req.url !~ "^/"`, `req.url ~ "^$"`), false},
	}
	paths := []string{"/prod/.well-known/openid-configuration", "/prod/keys.json", "/prod/openid/v1/jwks"}
	for _, c := range cases {
		for _, path := range paths {
			if _, _, err := c.edge.fetch(path); err != nil {
				t.Fatalf("%s, %s: %v", c.edge.name, c.what, err)
			}
		}
		began := time.Now()
		c.edge.fill(t, asked)
		t.Logf("%s, %s: %d requests of a stranger in %v", c.edge.name, c.what, 6*asked, time.Since(began).Round(time.Millisecond))
	}
	tlsOrigin.stop(t, 5*time.Second)
	plainOrigin.stop(t, 5*time.Second)
	for _, c := range cases {
		there := 0
		for _, path := range paths {
			if _, _, err := c.edge.fetch(path); err == nil {
				there++
			}
		}
		t.Logf("%s, %s: %d of %d documents are still there", c.edge.name, c.what, there, len(paths))
		if (there == len(paths)) != c.keeps {
			t.Errorf("%s, %s: %d of %d documents are still there", c.edge.name, c.what, there, len(paths))
		}
	}
}

// fill asks for two paths of nobody's, for the keys with a query, under a host with another port, as another spelling of the host and as a
// URL of another scheme: each so many times, and never twice the same.
func (e edge) fill(t *testing.T, times int) {
	t.Helper()
	transport := e.client.Transport.(*http.Transport).Clone()
	transport.DisableKeepAlives = false
	defer transport.CloseIdleConnections()
	client := &http.Client{Timeout: 5 * time.Second, Transport: transport}
	ask := func(path, host, opaque string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.url+path, nil)
		must(t, err)
		req.Host, req.URL.Opaque = host, opaque
		res, err := client.Do(req)
		must(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		must(t, err)
		must(t, res.Body.Close())
	}
	for i := range times {
		ask(fmt.Sprintf("/nobody-%d/keys.json", i), cdnHost, "") // a small answer: more of them fit into a cache
		ask(fmt.Sprintf("/nobody-%d/openid/v1/jwks", i), cdnHost, "")
		ask(fmt.Sprintf("/prod/keys.json?x=%d", i), cdnHost, "")
		ask("/prod/keys.json", fmt.Sprintf("%s:%d", cdnHost, 1+i), "")
		ask("/prod/keys.json", spelled(cdnHost, i), "")
		ask("", cdnHost, fmt.Sprintf("x%d://%s/prod/keys.json", i, cdnHost))
	}
}

// spelled returns the host with the letters at the bits of n in upper case, and a dot at its end for an odd n.
func spelled(host string, n int) string {
	text := []byte(host)
	for i := range text {
		if 'a' <= text[i] && text[i] <= 'z' && n>>i&1 == 1 {
			text[i] -= 'a' - 'A'
		}
	}
	if n&1 == 1 {
		text = append(text, '.')
	}
	return string(text)
}
