//go:build e2e

package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keypost/keypost/test/nginx"
	programs "github.com/keypost/keypost/test/process"
)

// behindConfig starts a proxy whose configuration is a file of testdata/proxies. args may hold the same words as the file.
func (g *garden) behindConfig(t *testing.T, name, file, program string, args ...string) front {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "proxies", file))
	must(t, err)
	dir := publicDirectory(t)
	fill := g.words(t, dir, name)
	p := front{name: name, address: fill("ADDRESS"), caches: strings.Contains(string(text), "cache")}
	config := filepath.Join(dir, file)
	must(t, os.WriteFile(config, []byte(fill(string(text))), 0o644))
	for i := range args {
		args[i] = strings.ReplaceAll(fill(args[i]), "CONFIG", config)
	}
	g.started(t, p, program, args...)
	return p
}

// publicDirectory makes a directory that every user may write to: some proxies become another user.
func publicDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "proxy")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o777))
	return dir
}

// words returns a function that replaces what a configuration is about.
func (g *garden) words(t *testing.T, dir, name string) func(string) string {
	t.Helper()
	cert, key := g.certificate(t, "edge-"+strings.ReplaceAll(name, " ", "-"))
	var both []byte
	for i, file := range []string{cert, key} {
		text, err := os.ReadFile(file)
		must(t, err)
		both = append(both, text...)
		must(t, os.WriteFile(filepath.Join(dir, []string{"edge.crt", "edge.key"}[i]), text, 0o644))
	}
	must(t, os.WriteFile(filepath.Join(dir, "edge.pem"), both, 0o644))
	ca, err := os.ReadFile(g.ca.file)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o644))
	must(t, os.MkdirAll(filepath.Join(dir, "cache"), 0o777))
	must(t, os.Chmod(filepath.Join(dir, "cache"), 0o777))
	address := programs.FreeAddress(t)
	host, port, err := net.SplitHostPort(address)
	must(t, err)
	plainHost, plainPort, err := net.SplitHostPort(g.plain)
	must(t, err)
	return strings.NewReplacer("PLAIN_ORIGIN", g.plain, "PLAIN_HOST", plainHost, "PLAIN_PORT", plainPort, "TLS_ORIGIN", g.tls, "ADDRESS", address,
		"CERT", filepath.Join(dir, "edge.crt"), "KEY", filepath.Join(dir, "edge.key"), "CA", filepath.Join(dir, "ca.pem"), "DIR", dir, "HOST", host, "PORT", port).Replace
}

// started starts the program and waits until it listens. A document is not asked for: the first request is the table's.
func (g *garden) started(t *testing.T, p front, program string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		path = filepath.Join("/usr/sbin", program) // Debian keeps servers outside an ordinary user's PATH
	}
	s := start(t, strings.ReplaceAll(p.name, " ", "-"), path, args...)
	s.await(t, "listens", func(context.Context) error {
		c, err := p.dial(g.roots, "oidc.keypost.test", "http/1.1")
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

func (g *garden) nginx(t *testing.T) front { return g.nginxWith(t, "nginx") }

// nginxWith starts nginx as docs/cdn has it, with some text replaced.
func (g *garden) nginxWith(t *testing.T, name string, replaced ...string) front {
	t.Helper()
	dir := nginx.Directory(t)
	text := documented(t, "nginx.conf", "ORIGIN", g.tls, "/var/cache/nginx/keypost", filepath.Join(dir, "keypost"),
		"include /etc/nginx/keypost-secret.conf;", "", "/etc/ssl/certs/ca-certificates.crt", g.ca.file)
	for i := 0; i < len(replaced); i += 2 {
		if !strings.Contains(text, replaced[i]) {
			t.Fatalf("nginx.conf does not have %q", replaced[i])
		}
	}
	inHTTP, rest, _ := strings.Cut(strings.NewReplacer(replaced...).Replace(text), "# server {")
	inServer, _, _ := strings.Cut(rest, "\n# }")
	cert, key := g.certificate(t, "edge-"+filepath.Base(dir))
	s := nginx.Start(t, dir, nginx.Options{Cert: cert, Key: key, HTTP: inHTTP, Server: inServer, Listen: "http2"})
	return front{name: name, address: s.Address, caches: true}
}

// varnish is as docs/cdn has it. It speaks no TLS: its HTTP/2 is what a proxy that ends TLS passes on.
func (g *garden) varnish(t *testing.T) front {
	t.Helper()
	host, port, err := net.SplitHostPort(g.plain)
	must(t, err)
	dir := t.TempDir()
	vcl := filepath.Join(dir, "keypost.vcl")
	must(t, os.WriteFile(vcl, []byte(documented(t, "varnish.vcl", "ORIGIN_HOST", host, "ORIGIN_PORT", port, "SECRET", cdnSecret)), 0o644))
	p := front{name: "Varnish", address: programs.FreeAddress(t), plain: true, caches: true}
	g.started(t, p, "varnishd", "-F", "-j", "none", "-n", filepath.Join(dir, "run"), "-a", p.address, "-f", vcl, "-s", "malloc,16m", "-T", "none", "-p", "feature=+http2")
	return p
}

func (g *garden) haproxy(t *testing.T) front {
	return g.behindConfig(t, "haproxy", "haproxy.cfg", "haproxy", "-db", "-f", "CONFIG")
}
