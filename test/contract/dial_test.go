package contract

import (
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keypost/keypost/test/process"
)

// Nothing that a request names is ever dialled. Servers of the same kind fetched what a route named, or forwarded methods and hosts.
func TestDialsNobodyForStrangers(t *testing.T) {
	t.Parallel()
	v := ready(t, newEstate(t).settings)
	at, dialled := victim(t)
	for _, request := range []string{
		"GET http://" + at + "/ HTTP/1.1\r\nHost: " + at,
		"GET https://" + at + "/keys.json HTTP/1.1\r\nHost: oidc.example.com",
		"GET /keys/%257Bissuer%257D?issuer=http://" + at + "/ HTTP/1.1\r\nHost: oidc.example.com",
		"GET /prod-a/keys.json?issuer=http://" + at + "/ HTTP/1.1\r\nHost: oidc.example.com\r\nX-Forwarded-Host: " + at + "\r\nReferer: http://" + at + "/",
		"GET /prod-a/keys.json HTTP/1.1\r\nHost: " + at,
		"CONNECT " + at + " HTTP/1.1\r\nHost: " + at,
		"POST /prod-a/keys.json HTTP/1.1\r\nHost: oidc.example.com\r\nContent-Length: 0\r\nLocation: http://" + at + "/",
	} {
		v.send(t, request)
	}
	if n := dialled.Load(); n > 0 {
		t.Errorf("keypostd dialled an address that a request named, %d times", n)
	}
}

// victim is an address at which connections are counted and closed.
func victim(t *testing.T) (address string, dialled *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	dialled = &atomic.Int64{}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			_ = conn.Close()
		}
	}()
	return l.Addr().String(), dialled
}

// send sends a request as it is and returns the whole answer.
func (v *server) send(t *testing.T, request string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", v.public, &tls.Config{RootCAs: v.roots(t), ServerName: "oidc.example.com"})
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(process.Patience)))
	_, err = io.WriteString(conn, request+"\r\nConnection: close\r\n\r\n")
	must(t, err)
	answer, err := io.ReadAll(conn)
	must(t, err)
	return string(answer)
}
