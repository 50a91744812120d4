package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// build makes the programs that are measured, as anybody would build them.
func (b *bench) build(ctx context.Context) error {
	b.bin = filepath.Join(b.dir, "bin")
	if err := os.Mkdir(b.bin, 0o700); err != nil {
		return err
	}
	const module = "github.com/keypost/keypost/"
	cmd := exec.CommandContext(ctx, "go", "build", "-o", b.bin, module+"cmd/keypostd", module+"test/bench/bare") //nolint:gosec // our own programs
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

const keypostdConfig = `dir: %s
issuerURLs: ["https://%s/{name}"]
listen:
  address: %s
  tls: {files: [{cert: %s, key: %s}]}
admin: {address: %s}
`

func (b *bench) startKeypostd(ctx context.Context, keySets string) (*server, error) {
	public, err := freeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	file := keySets + ".config.yaml"
	text := fmt.Sprintf(keypostdConfig, keySets, host, public, b.cert.certFile, b.cert.keyFile, admin)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s, err := b.spawn(ctx, answersOK("http://"+admin+"/readyz"), filepath.Base(keySets), filepath.Join(b.bin, "keypostd"), "--config", file)
	if err != nil {
		return nil, err
	}
	s.address = public
	return s, nil
}

// startBare serves a recorded response of keypostd.
func (b *bench) startBare(ctx context.Context, name string, recorded []byte) (*server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(b.dir, name+".response")
	if err := os.WriteFile(file, recorded, 0o600); err != nil {
		return nil, err
	}
	s, err := b.spawn(ctx, connects(address), name, filepath.Join(b.bin, "bare"), address, b.cert.certFile, b.cert.keyFile, file)
	if err != nil {
		return nil, err
	}
	s.address = address
	return s, nil
}

// One process, so that its CPU clock is all of it; otherwise Debian's defaults, without an access log.
const nginxConfig = `daemon off; master_process off; pid %[1]s/nginx.pid; error_log stderr crit;
events {}
http {
	access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;
	client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	sendfile on; tcp_nopush on; default_type application/json; etag off;
	ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache off; ssl_session_tickets off;
	server {
		listen %[2]s ssl http2; root %[1]s; ssl_certificate %[3]s; ssl_certificate_key %[4]s;
		add_header Last-Modified "";
%[5]s	}
}
`

var errNoNginx = errors.New("nginx is not installed (Debian: nginx-light)")

// startNginx serves the bodies of n issuers from files, with the headers of a recorded response.
func (b *bench) startNginx(ctx context.Context, n int, header http.Header, body []byte) (*server, error) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		return nil, errNoNginx
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	root := filepath.Join(b.dir, "nginx")
	if err := writeFiles(root, n, body); err != nil {
		return nil, err
	}
	conf := filepath.Join(root, "nginx.conf")
	text := fmt.Sprintf(nginxConfig, root, address, b.cert.certFile, b.cert.keyFile, addHeaders(header))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s, err := b.spawn(ctx, connects(address), "nginx", path, "-p", root, "-e", "stderr", "-c", conf)
	if err != nil {
		return nil, err
	}
	s.address = address
	return s, nil
}

func writeFiles(root string, n int, body []byte) error {
	for i := range n {
		dir := filepath.Join(root, string(issuerName(i)))
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // public data
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "keys.json"), body, 0o644); err != nil { //nolint:gosec // public data
			return err
		}
	}
	return nil
}

// addHeaders spells the headers that nginx does not set by itself.
func addHeaders(header http.Header) string {
	var lines strings.Builder
	for name, values := range header {
		switch name {
		case "Date", "Content-Length", "Content-Type", "Connection":
		default:
			fmt.Fprintf(&lines, "\t\tadd_header %s '%s';\n", name, values[0])
		}
	}
	return lines.String()
}
