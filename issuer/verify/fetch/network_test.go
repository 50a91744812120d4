package fetch

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/keypost/keypost/keystore"
)

// An origin of a policy may have a port of its own, while a jwks_uri with another port than the issuer's is asked for at that one.
func TestAtAsksTheAddress(t *testing.T) {
	dev, err := keystore.ParseIssuerURL("https://localhost:8443/dev", true)
	if err != nil {
		t.Fatal(err)
	}
	u, err := keystore.ParseIssuerURL("https://oidc.example.com/prod", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		issuer             keystore.IssuerURL
		address, url, want string
	}{
		{u, "192.0.2.1:443", "https://oidc.example.com/prod/keys.json", "192.0.2.1:443"},
		{u, "192.0.2.9:8443", "https://oidc.example.com/prod/keys.json", "192.0.2.9:8443"},
		{u, "192.0.2.1:443", "https://oidc.example.com:9443/keys.json", "192.0.2.1:9443"},
		{u, "192.0.2.1:443", "https://other.example.com/keys.json", "other.example.com:443"},
		{dev, "127.0.0.1:8443", "https://localhost:8443/dev/keys.json", "127.0.0.1:8443"},
		{dev, "127.0.0.1:9000", "https://localhost:8443/dev/keys.json", "127.0.0.1:9000"},
	} {
		dialled := ""
		n := Network{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			dialled = address
			return nil, errors.New("no network")
		}}
		if _, err := n.At(tt.issuer, tt.address).Get(t.Context(), tt.url); err == nil || dialled != tt.want {
			t.Errorf("%s at %s: asked %s (%v), want %s", tt.url, tt.address, dialled, err, tt.want)
		}
	}
}
