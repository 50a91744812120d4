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

	"github.com/keypost/keypost/test/bench/floor"
)

// build makes the programs that are measured, as make build does.
func (b *bench) build(ctx context.Context) error {
	b.bin = filepath.Join(b.dir, "bin")
	if err := os.Mkdir(b.bin, 0o700); err != nil {
		return err
	}
	const module = "github.com/keypost/keypost/"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.bin, module+"cmd/keypostd", module+"cmd/keypost", module+"test/bench/bare") //nolint:gosec // our own programs
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
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

// startKeypostd starts a keypostd, that of this tree or another one, on a directory of key sets.
func (b *bench) startKeypostd(ctx context.Context, name, binary, keySets string) (*server, error) {
	public, err := freeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(b.dir, name+".config.yaml")
	text := fmt.Sprintf(keypostdConfig, keySets, host, public, b.cert.certFile, b.cert.keyFile, admin)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s, err := b.spawn(ctx, program{name: name, argv: []string{binary, "--config", file}, ready: answersOK("http://" + admin + "/readyz")})
	if err != nil {
		return nil, err
	}
	s.address, s.admin = public, admin
	return s, nil
}

func (b *bench) keypostd() string { return filepath.Join(b.bin, "keypostd") }

// startFloor serves a recording with the settings of a garbage collector.
func (b *bench) startFloor(ctx context.Context, name, recording string, gc collector) (*server, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s, err := b.spawn(ctx, program{
		name: name, argv: []string{filepath.Join(b.bin, "bare"), address, b.cert.certFile, b.cert.keyFile, recording},
		env: gc.env(), ready: connects(address),
	})
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
	sendfile on; tcp_nopush on; default_type application/json;
	ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache off; ssl_session_tickets off;
	server {
		listen %[2]s ssl; root %[1]s; ssl_certificate %[3]s; ssl_certificate_key %[4]s;
		add_header Last-Modified "";
%[5]s	}
}
`

var errNoNginx = errors.New("nginx is not installed (Debian: nginx-light)")

// startNginx serves a recording from files.
func (b *bench) startNginx(ctx context.Context, rec *floor.Recording) (*server, error) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		return nil, errNoNginx
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("nginx-%d", len(rec.Pages))
	root := filepath.Join(b.dir, name)
	if err := writeFiles(root, rec); err != nil {
		return nil, err
	}
	conf := filepath.Join(root, "nginx.conf")
	text := fmt.Sprintf(nginxConfig, root, address, b.cert.certFile, b.cert.keyFile, addHeaders(rec.Header))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s, err := b.spawn(ctx, program{name: name, argv: []string{path, "-p", root, "-e", "stderr", "-c", conf}, ready: connects(address)})
	if err != nil {
		return nil, err
	}
	s.address = address
	return s, nil
}

func writeFiles(root string, rec *floor.Recording) error {
	for path, p := range rec.Pages {
		file := filepath.Join(root, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // public data
			return err
		}
		if err := os.WriteFile(file, p.Body, 0o644); err != nil { //nolint:gosec // public data
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
