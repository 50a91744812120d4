package issuer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

var (
	issuersDesc  = prometheus.NewDesc("keypost_issuers", "Issuer URLs whose documents are served.", nil, nil)
	keysDesc     = prometheus.NewDesc("keypost_keys", "Published keys by state.", []string{"state"}, nil)
	activeDesc   = prometheus.NewDesc("keypost_oldest_active_key_timestamp_seconds", "When the key that may sign for the longest time of all was allowed to; 0 when none may. A key taken over from elsewhere counts from then.", nil, nil)
	rejectedDesc = prometheus.NewDesc("keypost_key_sets_rejected", "Key sets whose stored version is not served, by reason; the last good version is.", []string{"reason"}, nil)
	completeDesc = prometheus.NewDesc("keypost_key_sets_last_complete_read_timestamp_seconds", "When everything in the store was last listed and read; 0 for never.", nil, nil)
	failingDesc  = prometheus.NewDesc("keypost_key_sets_read_failing", "1 while the store cannot be listed.", nil, nil)

	// What follows names key sets. The labels come from the store, never from a client.
	keySetRejectedDesc = prometheus.NewDesc("keypost_key_set_rejected", "1 while the stored version of the key set is not served.", []string{"key_set", "reason"}, nil)
	keySetActiveDesc   = prometheus.NewDesc("keypost_key_set_oldest_active_key_timestamp_seconds", "When the active key of the key set that may sign for the longest time was allowed to; left out without one.", []string{"key_set"}, nil)
	keySetChangedDesc  = prometheus.NewDesc("keypost_key_set_keys_changed_timestamp_seconds", "When keys of the served key set, or their states, last changed.", []string{"key_set"}, nil)
	keySetForcedDesc   = prometheus.NewDesc("keypost_key_set_forced_promotion_timestamp_seconds", "When a key of the served key set was last promoted with --force; left out when its history says of none.", []string{"key_set"}, nil)
)

// Describe implements prometheus.Collector.
func (p *Publisher) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, ch) }

// Collect implements prometheus.Collector.
func (p *Publisher) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	current := p.current.Load()
	var keys [len(states)]int
	var oldest int64 // when the key that has been active for the longest time became so; 0 without one
	rejected := map[keystore.Reason]int{}
	for _, r := range lastgood.Reasons() { // an alert sees a 0 before the first rejection
		rejected[r] = 0
	}
	for n, e := range current.entries {
		if e.rejected != nil && !e.rejected.Expected() {
			rejected[e.rejected.Reason]++
			gauge(keySetRejectedDesc, 1, string(n), string(e.rejected.Reason))
		}
		v := e.served
		if v == nil {
			continue
		}
		gauge(keySetChangedDesc, float64(v.changed), string(n))
		if v.forced != 0 {
			gauge(keySetForcedDesc, float64(v.forced), string(n))
		}
		if v.Withdrawn() {
			continue
		}
		for i, count := range v.states {
			keys[i] += count
		}
		if v.activeSince == 0 {
			continue
		}
		gauge(keySetActiveDesc, float64(v.activeSince), string(n))
		if oldest == 0 || v.activeSince < oldest {
			oldest = v.activeSince
		}
	}
	gauge(issuersDesc, float64(len(current.pages)))
	for i, s := range states {
		gauge(keysDesc, float64(keys[i]), string(s))
	}
	gauge(activeDesc, float64(oldest))
	for r, n := range rejected {
		gauge(rejectedDesc, float64(n), string(r))
	}
	read := 0.0
	if !current.last.IsZero() {
		read = float64(current.last.UnixMilli()) / 1000
	}
	gauge(completeDesc, read)
	gauge(failingDesc, map[bool]float64{true: 1}[current.failing])
}
