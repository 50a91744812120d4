package floor

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/keypost/keypost/issuer/listen"
)

// timeouts are what net/http sets timers for.
type timeouts struct {
	readHeader, read, write, idle time.Duration
	header                        int
}

func timeoutsOf(s *http.Server) timeouts {
	return timeouts{s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout, s.MaxHeaderBytes}
}

// A floor without keypostd's timeouts would be too cheap, one with longer ones is another server.
func TestTimeoutsAreThoseOfKeypostd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address, servers, served := make(chan net.Addr, 1), make(chan *http.Server, 1), make(chan error, 1)
	go func() {
		served <- listen.Serve(ctx, listen.Config{
			Address: "127.0.0.1:0", MaxConnections: 10, Listening: func(a net.Addr) { address <- a },
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				servers <- r.Context().Value(http.ServerContextKey).(*http.Server)
			}),
		})
	}()
	select {
	case a := <-address:
		r, err := http.Get("http://" + a.String())
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close() // nothing of it is wanted
	case err := <-served:
		t.Fatal(err)
	}
	if own, floors := timeoutsOf(<-servers), timeoutsOf(NewServer("", nil)); own != floors {
		t.Errorf("keypostd has %+v, the floor %+v", own, floors)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
