//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/keypost/keypost/test/nginx"
)

// cacheOptions make nginx obey Cache-Control: max-age, stale-while-revalidate and stale-if-error, as nginx reads them by itself,
// before keypostd at host %s. A request with the header X-Prime is answered by the origin, and the answer kept.
const cacheOptions = `proxy_cache z; proxy_cache_key $uri; proxy_cache_background_update on; proxy_cache_revalidate on; proxy_cache_bypass $http_x_prime;
		proxy_ssl_server_name on; proxy_ssl_name localhost; proxy_set_header Host %s;
		add_header X-Cache $upstream_cache_status always;
		%s`

// startCache starts a real nginx as a cache of keypostd at host, and returns where it listens. Locations say through which
// address it reaches what.
func startCache(t *testing.T, ca *authority, host string, locations []string) (address string) {
	t.Helper()
	dir := nginx.Directory(t)
	cert, key := ca.issue(t, "cache-"+filepath.Base(dir), "localhost")
	s := nginx.Start(t, dir, nginx.Options{Cert: cert, Key: key, Server: fmt.Sprintf(cacheOptions, host, strings.Join(locations, "\n\t\t"))})
	return strings.Replace(s.Address, "127.0.0.1", "localhost", 1)
}

// prime has a cache read a document from its origin now.
func prime(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Prime", "1")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if how := res.Header.Get("X-Cache"); res.StatusCode != http.StatusOK || how != "BYPASS" {
		return fmt.Errorf("prime %s: %s, %s", url, res.Status, how)
	}
	return nil
}

// lists reports whether the JWKS at url has a key.
func lists(ctx context.Context, client *http.Client, url, kid string) (bool, error) {
	body, err := fetch(ctx, client, url, "")
	return strings.Contains(string(body), kid), err
}

// link is a way to an origin that can be cut: connections are then taken and closed at once.
type link struct {
	address string

	mu     sync.Mutex
	origin string
	cut    bool
	open   map[net.Conn]bool
}

// lead has new connections end at another origin.
func (l *link) lead(origin string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.origin = origin
}

func (l *link) end() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.origin
}

func newLink(t *testing.T, origin string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l := &link{address: listener.Addr().String(), origin: origin, open: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = listener.Close()
		l.set(true)
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.carry(conn)
		}
	}()
	return l
}

// set cuts the link with all its connections, or restores it.
func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for conn := range l.open {
		if cut {
			_ = conn.Close()
		}
	}
}

func (l *link) keep(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[conn] = true
	return !l.cut
}

func (l *link) drop(conn net.Conn) {
	_ = conn.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, conn)
}

func (l *link) carry(from net.Conn) {
	defer l.drop(from)
	if !l.keep(from) {
		return
	}
	to, err := net.Dial("tcp", l.end())
	if err != nil {
		return
	}
	defer l.drop(to)
	if !l.keep(to) {
		return
	}
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(from, to)
}
