// Package admin serves the metrics and health of a process to those who run it, as plain HTTP without authentication. It
// belongs on loopback or a pod network; no key or password is served, what names people only as [Local] allows, and nothing
// can be changed through it. It promises that no number of clients keeps a probe or a scrape from its answer, or costs much
// memory.
package admin

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"maps"
	"net"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Pages are what a server serves beside /livez, which answers 200 as long as the process serves at all.
type Pages struct {
	// Metrics serves /metrics; nil means 404. It is called for one request at a time, without header fields; requests that
	// come meanwhile share the page.
	Metrics http.Handler
	// Ready returns why this process should get no traffic, which makes /readyz a 503, or nil. It must not block. A nil
	// Ready means always ready.
	Ready func() error
	// Extra serves further paths, such as "/issuers". The three above win.
	Extra map[string]http.Handler
	// Rest serves every path that nothing else serves; nil means 404.
	Rest http.Handler
}

const (
	// MaxConnections is how many connections a server has open. It closes others to make room for new ones.
	MaxConnections = 256

	headerTimeout = 5 * time.Second
	writeTimeout  = 10 * time.Second
	// idleTimeout is short: a scrape comes every few seconds and costs little to connect.
	idleTimeout  = 5 * time.Second
	maxHeader    = 16 << 10
	drainTimeout = 2 * time.Second
)

// Server is a server whose address is bound.
type Server struct {
	listener *listener
	http     *http.Server
}

// Listen binds address, host:port, for a server of pages. log receives trouble of the server.
func Listen(ctx context.Context, address string, pages Pages, log *zap.Logger) (*Server, error) {
	l, err := listen(ctx, address)
	if err != nil {
		return nil, err
	}
	return &Server{l, &http.Server{
		Handler: pages.handler(), ErrorLog: stdlog.New(errorLog{log}, "", 0), ConnState: noteState,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
	}}, nil
}

// Addr returns the address that is bound.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve serves until ctx is done, which should be after the public side has drained: probes and scrapes are wanted most
// during a drain. It returns nil then, and an error when the listener fails.
func (s *Server) Serve(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // the sockets are gone either way
	}
	<-served
	return nil
}

// errorLog receives what net/http logs.
type errorLog struct{ log *zap.Logger }

func (l errorLog) Write(line []byte) (int, error) {
	l.log.Warn("the HTTP server reports trouble", zap.String("detail", strings.TrimSpace(string(line))))
	return len(line), nil
}

// handler looks paths up as they are: a mux would redirect unclean ones.
func (p Pages) handler() http.Handler {
	paths := map[string]http.Handler{}
	maps.Copy(paths, p.Extra)
	paths["/livez"] = statusPage(func() error { return nil })
	paths["/readyz"] = statusPage(p.Ready)
	if p.Metrics != nil {
		paths["/metrics"] = &sharedPage{of: p.Metrics}
	} else {
		delete(paths, "/metrics")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		h := paths[r.URL.Path]
		if h == nil {
			h = p.Rest
		}
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
