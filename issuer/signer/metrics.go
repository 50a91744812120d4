package signer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	began                     prometheus.Gauge
	read, generation, maySign prometheus.Gauge
	signatures, failures      *prometheus.CounterVec
	refused                   prometheus.Counter
	took                      prometheus.Histogram
}

// Why a call for a signature failed.
const (
	failedNoKey     = "no_key"    // no key may sign
	failedClaims    = "claims"    // the claims are not those of a token
	failedKey       = "key"       // the key, or its service, gave no signature
	failedSignature = "signature" // the signature does not verify
)

func newMetrics() metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := metrics{
		began:      gauge("keypost_signer_start_time_seconds", "When this process began, and with it the count of tokens."),
		read:       gauge("keypost_signer_key_set_read_timestamp_seconds", "When the key set was last read, and was the last good one or its successor."),
		generation: gauge("keypost_signer_key_set_generation", "The generation of the key set that is followed."),
		maySign:    gauge("keypost_signer_may_sign", "1 if a key may sign, else 0."),
		signatures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "keypost_signer_signatures_total", Help: "Tokens signed, by key."}, []string{"kid"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "keypost_signer_failures_total",
			Help: "Tokens not signed, by reason: no_key (no key may sign), claims (not a token's), key (the key or its service gave no signature), signature (it does not verify)."}, []string{"reason"}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "keypost_signer_callers_refused_total", Help: "Connections refused because of their user and group."}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "keypost_signer_sign_seconds", Help: "How long a signature took.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}}),
	}
	m.began.Set(float64(time.Now().Unix()))
	for _, reason := range []string{failedNoKey, failedClaims, failedKey, failedSignature} { // a rate needs the zero before the first failure
		m.failures.WithLabelValues(reason)
	}
	return m
}

func (m metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.began, m.read, m.generation, m.maySign, m.signatures, m.failures, m.refused, m.took}
}

// Describe is part of prometheus.Collector.
func (s *Signer) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s.metrics.all() {
		c.Describe(ch)
	}
	ch <- aliveDesc
	ch <- latestDesc
}

// Collect is part of prometheus.Collector.
func (s *Signer) Collect(ch chan<- prometheus.Metric) {
	for _, c := range s.metrics.all() {
		c.Collect(ch)
	}
	s.tokens.collect(time.Now(), ch)
}
