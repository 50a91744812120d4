package mirrorcmd

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// Describe implements prometheus.Collector.
func (m *mirroring) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *mirroring) Collect(ch chan<- prometheus.Metric) {
	gauge := func(name, help string, v float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, v)
	}
	s := m.Status()
	gauge("keypost_mirror_last_complete_timestamp_seconds", "When the listing of the last complete pass was begun, also of an earlier run; 0 for never.", service.Stamp(s.Complete))
	gauge("keypost_mirror_failing", "1 while the store cannot be read or the copy cannot be written.", service.Truth(s.Failing))
	gauge("keypost_mirror_key_sets", "Key sets with a good copy.", float64(s.Held))
	const help = "Key sets whose stored version is not the copied one, by reason; the last good copy stays."
	refused := prometheus.NewDesc("keypost_mirror_key_sets_refused", help, []string{"reason"}, nil)
	counts := map[keystore.Reason]int{} // a reason has a 0 before it first occurs, so that an alert sees the change
	for _, r := range lastgood.Reasons() {
		counts[r] = 0
	}
	for _, r := range s.Refused {
		counts[r.Reason]++
	}
	for r, n := range counts {
		ch <- prometheus.MustNewConstMetric(refused, prometheus.GaugeValue, float64(n), string(r))
	}
	named := prometheus.NewDesc("keypost_mirror_key_set_refused", "1 while the stored version of the key set is not the copied one.", []string{"key_set", "reason"}, nil)
	for n, r := range s.Refused {
		ch <- prometheus.MustNewConstMetric(named, prometheus.GaugeValue, 1, string(n), string(r.Reason))
	}
}
