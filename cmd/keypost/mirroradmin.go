package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/keypost/keypost/issuer"
	"github.com/keypost/keypost/keystore"
)

var (
	mirrorCompleteDesc = mirrorDesc("last_complete_timestamp_seconds", "When the listing of the last complete pass was begun, also of an earlier run; 0 for never.")
	mirrorFailingDesc  = mirrorDesc("failing", "1 while the store cannot be read or the copy cannot be written.")
	mirrorHeldDesc     = mirrorDesc("key_sets", "Key sets of which there is a good copy.")
	mirrorRefusedDesc  = mirrorDesc("key_sets_refused", "Key sets whose stored version is not the copied one, by reason.", "reason")
	mirrorItselfDesc   = mirrorDesc("depends_on_itself", "1 when the store's credentials come from an issuer that is mirrored.")
)

func mirrorDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("keypost_mirror_"+name, help, labels, nil)
}

// mirrorReasons are all that a metric is kept for, so that an alert sees a 0 before the first refusal.
func mirrorReasons() []keystore.Reason {
	return []keystore.Reason{
		keystore.ReasonMissing, keystore.ReasonUnreadable, keystore.ReasonOlderGeneration, keystore.ReasonSameGeneration,
		keystore.ReasonKidMissing, keystore.ReasonGoneReturned, keystore.ReasonURLDropped, keystore.ReasonURLConflict,
		keystore.Reason(issuer.URLNotPermitted), keystore.Reason(issuer.DevRefused), keystore.ReasonBroken, keystore.ReasonNewerVersion,
	}
}

// Describe implements prometheus.Collector.
func (m *mirroring) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *mirroring) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	truth := map[bool]float64{true: 1}
	s := m.Status()
	complete := 0.0
	if !s.Complete.IsZero() {
		complete = float64(s.Complete.UnixMilli()) / 1000
	}
	gauge(mirrorCompleteDesc, complete)
	gauge(mirrorFailingDesc, truth[s.Failing])
	gauge(mirrorHeldDesc, float64(s.Held))
	gauge(mirrorItselfDesc, truth[m.itself.Load()])
	for _, r := range mirrorReasons() {
		gauge(mirrorRefusedDesc, float64(s.Refused[r]), string(r))
	}
}

// serveAdmin serves metrics and health until ctx is done. The address is bound before anything is mirrored.
func (m *mirroring) serveAdmin(ctx context.Context, l net.Listener) error {
	registry := prometheus.NewRegistry()
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	for _, c := range []prometheus.Collector{m, collectors.NewGoCollector(), process} {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := m.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	m.log.Info("admin listener is up", zap.Stringer("address", l.Addr()))
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
