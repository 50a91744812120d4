package fakeazure

import (
	"slices"
	"testing"

	"github.com/keypost/keypost/test/fakecloud"
)

// Hosts are the names that a certificate needs for programs that find the server by its Tunnel.
func Hosts() []string {
	return slices.Concat(managementHosts, loginHosts)
}

// Tunnel serves over HTTPS, and a proxy to there, until the test ends. It returns what a program needs in its environment to
// find the server at Microsoft's own names, and to trust it.
func (s *Server) Tunnel(t testing.TB) []string {
	t.Helper()
	return fakecloud.StartTunnel(t, "fakeazure", Hosts(), s.ServeTLS)
}
