package verifycmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keypost/keypost/issuer/verify/finding"
)

// writeMetrics leaves the result of a run for node_exporter's textfile collector, in one step: it never reads half a file. The
// mode is 0644 whatever the umask, since node_exporter runs as a user of its own, and cron often has a umask of 077.
func writeMetrics(file string, results []verified, unread int, now time.Time) error {
	findings := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "keypost_verify_findings", Help: "Findings of the last keypost verify that are not ok, by issuer, code of the cause and severity.",
	}, []string{"issuer", "code", "severity"})
	failed := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "keypost_verify_failed", Help: "Whether the last keypost verify found something that breaks relying parties (1) or not (0).",
	}, []string{"issuer"})
	sets := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "keypost_verify_unread_key_sets", Help: "Key sets of the store that the last keypost verify could not read, and whose issuers it did not look at.",
	})
	last := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "keypost_verify_last_run_timestamp_seconds", Help: "When the last keypost verify ended, whatever it found, in seconds since 1970.",
	})
	for _, r := range results {
		issuer := strings.ToValidUTF8(r.Issuer, "\uFFFD") // a label has to be UTF-8, and a URL that is typed may not
		failed.WithLabelValues(issuer).Set(0)
		for _, f := range r.Findings {
			if f.Severity != finding.OK {
				findings.WithLabelValues(issuer, f.Code, string(f.Severity)).Inc()
			}
			if f.Severity == finding.Fail {
				failed.WithLabelValues(issuer).Set(1)
			}
		}
	}
	sets.Set(float64(unread))
	last.Set(float64(now.Unix()))
	registry := prometheus.NewRegistry()
	registry.MustRegister(findings, failed, sets, last)
	if err := prometheus.WriteToTextfile(file, registry); err != nil {
		return fmt.Errorf("write the metrics file: %w", err)
	}
	return nil
}
