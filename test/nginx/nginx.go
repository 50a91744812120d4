// Package nginx runs a real nginx on loopback for tests: one worker, TLS, one server, a cache zone named z, and nothing
// outside its own directory.
package nginx

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/keypost/keypost/test/process"
)

// config is for a directory %[1]s and an address %[2]s; %[3]s is in the http block, %[4]s in the server block and %[5]s behind listen.
const config = `daemon off;
worker_processes 1;
pid %[1]s/pid;
user root;
error_log stderr crit;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	proxy_cache_path %[1]s/cache levels=1 keys_zone=z:1m inactive=60m use_temp_path=off;
	%[3]s
	server {
		listen %[2]s ssl %[5]s;
		%[4]s
	}
}
`

// Options are directives of the caller's.
type Options struct {
	Cert, Key    string // PEM files
	Address      string // host:port of 127.0.0.1; a free one where it is empty
	Listen       string // more parameters of listen
	HTTP, Server string // more directives in the http and in the server block
}

// Server is an nginx that runs until the end of the test.
type Server struct {
	Dir     string // its directory, readable to all; copies lie in Dir/cache
	Address string // host:port of 127.0.0.1
}

// Program returns the path of nginx. The error is an [exec.ErrNotFound] where it is not installed.
func Program() (string, error) {
	program, err := exec.LookPath("nginx")
	if errors.Is(err, exec.ErrNotFound) { // Debian keeps servers outside an ordinary user's PATH
		program, err = exec.LookPath("/usr/sbin/nginx")
	}
	return program, err
}

// Start starts nginx in a directory that Directory made, and waits until it listens.
func Start(t testing.TB, dir string, o Options) Server {
	t.Helper()
	program, err := Program()
	if err != nil {
		t.Fatal(err)
	}
	s := Server{Dir: dir, Address: o.Address}
	if s.Address == "" {
		s.Address = process.FreeAddress(t)
	}
	server := fmt.Sprintf("ssl_certificate %s; ssl_certificate_key %s;\n\t\t%s", o.Cert, o.Key, o.Server)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, dir, s.Address, o.HTTP, server, o.Listen), 0o600); err != nil {
		t.Fatal(err)
	}
	p := process.Start(t, exec.Command(program, "-p", dir, "-c", file, "-e", "stderr")) //nolint:gosec // a test's own program
	t.Cleanup(func() { p.Stop(10 * time.Second) })
	p.Await(t, "nginx listens", func() error {
		conn, err := net.Dial("tcp", s.Address)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return s
}

// Directory makes a directory that nginx's workers may read.
func Directory(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // nginx's workers may be another user's
		t.Fatal(err)
	}
	return dir
}
