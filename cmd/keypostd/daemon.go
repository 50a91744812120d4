package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/keypost/keypost/internal/admin"
	"github.com/keypost/keypost/internal/build"
	"github.com/keypost/keypost/internal/devca"
	"github.com/keypost/keypost/internal/text"
	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/issuer/listen"
	"github.com/keypost/keypost/issuer/listen/shield"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/filestore"
)

// daemon is everything that a configuration turns into. Making one reads the certificates and opens the directory,
// so that --check finds what serving would.
type daemon struct {
	c            config
	dev          string // the directory of --dev; empty otherwise
	log          *zap.Logger
	publishing   issuer.Config
	publisher    *issuer.Publisher
	handler      *issuer.Handler
	certificates listen.Certificates // nil when TLS is off
	shield       *shield.Shield      // nil without one
	heartbeat    *heartbeat
	metrics      *prometheus.Registry
	draining     atomic.Bool
}

func newDaemon(c config, dev string, stderr io.Writer) (*daemon, error) {
	log, err := newLogger(c.Log, stderr)
	if err != nil {
		return nil, err
	}
	patterns, err := issuer.ParsePatterns(c.IssuerURLs, dev != "")
	if err != nil {
		return nil, err
	}
	store, err := filestore.Open(c.Dir)
	if err != nil {
		return nil, err
	}
	d := &daemon{c: c, dev: dev, log: log, heartbeat: newHeartbeat(c.Dir)}
	d.publishing = issuer.Config{
		Source: keystore.NewStore(store), Patterns: patterns, Cache: c.Policy.policy().Cache(keystore.DefaultCache()),
		Dev: dev != "", AllowEmpty: c.AllowEmpty, Poll: time.Duration(c.Poll), Log: log.Named("issuer"),
		FirstRead: debug.FreeOSMemory, // nothing that follows needs as much
		Refused:   d.heartbeat.refused,
	}
	d.publisher = issuer.NewPublisher(d.publishing)
	d.handler = issuer.NewHandler(d.publisher, c.HostAliases)
	if d.certificates, err = loadCertificates(c, dev, patterns); err != nil {
		return nil, err
	}
	if x := c.Listen.Shield; x != nil {
		if d.shield, err = shield.New(shield.Config{Header: x.Header, SecretFiles: x.SecretFiles, ClientCAFile: x.ClientCAFile}); err != nil {
			return nil, err
		}
	}
	d.metrics, err = newMetrics(d.publisher, d.handler, d.heartbeat)
	return d, err
}

