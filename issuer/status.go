package issuer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/lastgood"
)

// Status is what is known of one key set, for operators: the admin listener serves it as JSON, and the command line
// reads it.
type Status struct {
	Name       keystore.Name          `json:"name"`
	Issuers    []string               `json:"issuers"`
	Generation int64                  `json:"generation"` // of the version served; 0 when none is
	Served     bool                   `json:"served"`
	Rejected   keystore.Reason        `json:"rejected,omitempty"` // why the stored version is not served; "missing" when there is none
	Message    string                 `json:"message,omitempty"`
	Keys       map[keystore.State]int `json:"keys"`           // by state
	Gone       []GoneKey              `json:"gone,omitempty"` // of the served version; only while the stored one is rejected
}

// GoneKey is a line in gone. The stored version may have lost it, and keypost issuer accept puts it back.
type GoneKey struct {
	Kid         keystore.KeyID       `json:"kid"`
	Fingerprint keystore.Fingerprint `json:"fingerprint,omitempty"`
	Why         keystore.Departure   `json:"why"`
}

// Report is everything that a Publisher knows, for operators.
type Report struct {
	Complete time.Time `json:"complete,omitzero"` // when the last complete listing was taken
	Issuers  []Status  `json:"issuers"`
}

// Report returns the status of every key set, in order of their names.
func (p *Publisher) Report() Report {
	p.mu.RLock()
	defer p.mu.RUnlock()
	r := Report{Complete: p.complete, Issuers: []Status{}}
	for _, n := range slices.Sorted(maps.Keys(p.entries)) {
		r.Issuers = append(r.Issuers, p.entries[n].status(n))
	}
	return r
}

func (e *entry) status(n keystore.Name) Status {
	s := Status{Name: n, Issuers: []string{}, Keys: map[keystore.State]int{}}
	if v := e.served; v != nil {
		s.Generation, s.Served = v.Generation(), !v.Withdrawn()
		s.Issuers = slices.AppendSeq(s.Issuers, v.Issuers())
		for i, count := range v.states {
			s.Keys[states[i]] = count
		}
	}
	if e.rejected == nil {
		return s
	}
	s.Rejected, s.Message = e.rejected.Reason, e.rejected.Message
	if s.Rejected != lastgood.ReasonMissing { // then there is no stored version that could have lost it
		s.Gone = e.gone()
	}
	return s
}

func (e *entry) gone() (all []GoneKey) {
	if e.served == nil {
		return nil
	}
	for _, g := range e.served.Gone() {
		all = append(all, GoneKey{g.ID, g.Fingerprint, g.Why})
	}
	return all
}

// Ready returns nil once every issuer of a complete listing is served, or after five minutes without those that cannot
// be. From then on it always does: losing the store is no reason to take a server away that serves its last good
// versions. A Publisher that has nothing to serve is never ready unless AllowEmpty is set: its directory may be a volume
// that is not mounted, and clients sent there instead of to another replica would find no issuer.
func (p *Publisher) Ready() error {
	switch now := p.progress.Load(); {
	case now.ready:
		return nil
	case !now.listed:
		return errors.New("no complete listing of the key sets yet")
	case now.total == 0:
		return errors.New("there is no key set, so the directory may be the wrong one or not mounted; set allowEmpty: true if there may be none")
	default:
		return fmt.Errorf("%d of %d key sets cannot be served; see /issuers", now.unserved, now.total)
	}
}

var (
	issuersDesc  = prometheus.NewDesc("keypost_issuers", "Issuer URLs whose documents are served.", nil, nil)
	keysDesc     = prometheus.NewDesc("keypost_keys", "Published keys by state.", []string{"state"}, nil)
	activeDesc   = prometheus.NewDesc("keypost_oldest_active_key_timestamp_seconds", "When the key that may sign for the longest time of all was allowed to; 0 when none may. A key taken over from elsewhere counts from then.", nil, nil)
	rejectedDesc = prometheus.NewDesc("keypost_key_sets_rejected", "Key sets whose stored version is not served, by reason; the last good version is.", []string{"reason"}, nil)
	completeDesc = prometheus.NewDesc("keypost_key_sets_last_complete_read_timestamp_seconds", "When everything in the store was last listed and read; 0 for never.", nil, nil)
	failingDesc  = prometheus.NewDesc("keypost_key_sets_read_failing", "1 while the store cannot be listed.", nil, nil)
)

// Describe implements prometheus.Collector.
func (p *Publisher) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, ch) }

// Collect implements prometheus.Collector.
func (p *Publisher) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	c := p.counted()
	gauge(issuersDesc, float64(p.current.Load().issuers()))
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
		if e.rejected != nil {
			c.rejected[e.rejected.Reason]++
		}
	}
	return c
}
