package fakegcp

import (
	"testing"

	"github.com/keypost/keypost/test/fakecloud"
)

// Tunnel serves over HTTPS, and a proxy to there, until the test ends. It returns what a program needs in its environment to
// find the server at Google's own names, and to trust it.
func (s *Server) Tunnel(t testing.TB) []string {
	t.Helper()
	return fakecloud.StartTunnel(t, "fakegcp", []string{"*.googleapis.com"}, s.ServeTLS)
}
