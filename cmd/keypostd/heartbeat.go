package main

import (
	"context"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keypost/keypost/internal/hang"
	"github.com/keypost/keypost/keystore"
	"github.com/keypost/keypost/keystore/replicate"
)

// heartbeat is a metric of how old the copy in the directory is, where keypost mirror writes it. A mirror that has died
// cannot report that itself. Its age is a metric and never an outage: the last copy is served for as long as it takes.
type heartbeat struct {
	dir string

	hangs hang.Guard
}

func newHeartbeat(dir string) *heartbeat { return &heartbeat{dir: dir} }

var heartbeatDesc = prometheus.NewDesc("keypost_mirror_heartbeat_timestamp_seconds", "When keypost mirror last listed the whole store, as it noted in the directory; absent where no mirror writes it.", nil, nil)

// Describe implements prometheus.Collector.
func (h *heartbeat) Describe(ch chan<- *prometheus.Desc) { ch <- heartbeatDesc }

// Collect implements prometheus.Collector. A note that cannot be read is one of a mirror that does not do its work: 0.
func (h *heartbeat) Collect(ch chan<- prometheus.Metric) {
	note, err := h.now()
	if os.IsNotExist(err) {
		return
	}
	var seconds float64
	if at := note.Complete; err == nil && at.Unix() > 0 {
		seconds = float64(at.Unix())
	}
	ch <- prometheus.MustNewConstMetric(heartbeatDesc, prometheus.GaugeValue, seconds)
}

// now reads the note. A file system that hangs is an error: metrics must not hang with it.
func (h *heartbeat) now() (replicate.Heartbeat, error) {
	return hang.Await(context.Background(), &h.hangs, h.dir, func() (replicate.Heartbeat, error) { return replicate.ReadHeartbeat(h.dir) })
}

// refused returns why the mirror did not copy stored versions.
func (h *heartbeat) refused() map[keystore.Name]keystore.Reason {
	note, err := h.now()
	if err != nil {
		return nil
	}
	return note.Reasons
}
