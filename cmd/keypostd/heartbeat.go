package main

import (
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keypost/keypost/keystore/replicate"
)

// heartbeat is a metric of how old the copy in the directory is, where keypost mirror writes it. A mirror that has died
// cannot report that itself. Its age is a metric and never an outage: the last copy is served for as long as it takes.
type heartbeat struct {
	dir string

	mu      sync.Mutex
	reading bool // one is under way, which hangs if it takes long
	last    time.Time
	err     error
}

func newHeartbeat(dir string) *heartbeat {
	return &heartbeat{dir: dir, err: os.ErrNotExist}
}

var heartbeatDesc = prometheus.NewDesc("keypost_mirror_heartbeat_timestamp_seconds", "When keypost mirror last listed the whole store, as it noted in the directory; absent where no mirror writes it.", nil, nil)

// Describe implements prometheus.Collector.
func (h *heartbeat) Describe(ch chan<- *prometheus.Desc) { ch <- heartbeatDesc }

// Collect implements prometheus.Collector. A note that cannot be read is one of a mirror that does not do its work: 0.
func (h *heartbeat) Collect(ch chan<- prometheus.Metric) {
	at, err := h.now()
	if os.IsNotExist(err) {
		return
	}
	var seconds float64
	if err == nil && at.Unix() > 0 {
		seconds = float64(at.Unix())
	}
	ch <- prometheus.MustNewConstMetric(heartbeatDesc, prometheus.GaugeValue, seconds)
}

// heartbeatPatience is how long the file system may take, so that one that hangs does not take all metrics away.
const heartbeatPatience = time.Second

// now reads the note. Where that takes too long, the previous one counts; a reading is never
// begun beside one that hangs.
func (h *heartbeat) now() (time.Time, error) {
	select {
	case <-h.begin():
	case <-time.After(heartbeatPatience):
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last, h.err
}

// begin returns a channel that is closed at the end of the reading that it began, or at once when one is under way.
func (h *heartbeat) begin() <-chan struct{} {
	done := make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reading {
		close(done)
		return done
	}
	h.reading = true
	go func() {
		defer close(done)
		note, err := replicate.ReadHeartbeat(h.dir)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.last, h.err, h.reading = note.Complete, err, false
	}()
	return done
}
