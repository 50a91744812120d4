// Package listen serves HTTPS to the open Internet. It speaks TLS 1.2 and 1.3 with
// HTTP/1.1, replaces certificates without a restart and stops without cutting a
// request short. The package knows no OIDC.
//
// What clients can hold is bounded by construction: slots times the worst request.
//   - A connection has one of Config.MaxConnections slots until nothing of it is left. While all are taken, connections
//     that are slow, idle or stalled make room, and new ones wait in the kernel's queue.
//   - A TLS handshake has 5 s and 16 KiB, a request's header 5 s, 8 KiB (and 4 KiB of net/http) and 100 fields; a request
//     with its body 5 s; its answer 10 s; a kept connection 90 s until the next request.
//   - So a connection takes 96 KiB of the process at most, and 88 KiB of the kernel's buffers: with a memory limit of
//     384 MiB there are 1,869 slots (FittingConnections).
package listen

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/keypost/keypost/issuer/listen/shield"
)

// Config has what Serve serves, and its bounds.
type Config struct {
	// Address is host:port; an empty host means every interface.
	Address string
	// Handler answers every request, "OPTIONS *" included. It must be given:
	// net/http would fall back to its process-wide mux, to which any linked
	// package may have added pages.
	Handler http.Handler
	// Certificates makes this HTTPS. Nil means plain HTTP/1.1, for use behind
	// a proxy that ends TLS; relying parties refuse an issuer without TLS.
	Certificates Certificates
	// Shield refuses requests that did not come through a CDN. Optional.
	Shield *shield.Shield
	// MaxConnections bounds the open connections of all clients together. When all are taken, slow, idle and stalled
	// ones make room for new ones. It must be given: FittingConnections returns how many fit.
	MaxConnections int
	// DrainDelay is how long new connections are still accepted once the stop
	// has begun, because load balancers notice an unready replica late.
	DrainDelay time.Duration
	// DrainTimeout bounds the wait for requests in flight after DrainDelay;
	// what is left then is cut. Zero means 20 s.
	DrainTimeout time.Duration
	// Log receives changes of state. Nil means silence.
	Log *zap.Logger
	// Metrics receives the keypost_ metrics of this listener; one Serve per
	// registry. Nil means none.
	Metrics prometheus.Registerer
	// Listening is called once the socket is bound, before the first
	// connection is served. Optional.
	Listening func(net.Addr)
	// Draining is called when the stop begins, before DrainDelay: the place
	// to turn unready. Optional.
	Draining func()

	limits limits
}

func (c Config) withDefaults() Config {
	c.limits = c.limits.withDefaults()
	if c.DrainTimeout <= 0 {
		c.DrainTimeout = 20 * time.Second
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	return c
}

// Serve serves until ctx is done and then drains: Draining is called, new
// connections are accepted for DrainDelay, requests in flight finish. It returns
// nil after that, also when DrainTimeout cut a slow client (which is logged: a
// stranger must not choose the exit code). It returns an error when it cannot
// listen or stops without having been asked to.
func Serve(ctx context.Context, c Config) error {
	c = c.withDefaults()
	log := newErrorLog(c.Log)
	ln, err := newListener(ctx, c, log)
	if err != nil {
		return fmt.Errorf("open the public listener: %w", err)
	}
	defer ln.Close() //nolint:errcheck // closed by the drain already, except when this returns early
	if err := register(c.Metrics, append(ln.collectors(), log.handshakes)...); err != nil {
		return err
	}
	if c.Certificates != nil {
		if err := register(c.Metrics, c.Certificates); err != nil {
			return err
		}
		// Through the drain too: a certificate may be replaced while connections are still accepted. Nobody waits for its end: a file
		// system that hangs must not keep the process from ending.
		watching, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		go c.Certificates.Watch(watching, c.Log)
	}
	if c.Listening != nil {
		c.Listening(ln.Addr())
	}
	handler := c.Handler
	if c.Shield != nil {
		if err := register(c.Metrics, c.Shield.Collectors()...); err != nil {
			return err
		}
		handler = c.Shield.Guard(handler)
	}
	return run(ctx, c, newServer(handler, c.limits, log), ln)
}

func register(reg prometheus.Registerer, collectors ...prometheus.Collector) error {
	for _, m := range collectors {
		if err := reg.Register(m); err != nil {
			return fmt.Errorf("register the listener's metrics: %w", err)
		}
	}
	return nil
}

// run serves on ln and drains, as Serve documents. c has its defaults filled in.
func run(ctx context.Context, c Config, srv *http.Server, ln net.Listener) error {
	defer srv.Close() //nolint:errcheck // after a failed accept; a drained server has nothing left
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	c.Log.Info("draining", zap.Stringer("address", ln.Addr()), zap.Duration("delay", c.DrainDelay), zap.Duration("timeout", c.DrainTimeout))
	if c.Draining != nil {
		c.Draining()
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-time.After(c.DrainDelay):
	}
	shutdown(ctx, srv, c)
	<-served
	return nil
}

// tls returns what the listener's TLS goes by, or nil without TLS.
func (c Config) tls() *tls.Config {
	if c.Certificates == nil {
		return nil
	}
	conf := c.Certificates.TLSConfig().Clone()
	if c.Shield != nil {
		c.Shield.Apply(conf)
	}
	conf.NextProtos = append(slices.Clone(conf.NextProtos), "http/1.1")
	conf.MinVersion = max(conf.MinVersion, tls.VersionTLS12)
	conf.CipherSuites = suites()
	return conf
}

// suites returns those of TLS 1.2, which AWS still needs. Go's default includes suites in
// CBC mode, whose padding leaks by its timing (Lucky 13). TLS 1.3 has its own.
func suites() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	}
}

// shutdown waits for requests in flight, at most DrainTimeout. The end of ctx,
// which began the stop, must not end it too.
func shutdown(ctx context.Context, srv *http.Server, c Config) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.DrainTimeout)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		c.Log.Warn("requests in flight were cut", zap.Duration("after", c.DrainTimeout), zap.Error(err))
		_ = srv.Close() // the sockets are gone either way
	}
}
