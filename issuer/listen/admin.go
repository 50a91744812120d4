package listen

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Admin is what the admin listener shows. It has no authentication and belongs on
// loopback or the pod network; nothing it serves is secret, and nothing can be
// changed through it.
type Admin struct {
	// Metrics serves /metrics. Nil means 404. It is called for one request at a time,
	// without header fields; those that come meanwhile share the next page.
	Metrics http.Handler
	// Ready says why this process should get no traffic, or nil. It must not
	// block. A nil Ready means always ready.
	Ready func() error
	// Extra serves further paths, such as "/issuers"; the three built-in ones win.
	Extra map[string]http.Handler
	// Log receives trouble of the listener. Nil means silence.
	Log *zap.Logger
	// Listening is called once the socket is bound. Optional.
	Listening func(net.Addr)
}

const (
	adminConnections  = 256
	adminDrainTimeout = 2 * time.Second
	// adminIdle is short: a scrape comes every few seconds and costs little to connect.
	adminIdle = 5 * time.Second
)

// ServeAdmin serves /metrics, /livez, /readyz and the extra paths as plain HTTP on
// address until ctx is done. That context should outlive the one of Serve: probes
// and scrapes are wanted most during the drain. Errors are those of Serve.
func ServeAdmin(ctx context.Context, address string, a Admin) error {
	return serveAdmin(ctx, address, a, "admin")
}

// ServeProbes serves /livez and /readyz of a alone, as ServeAdmin does. On an
// address that nobody but the prober reaches, no other client can starve a probe.
func ServeProbes(ctx context.Context, address string, a Admin) error {
	a.Metrics, a.Extra = nil, nil
	return serveAdmin(ctx, address, a, "probe")
}

func serveAdmin(ctx context.Context, address string, a Admin, name string) error {
	if a.Log == nil {
		a.Log = zap.NewNop()
	}
	ln, err := bind(ctx, address, adminConnections, a.Log)
	if err != nil {
		return fmt.Errorf("open the %s listener: %w", name, err)
	}
	defer ln.Close() //nolint:errcheck // closed by the drain already
	if a.Listening != nil {
		a.Listening(ln.Addr())
	}
	srv := newServer(a.handler(), Limits{Idle: adminIdle}.withDefaults(), newNoise(a.Log))
	c := Config{DrainDelay: -1, DrainTimeout: adminDrainTimeout, Log: a.Log}
	return run(ctx, c, srv, ln)
}

// handler looks paths up as they are: a mux would redirect unclean ones.
func (a Admin) handler() http.Handler {
	paths := map[string]http.Handler{}
	maps.Copy(paths, a.Extra)
	paths["/livez"] = statusPage(func() error { return nil })
	paths["/readyz"] = statusPage(a.Ready)
	if a.Metrics != nil {
		paths["/metrics"] = share(a.Metrics)
	} else {
		delete(paths, "/metrics")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		h := paths[r.URL.Path]
		switch {
		case h == nil:
			http.Error(w, "not found", http.StatusNotFound)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// statusPage answers 200 and "ok", or 503 and the reason in one line.
func statusPage(check func() error) http.Handler {
	if check == nil {
		check = func() error { return nil }
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, strings.Join(strings.Fields(err.Error()), " ")+"\n")
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
}