// certHosts returns the host names for which there must be a certificate: under which clients reach this server. Behind a CDN
// that is the alias: the issuer's own host leads to the CDN, so that a certificate for it is hard to come by here.
func certHosts(issuers []string, aliases map[string]string) []string {
	var hosts []string
	behind := map[string]bool{}
	for from, to := range aliases {
		hosts, behind[to] = append(hosts, from), true
	}
	for _, host := range issuers {
		if !behind[host] {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// loadCertificates returns nil when TLS is off.
func loadCertificates(c config, dev string, patterns []issuer.Pattern) (listen.Certificates, error) {
	hosts := certHosts(issuer.Hosts(patterns), c.HostAliases)
	var pairs []listen.Pair
	switch {
	case dev != "":
		cert, key, err := devca.Ensure(dev, time.Now())
		if err != nil {
			return nil, err
		}
		pairs = []listen.Pair{{Cert: cert, Key: key}}
	case c.Listen.TLS.Mode == tlsOff:
		return nil, nil
	case c.Listen.TLS.Mode == tlsACME:
		return loadACME(*c.Listen.TLS.ACME, hosts)
	default:
		for _, p := range c.Listen.TLS.Files {
			pairs = append(pairs, listen.Pair{Cert: p.Cert, Key: p.Key})
		}
	}
	files, err := listen.LoadFiles(pairs, hosts)
	if err != nil {
		return nil, err
	}
	return files, nil
}

func newMetrics(more ...prometheus.Collector) (*prometheus.Registry, error) {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "keypost_build_info", Help: "Always 1; what this program was built from."}, []string{"version", "goversion"})
	info.WithLabelValues(build.Version(), runtime.Version()).Set(1)
	all := append([]prometheus.Collector{info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}, more...)
	r := prometheus.NewRegistry()
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return r, nil
}

// serve runs until ctx is done and the public listener has drained. The admin listener and the publisher live a
// little longer, since probes are wanted most during the drain and a revocation must not wait for a restart.
func (d *daemon) serve(ctx context.Context) error {
	rest, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, rest := errgroup.WithContext(rest)
	if err := d.prepareACME(); err != nil {
		return err
	}
	servers, err := d.bindAdmin(ctx) // an address that is taken must end the start, not a server that has begun to serve
	if err != nil {
		return err
	}
	d.logWarnings()
	g.Go(func() error { d.publisher.Run(rest); return nil })
	for _, s := range servers {
		g.Go(func() error { return s.Serve(rest) })
	}
	public, cancel := either(ctx, rest) // trouble of the others ends the public side too
	defer cancel()
	answering := make(chan struct{}) // challenges: an order before that fails, and uses up what the CA allows
	g.Go(func() error { return d.serveChallenges(public, sync.OnceFunc(func() { close(answering) })) })
	g.Go(func() error {
		defer stop()
		select {
		case <-answering:
			return listen.Serve(public, d.public())
		case <-public.Done():
			return nil
		}
	})
	err = g.Wait()
	if err == nil {
		d.log.Info("stopped")
	}
	return err
}

// logLimits logs the limits that were derived from the machine.
func (d *daemon) logLimits(memory int64, noLimit error) {
	if noLimit != nil {
		d.log.Warn("there is no memory limit, clients decide how much is used", zap.Error(noLimit))
		return
	}
	d.log.Info("limits", zap.Int64("memory", memory), zap.Int("connections", d.c.Listen.MaxConnections))
}

// logWarnings logs what a start goes on with.
func (d *daemon) logWarnings() {
	all, shut := d.warnings(time.Now())
	if shut != nil {
		all = append(all, shut.Error())
	}
	for _, one := range all {
		d.log.Warn("a file is not as it should be", zap.String("warning", one))
	}
}

// either returns a context that is done once ctx or other is. The function that it returns must be called.
func either(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(other, cancel)
	return ctx, cancel
}

func (d *daemon) public() listen.Config {
	handler := http.Handler(d.handler)
	if d.c.Log.Access {
		handler = accessLog(d.log, handler)
	}
	return listen.Config{
		Address: d.c.Listen.Address, Handler: handler, Certificates: d.certificates, Shield: d.shield,
		MaxConnections: d.c.Listen.MaxConnections,
		DrainDelay:     time.Duration(d.c.Listen.DrainDelay), DrainTimeout: time.Duration(d.c.Listen.DrainTimeout),
		Log: d.log.Named("listen"), Metrics: d.metrics,
		Listening: func(a net.Addr) {
			d.log.Info("serving", zap.Stringer("address", a), zap.Bool("tls", d.certificates != nil), zap.String("version", build.Version()))
		},
		Draining: func() { d.draining.Store(true) },
	}
}

// adminPages returns what the admin listener serves.
func (d *daemon) adminPages() admin.Pages {
	return admin.Pages{
		Metrics: promhttp.HandlerFor(d.metrics, promhttp.HandlerOpts{}),
		Ready:   d.ready,
		Rest:    admin.Local(newPages(d), d.c.Admin.Page),
		Extra:   map[string]http.Handler{"/issuers": admin.Local(http.HandlerFunc(d.report), d.c.Admin.Page)},
	}
}

// bindAdmin binds the addresses for metrics and health.
func (d *daemon) bindAdmin(ctx context.Context) ([]*admin.Server, error) {
	first, err := admin.Listen(ctx, d.c.Admin.Address, d.adminPages(), d.log.Named("admin"))
	if err != nil {
		return nil, fmt.Errorf("open the admin listener: %w", err)
	}
	d.log.Info("admin listener is up", zap.Stringer("address", first.Addr()))
	if d.c.Admin.Probes == "" {
		return []*admin.Server{first}, nil
	}
	// On an address that nobody but the prober reaches, no other client can delay a probe.
	second, err := admin.Listen(ctx, d.c.Admin.Probes, admin.Pages{Ready: d.ready}, d.log.Named("probes"))
	if err != nil {
		return nil, fmt.Errorf("open the probe listener: %w", err)
	}
	d.log.Info("probe listener is up", zap.Stringer("address", second.Addr()))
	return []*admin.Server{first, second}, nil
}

func (d *daemon) ready() error {
	if d.draining.Load() {
		return errors.New("draining")
	}
	return d.publisher.Ready()
}

func (d *daemon) report(w http.ResponseWriter, _ *http.Request) {
	body, err := json.Marshal(d.publisher.Report())
	if err != nil {
		d.log.Error("write the report", zap.Error(err))
		http.Error(w, "the report cannot be written; see the log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text.EscapeJSON(body), '\n')) // the client may have gone away
}
