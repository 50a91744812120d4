package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// heartbeat tells how old the copy in the directory is, where keypost mirror writes it. A mirror that has died cannot
// tell that itself. Its age is a metric and never an outage: the last copy is served for as long as it takes.
type heartbeat struct{ dir string }

var heartbeatDesc = prometheus.NewDesc("keypost_mirror_heartbeat_timestamp_seconds", "When keypost mirror last listed the whole store, as it noted in the directory; absent where no mirror writes it.", nil, nil)

// Describe implements prometheus.Collector.
func (h heartbeat) Describe(ch chan<- *prometheus.Desc) { ch <- heartbeatDesc }

// Collect implements prometheus.Collector. A note that cannot be read is one of a mirror that does not do its work: 0.
func (h heartbeat) Collect(ch chan<- prometheus.Metric) {
	at, err := h.read()
	if os.IsNotExist(err) {
		return
	}
	var seconds float64
	if err == nil && at.Unix() > 0 {
		seconds = float64(at.Unix())
	}
	ch <- prometheus.MustNewConstMetric(heartbeatDesc, prometheus.GaugeValue, seconds)
}

func (h heartbeat) read() (time.Time, error) {
	f, err := os.Open(filepath.Join(h.dir, ".keypost-mirror.json"))
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	var note struct {
		Complete time.Time `json:"complete"`
	}
	const most = 1 << 16
	err = json.NewDecoder(io.LimitReader(f, most)).Decode(&note)
	return note.Complete, err
}
