package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/listen"
	"github.com/keypost/keypost/test/process"
)

func TestACMEHosts(t *testing.T) {
	for name, tt := range map[string]struct {
		issuers    []string
		aliases    map[string]string
		configured []string
		want       []string
		err        string
	}{
		"the issuer's":          {issuers: []string{"https://oidc.example.com/{name}"}, want: []string{"oidc.example.com"}},
		"two":                   {issuers: []string{"https://b.example.com/{name}", "a=https://a.example.com"}, want: []string{"a.example.com", "b.example.com"}},
		"behind a CDN":          {issuers: []string{"https://oidc.example.com/{name}"}, aliases: map[string]string{"origin.example.com": "oidc.example.com"}, want: []string{"origin.example.com"}},
		"behind one, listed":    {issuers: []string{"https://oidc.example.com/{name}"}, aliases: map[string]string{"origin.example.com": "oidc.example.com"}, configured: []string{"origin.example.com", "oidc.example.com"}, want: []string{"origin.example.com", "oidc.example.com"}},
		"a pattern":             {issuers: []string{"https://{name}.oidc.example.com"}, err: "hosts below oidc.example.com: name each"},
		"a pattern, listed":     {issuers: []string{"https://{name}.oidc.example.com"}, configured: []string{"a.oidc.example.com"}, want: []string{"a.oidc.example.com"}},
		"a name of nobody's":    {issuers: []string{"https://oidc.example.com/{name}"}, configured: []string{"oidc.example.com", "www.example.com"}, err: `"www.example.com", which is not a host`},
		"one that is forgotten": {issuers: []string{"https://oidc.example.com/{name}", "a=https://a.example.com"}, configured: []string{"oidc.example.com"}, err: "does not have a.example.com"},
	} {
		patterns, err := issuer.ParsePatterns(tt.issuers, false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := acmeHosts(tt.configured, certHosts(issuer.Hosts(patterns), tt.aliases), knownHost(patterns, tt.aliases))
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, tt.want, tt.err)
		}
	}
}

// Every setting of listen.tls.acme reaches the orders.
func TestACMESettings(t *testing.T) {
	hosts := []string{"oidc.example.com"}
	for text, want := range map[string]listen.ACMEConfig{
		`cache: c`: {Hosts: hosts, Cache: "c"},
		`cache: c, directory: staging, email: ops@example.com, httpAddress: ":80"`: {
			Hosts: hosts, Cache: "c", Directory: listen.LetsEncryptStaging, Email: "ops@example.com", HTTP01: true,
		},
		`cache: c, directory: "https://ca.example/dir", caFile: ca.pem, externalAccount: {keyID: k, hmacKeyFile: h}`: {
			Hosts: hosts, Cache: "c", Directory: "https://ca.example/dir", CAFile: "ca.pem", KeyID: "k", MACKeyFile: "h",
		},
	} {
		c, err := parseConfig([]byte("dir: d\nissuerURLs: [\"https://oidc.example.com/{name}\"]\nlisten: {tls: {mode: acme, acme: {acceptTerms: true, " + text + "}}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Listen.TLS.ACME.settings(hosts); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", text, got, want)
		}
	}
}

// The listener for challenges ends with the others: a daemon that waited for it would end with an error.
func TestChallengeListenerEnds(t *testing.T) {
	address := process.FreeAddress(t)
	c, err := parseConfig(fmt.Appendf(nil, `dir: %q
issuerURLs: ["https://oidc.example.com/{name}"]
listen: {tls: {mode: acme, acme: {acceptTerms: true, cache: %q, httpAddress: %q}}}
`, t.TempDir(), filepath.Join(t.TempDir(), "cache"), address))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	d, err := newDaemon(c, "", &log)
	if err != nil {
		t.Fatal(err)
	}
	if c := d.challengeListener(d.certificates.(*listen.ACME), func() {}); c.MaxConnections != listen.MaxChallengers { //nolint:forcetypeassert // mode acme
		t.Errorf("it takes the place of the public listener: %+v", c)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- d.serveChallenges(ctx, func() {}) }()
	process.Await(t, "an answer", func() error {
		res, err := http.Get("http://" + address + "/.well-known/acme-challenge/none") //nolint:noctx // a local server
		if err != nil {
			return err
		}
		return res.Body.Close()
	})
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it serves on")
	}
	if !strings.Contains(log.String(), "challenge listener is up") || !strings.Contains(log.String(), "draining") {
		t.Errorf("the log: %s", log.String())
	}
}
