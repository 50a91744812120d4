package issuer

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// MostNamed bounds how many series one metric has that names key sets, however many key sets a store has: five metrics do, so a
// replica has at most 5,000 of them. Of more the ones stay that an operator looks for; /issuers has all.
const MostNamed = 1000

var (
	issuersDesc  = prometheus.NewDesc("keypost_issuers", "Issuer URLs whose documents are served.", nil, nil)
	keysDesc     = prometheus.NewDesc("keypost_keys", "Published keys by state.", []string{"state"}, nil)
	activeDesc   = prometheus.NewDesc("keypost_oldest_active_key_timestamp_seconds", "When the key that may sign for the longest time of all was allowed to; 0 when none may. A key taken over from elsewhere counts from then.", nil, nil)
	rejectedDesc = prometheus.NewDesc("keypost_key_sets_rejected", "Key sets whose stored version is not served, by reason; the last good version is.", []string{"reason"}, nil)
	completeDesc = prometheus.NewDesc("keypost_key_sets_last_complete_read_timestamp_seconds", "When everything in the store was last listed and read; 0 for never.", nil, nil)
	failingDesc  = prometheus.NewDesc("keypost_key_sets_read_failing", "1 while the store cannot be listed.", nil, nil)

	// What follows names key sets. The labels come from the store, never from a client.
	keySetRejectedDesc = prometheus.NewDesc("keypost_key_set_rejected", "1 while the stored version of the key set is not served; at most 1000 key sets, the first by name.", []string{"key_set", "reason"}, nil)
	keySetActiveDesc   = prometheus.NewDesc("keypost_key_set_oldest_active_key_timestamp_seconds", "When the active key of the key set that may sign for the longest time was allowed to; left out without one. At most 1000 key sets, those with the oldest keys.", []string{"key_set"}, nil)
	keySetChangedDesc  = prometheus.NewDesc("keypost_key_set_keys_changed_timestamp_seconds", "When keys of the served key set, or their states, last changed; at most 1000 key sets, those that changed last.", []string{"key_set"}, nil)
	keySetForcedDesc   = prometheus.NewDesc("keypost_key_set_forced_promotion_timestamp_seconds", "When a key of the served key set was last promoted with --force; left out when its history says of none. At most 1000 key sets, the latest.", []string{"key_set"}, nil)
)

// Describe implements prometheus.Collector.
func (p *Publisher) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, ch) }

// Collect implements prometheus.Collector.
func (p *Publisher) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	c := p.counted()
	gauge(issuersDesc, float64(len(p.current.Load().pages)))
	for i, s := range states {
		gauge(keysDesc, float64(c.keys[i]), string(s))
	}
	gauge(activeDesc, float64(c.activeSince))
	for r, n := range c.rejected {
		gauge(rejectedDesc, float64(n), string(r))
	}
	complete := 0.0
	if !c.complete.IsZero() {
		complete = float64(c.complete.UnixMilli()) / 1000
	}
	gauge(completeDesc, complete)
	failing := 0.0
	if c.failing {
		failing = 1
	}
	gauge(failingDesc, failing)
	for d, all := range p.named() {
		for _, s := range all {
			gauge(d, float64(s.value), s.labels...)
		}
	}
}

// series is a series of a metric that names key sets.
type series struct {
	value  int64
	labels []string
}

// named returns the series that name key sets, at most MostNamed of each metric. Like counted, it copies under the lock.
func (p *Publisher) named() map[*prometheus.Desc][]series {
	all := p.everyNamed()
	for d, of := range all {
		slices.SortFunc(of, func(a, b series) int {
			if d == keySetChangedDesc || d == keySetForcedDesc {
				a, b = b, a // the latest first
			}
			return cmp.Or(cmp.Compare(a.value, b.value), slices.Compare(a.labels, b.labels))
		})
		all[d] = of[:min(len(of), MostNamed)]
	}
	return all
}

func (p *Publisher) everyNamed() map[*prometheus.Desc][]series {
	p.mu.RLock()
	defer p.mu.RUnlock()
	all := map[*prometheus.Desc][]series{}
	add := func(d *prometheus.Desc, value int64, labels ...string) {
		all[d] = append(all[d], series{value, labels})
	}
	for n, e := range p.entries {
		name := string(n)
		if e.rejected != nil && !e.rejected.Expected() {
			add(keySetRejectedDesc, 1, name, string(e.rejected.Reason))
		}
		v := e.served
		if v == nil {
			continue
		}
		add(keySetChangedDesc, v.changed, name)
		if v.forced != 0 {
			add(keySetForcedDesc, v.forced, name)
		}
		if v.Withdrawn() {
			continue
		}
		if v.activeSince != 0 {
			add(keySetActiveDesc, v.activeSince, name)
		}
	}
	return all
}

// counts are the values of the metrics.
type counts struct {
	keys        [3]int
	rejected    map[keystore.Reason]int
	activeSince int64 // that of the key that has been active for the longest time, as Unix time; 0 without one
	complete    time.Time
	failing     bool
}

// counted returns the values. It holds the lock no longer than that: a reader of metrics may be slow.
func (p *Publisher) counted() counts {
	p.mu.RLock()
	defer p.mu.RUnlock()
	c := counts{rejected: map[keystore.Reason]int{}, complete: p.complete, failing: p.failing}
	for _, r := range lastgood.Reasons() {
		c.rejected[r] = 0
	}
	for _, e := range p.entries {
		if v := e.served; v != nil && !v.Withdrawn() {
			for i, n := range v.states {
				c.keys[i] += n
			}
			if v.activeSince != 0 && (c.activeSince == 0 || v.activeSince < c.activeSince) {
				c.activeSince = v.activeSince
			}
		}
		if e.rejected != nil && !e.rejected.Expected() {
			c.rejected[e.rejected.Reason]++
		}
	}
	return c
}
