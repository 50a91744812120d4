package enrollcmd

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/provision/enroll"
)

// known is what the loop knows, for the log, metrics and health.
type known struct {
	log *zap.Logger

	mu      sync.Mutex // of everything below
	reports map[keystore.Name]enroll.Report
	now     map[keystore.Name]enroll.Report // of the pass under way; never nil
	passes  int                             // that were whole
	last    time.Time                       // when the latest whole pass ended
	failing bool
}

func newKnown(log *zap.Logger) *known {
	return &known{log: log, reports: map[keystore.Name]enroll.Report{}, now: map[keystore.Name]enroll.Report{}}
}

func (k *known) tell(r enroll.Report, changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reports[r.Name], k.now[r.Name] = r, r
	if !changed {
		return
	}
	fields := []zap.Field{zap.String("cluster", string(r.Name)), zap.String("state", string(r.State)), zap.Time("since", r.Since)}
	if r.URL != "" {
		fields = append(fields, zap.String("issuer", r.URL))
	}
	if said := about(r); said != "" {
		fields = append(fields, zap.String("about", said))
	}
	if len(r.Notes) > 0 {
		fields = append(fields, zap.Strings("notes", r.Notes))
	}
	if r.Failed() || r.State == enroll.Absent {
		k.log.Warn("a cluster is not in step", fields...)
		return
	}
	k.log.Info("a cluster is enrolled", fields...)
}

// passed ends a pass. After a whole one, clusters that were not in it are forgotten.
func (k *known) passed(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil && !k.failing:
		k.log.Warn("the clusters or the store cannot be read; no key set changes", zap.Error(err))
	case err == nil && k.failing:
		k.log.Info("the clusters and the store can be read again")
	}
	if k.failing = err != nil; !k.failing {
		k.reports, k.passes, k.last = k.now, k.passes+1, time.Now()
	}
	k.now = map[keystore.Name]enroll.Report{}
}

// ready fails before the first whole pass. One that fails later is told by a metric.
func (k *known) ready() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.passes == 0 {
		return errors.New("no pass over the clusters was whole yet")
	}
	return nil
}

// Describe implements prometheus.Collector.
func (k *known) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(k, ch) }

// Collect implements prometheus.Collector. The names of clusters are those of key sets: one that cannot be, which a tenant may have
// chosen, has a line in the log only.
func (k *known) Collect(ch chan<- prometheus.Metric) {
	k.mu.Lock()
	defer k.mu.Unlock()
	gauge := func(name, help string, value float64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value)
	}
	failing, last := 0.0, 0.0
	if k.failing {
		failing = 1
	}
	if !k.last.IsZero() {
		last = float64(k.last.UnixMilli()) / 1000
	}
	gauge("keypost_enroll_failing", "1 while the clusters or the store cannot be read; no key set changes.", failing)
	gauge("keypost_enroll_last_pass_timestamp_seconds", "When the latest look at every cluster ended; 0 for never.", last)
	cluster := prometheus.NewDesc("keypost_enroll_cluster", "1 for the state of a cluster: enrolled, in step, new key, unreachable, refused or absent. The log says why.", []string{"cluster", "state"}, nil)
	since := prometheus.NewDesc("keypost_enroll_cluster_since_timestamp_seconds", "Since when a cluster is in its state, as far as this process knows.", []string{"cluster"}, nil)
	for n, r := range k.reports {
		if n.Check() != nil {
			continue
		}
		ch <- prometheus.MustNewConstMetric(cluster, prometheus.GaugeValue, 1, string(n), string(r.State))
		ch <- prometheus.MustNewConstMetric(since, prometheus.GaugeValue, float64(r.Since.Unix()), string(n))
	}
}
