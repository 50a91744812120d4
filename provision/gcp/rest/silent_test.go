package rest

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/keypost/keypost/test/silent"
)

// A Google that says nothing costs who uploads to it no connection and no goroutine for long.
func TestSilentServer(t *testing.T) {
	s := silent.Listen(t, "")
	c, err := Open(t.Context(), Access{Project: "p", Tokens: oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "t"})})
	if err != nil {
		t.Fatal(err)
	}
	c.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.Address)
	}
	s.LeavesNothing(t, func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return c.Ask(ctx, Call{Service: IAM, Name: "X", Path: "x"}, nil)
	})
}
