package cloudcmd

import (
	"bytes"
	"strings"
	"testing"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/provision/install"
)

// What withdraws an issuer does so as it is printed: where a key is active, or may be for all that is known, that takes --force.
func TestStillPublished(t *testing.T) {
	const url = "https://oidc.example.com/prod-a"
	for _, tt := range []struct {
		name          string
		issuer        install.StillPublished
		command, says string // both empty where nothing is published
	}{
		{name: "a key is active", issuer: install.StillPublished{URL: url, KeySet: "prod-a", Signs: true, Asked: true},
			command: "keypost issuer remove prod-a --confirm-url " + url + " --why REASON --force", says: "as a key is active"},
		{name: "no key is active", issuer: install.StillPublished{URL: url, KeySet: "prod-a", Asked: true},
			command: "keypost issuer remove prod-a --confirm-url " + url + " --why REASON", says: "when nothing trusts them any more, this"},
		{name: "no store was asked", issuer: install.StillPublished{URL: url},
			command: "keypost issuer remove " + url + " --confirm-url " + url + " --why REASON --force --store STORE", says: "no cluster signs with them"},
		{name: "the store publishes nothing of it", issuer: install.StillPublished{URL: url, Asked: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var said bytes.Buffer
			(&Run{Factory: &cli.Factory{Err: &said}}).SayStillPublished(tt.issuer)
			lines := strings.Split(said.String(), "\n")
			if tt.command == "" {
				if said.Len() > 0 {
					t.Errorf("it said %q", said.String())
				}
				return
			}
			if got := lines[len(lines)-2]; got != "  "+tt.command || !strings.Contains(said.String(), tt.says) {
				t.Errorf("it said:\n%s\nnot %q, and as its last line\n  %s", said.String(), tt.says, tt.command)
			}
		})
	}
}

// Whose CA is not trusted is told how to have it trusted.
func TestUntrustedCA(t *testing.T) {
	const want = "warning: the certificate is not trusted; if this is your own CA, stop this, set SSL_CERT_FILE to a file that has it, and run it again\n"
	var said bytes.Buffer
	factory := &cli.Factory{Err: &said}
	r := &Run{Factory: factory, flags: &Flags{}, journal: newJournal(factory.Live())}
	r.report(install.Event{Kind: install.UntrustedCA, Text: "the certificate is not trusted"})
	if said.String() != want {
		t.Errorf("it said %q, want %q", said.String(), want)
	}
}
