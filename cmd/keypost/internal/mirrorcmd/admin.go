package mirrorcmd

import (
	"context"
	"fmt"
	"maps"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/keypost/keypost/cmd/keypost/internal/cli"
	"github.com/keypost/keypost/internal/admin"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// checkListen refuses what is no address to listen on before anything is begun; empty means none.
func checkListen(flag, address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return cli.Usagef("%s %q: give HOST:PORT or :PORT, such as 127.0.0.1:9091", flag, address)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (m *mirroring) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *mirroring) Collect(ch chan<- prometheus.Metric) {
	gauge := func(name, help string, v float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, v)
	}
	truth := map[bool]float64{true: 1}
	s := m.Status()
	complete := 0.0
	if !s.Complete.IsZero() {
		complete = float64(s.Complete.UnixMilli()) / 1000
	}
	gauge("keypost_mirror_last_complete_timestamp_seconds", "When the listing of the last complete pass was begun, also of an earlier run; 0 for never.", complete)
	gauge("keypost_mirror_failing", "1 while the store cannot be read or the copy cannot be written.", truth[s.Failing])
	gauge("keypost_mirror_key_sets", "Key sets of which there is a good copy.", float64(s.Held))
	gauge("keypost_mirror_depends_on_itself", "1 when the store's credentials come from an issuer that is mirrored.", truth[m.itself.Load()])
	const help = "Key sets whose stored version is not the copied one, by reason; the last good copy stays."
	refused := prometheus.NewDesc("keypost_mirror_key_sets_refused", help, []string{"reason"}, nil)
	counts := map[keystore.Reason]int{} // a reason has a 0 before it first occurs, so that an alert sees the change
	for _, r := range lastgood.Reasons() {
		counts[r] = 0
	}
	maps.Copy(counts, s.Refused)
	for r, n := range counts {
		ch <- prometheus.MustNewConstMetric(refused, prometheus.GaugeValue, float64(n), string(r))
	}
}

// bindAdmin binds the address for metrics and health.
func (m *mirroring) bindAdmin(ctx context.Context) (*admin.Server, error) {
	registry := prometheus.NewRegistry()
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	for _, c := range []prometheus.Collector{m, collectors.NewGoCollector(), process} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	pages := admin.Pages{Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), Ready: m.Ready}
	s, err := admin.Listen(ctx, m.o.adminAddress, pages, m.log.Named("admin"))
	if err != nil {
		return nil, fmt.Errorf("open the admin listener: %w", err)
	}
	m.log.Info("admin listener is up", zap.Stringer("address", s.Addr()))
	return s, nil
}
