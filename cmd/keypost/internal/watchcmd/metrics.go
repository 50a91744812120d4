package watchcmd

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keypost/keypost/cmd/keypost/internal/service"
	"github.com/keypost/keypost/issuer/verify/watch"
)

// collector makes metrics of what a watcher knows. Their labels come from the store, which bounds them: nothing that a
// server says, such as the kid of a rogue key, becomes a label.
type collector struct {
	w     *watch.Watcher
	every time.Duration
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	send := func(name, help string, labels []string, value float64, values ...string) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, value, values...)
	}
	gauge := func(name, help string, value float64) { send(name, help, nil, value) }
	known := c.w.Report()
	gauge("keypost_watch_issuers", "Issuers that are looked at.", float64(len(known.Issuers)))
	gauge("keypost_watch_interval_seconds", "In this time each issuer is looked at once.", c.every.Seconds())
	gauge("keypost_watch_store_failing", "1 while the store cannot be read; the issuers known so far are looked at.", service.Truth(known.Failing))
	gauge("keypost_watch_store_last_read_timestamp_seconds", "When the store was last read, whole; 0 for never.", service.Stamp(known.Read))
	gauge("keypost_watch_key_sets_unread", "Key sets that are missing, cannot be read, or are outside --issuer-url; their issuers are looked at as they were.", float64(known.Unread))
	for _, s := range known.Issuers {
		ofIssuer := func(name, help string, value float64, more ...string) { // a further label, and its value
			labels := append([]string{"key_set", "issuer"}, more[:len(more)/2]...)
			send(name, help, labels, value, slices.Concat([]string{string(s.KeySet), s.URL}, more[len(more)/2:])...)
		}
		for _, is := range watch.Conditions() {
			_, holds := s.Conditions[is]
			switch is {
			case watch.RogueKey:
				ofIssuer("keypost_watch_rogue_key", "1 while a key is published that the store does not know. The log names it.", service.Truth(holds))
			case watch.ServedNotStored:
				ofIssuer("keypost_watch_served_not_stored", "1 while keys are published otherwise than they are stored, longer than caches explain.", service.Truth(holds))
			default:
				ofIssuer("keypost_watch_look_failing", "1 while looks fail: nothing answers, some answers are missing, the store has nothing to compare with, "+
					"or the look cannot be recorded.", service.Truth(holds), "reason", string(is))
			}
		}
		ofIssuer("keypost_watch_last_look_timestamp_seconds", "When the latest look ended, whatever came of it; 0 for never.", service.Stamp(s.Looked))
		ofIssuer("keypost_watch_last_complete_look_timestamp_seconds", "When the latest complete look ended, one that was recorded if looks are; 0 for never.", service.Stamp(s.Complete))
		if !s.NotAfter.IsZero() {
			ofIssuer("keypost_watch_certificate_not_after_timestamp_seconds",
				"When the first certificate expires of the verified chains without their roots, in the latest look with one; left out before the first.", service.Stamp(s.NotAfter))
		}
	}
	for _, u := range known.Uploads {
		ofUpload := func(name, help string, value float64, more ...string) {
			labels := append([]string{"key_set", "upload"}, more[:len(more)/2]...)
			send(name, help, labels, value, slices.Concat([]string{string(u.KeySet), u.Upload}, more[len(more)/2:])...)
		}
		trouble, _ := u.Trouble()
		for _, t := range watch.UploadTroubles() {
			ofUpload("keypost_watch_upload_failing", "1 while an upload that a relying party holds is not known to have the published keys and no other: as it was read back last it "+
				"is without one or has another (behind), it was never read back (unread), or not for a day or not the last time (stale), or what was read back cannot be read by the watch (not_compared).",
				service.Truth(t == trouble), "reason", string(t))
		}
		ofUpload("keypost_watch_upload_last_read_timestamp_seconds", "When an upload that a relying party holds was read back last, by anyone who uploads it; 0 for never.", service.Stamp(u.ReadAt))
	}
	wentBack := prometheus.NewDesc("keypost_watch_store_went_back", "1 while the store holds an older version of a key set than the watch has read before; "+
		"gone_key_published says whether that publishes a key which was revoked or removed. Left out for every other key set.", []string{"key_set", "gone_key_published"}, nil)
	for _, b := range known.WentBack {
		ch <- prometheus.MustNewConstMetric(wentBack, prometheus.GaugeValue, 1, string(b.KeySet), strconv.FormatBool(len(b.Revived) > 0))
	}
}
